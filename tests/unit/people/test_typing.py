"""Typing: told to the other members who are there, now and then, and to nobody who is blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from parley.ephemeral.local import LocalSignals
from parley.ephemeral.signals import TypingSignal
from parley.model import ChatMember, ChatType, Relation, StoredChat, Visibility
from parley.people import typing as typing_module
from parley.people.caches import EXPIRES_MS, ChatFactsCache, ReadCache
from parley.people.typing import TypingService
from parley.telemetry import Metrics
from parley.wire.frames import ServerFrame, Typing
from parley.wire.limits import TYPING_EVERY_SECONDS, TYPING_MEMBERS_MAX, TYPING_SHOWN_SECONDS
from tests.harness.clock import VirtualClock, run_virtual
from tests.memory.people import MemoryDirectory
from tests.memory.tables import Tables
from tests.unit.people.world import CountingRelations

ANN, BEN, CAT = "usr_ann", "usr_ben", "usr_cat"
DIRECT, GROUP, CROWD, NOWHERE = "chat_direct", "chat_group", "chat_crowd", "chat_nowhere"
SHOWN_MS = TYPING_SHOWN_SECONDS * 1_000


class CountingDirectory(MemoryDirectory):
    """Three chats; counts how often somebody reads who is in one."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.people = {DIRECT: [ANN, BEN], GROUP: [ANN, BEN, CAT]}
        self.people[CROWD] = [ANN, BEN, *(f"usr_{number}" for number in range(TYPING_MEMBERS_MAX - 1))]
        self.reads = 0
        for chat_id, people in self.people.items():
            chat_type = ChatType.DIRECT if chat_id == DIRECT else ChatType.GROUP
            tables.add_chat(StoredChat(chat_id, chat_type, None, ANN, "", "", 1), people)

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[ChatMember]:
        self.reads += 1
        return await super().members(chat_id, after_user_id, limit)


class Audience:
    """Every member is connected here, and hears."""

    def __init__(self, directory: CountingDirectory) -> None:
        self._directory = directory
        self.told: list[tuple[str, str, int]] = []
        """(who was told, who types, for how long), in order."""

    def people_in(self, chat_id: str) -> set[str]:
        return set(self._directory.people[chat_id])

    def tell_chat(self, chat_id: str, frame: ServerFrame, receives: Callable[[str], bool]) -> None:
        assert isinstance(frame, Typing)
        told = [user_id for user_id in self._directory.people[chat_id] if receives(user_id)]
        self.told += [(user_id, frame.user_id, frame.expires_in_ms) for user_id in told]

    def tell_people(self, user_ids: Iterable[str], frame: ServerFrame) -> None:
        raise AssertionError("nobody asks")


class World:
    def __init__(self, clock: VirtualClock) -> None:
        tables = Tables()
        self.relations, self.directory = CountingRelations(tables, clock), CountingDirectory(tables)
        self.audience = Audience(self.directory)
        self.visibility = ReadCache[Visibility](self.relations.visibility, clock)
        self.signals = LocalSignals()
        self.metrics = Metrics(clock)
        facts = ChatFactsCache(self.directory, clock)
        self.typings = TypingService(
            facts=facts,
            visibility=self.visibility,
            directory=self.directory,
            signals=self.signals,
            audience=self.audience,
            clock=clock,
            metrics=self.metrics,
        )

    @property
    def told(self) -> list[tuple[str, str, int]]:
        """What was told since somebody looked."""
        told, self.audience.told = self.audience.told, []
        return told


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        await scenario(World(clock))

    run_virtual(run)


def test_other_members_are_told() -> None:
    """All who are there but the one who types, for a few seconds, until that one stops."""

    async def scenario(world: World) -> None:
        await world.typings.start(ANN, GROUP)
        assert world.told == [(BEN, ANN, SHOWN_MS), (CAT, ANN, SHOWN_MS)]
        await world.typings.stop(ANN, GROUP)
        assert world.told == [(BEN, ANN, 0), (CAT, ANN, 0)]
        assert world.metrics.registry.get_sample_value("parley_typing_told_total") == 2

    in_world(scenario)


def test_one_start_in_a_while_is_passed_on() -> None:
    """Of each person and chat; who goes on typing is passed on again before they would be hidden."""

    async def scenario(world: World) -> None:
        for _ in range(31):
            await world.typings.start(ANN, DIRECT)
            await asyncio.sleep(0.3)
        assert world.told == [(BEN, ANN, SHOWN_MS)] * (1 + 9 // TYPING_EVERY_SECONDS)
        await world.typings.start(BEN, DIRECT)
        await world.typings.start(ANN, GROUP)
        assert len(world.told) == 1 + 2

    in_world(scenario)


def test_a_stop_is_passed_on_once_and_only_after_a_start() -> None:
    """Who was not shown to type, or is so no longer, need not be hidden."""

    async def scenario(world: World) -> None:
        await world.typings.stop(ANN, DIRECT)
        assert world.told == []
        await world.typings.start(ANN, DIRECT)
        await world.typings.stop(ANN, DIRECT)
        await world.typings.stop(ANN, DIRECT)
        assert world.told == [(BEN, ANN, SHOWN_MS), (BEN, ANN, 0)]
        await world.typings.start(ANN, DIRECT)
        await world.typings.stop(ANN, DIRECT)
        assert world.told == []
        await asyncio.sleep(TYPING_EVERY_SECONDS)
        await world.typings.start(ANN, DIRECT)
        await asyncio.sleep(TYPING_SHOWN_SECONDS + 1)
        await world.typings.stop(ANN, DIRECT)
        assert world.told == [(BEN, ANN, SHOWN_MS)]

    in_world(scenario)


@pytest.mark.parametrize("chat_id", [CROWD, NOWHERE])
def test_some_chats_are_silent(chat_id: str) -> None:
    """Those with too many members, and those that do not exist."""

    async def scenario(world: World) -> None:
        await world.typings.start(ANN, chat_id)
        await world.typings.stop(ANN, chat_id)
        assert world.told == []

    in_world(scenario)


def test_who_is_blocked_sees_nothing_in_a_group() -> None:
    """The blocker is hidden from them and from nobody else; the other way round nothing is hidden."""

    async def scenario(world: World) -> None:
        world.relations.hold(Relation.BLOCK, (ANN, BEN))
        await world.typings.start(ANN, GROUP)
        await world.typings.stop(ANN, GROUP)
        assert world.told == [(CAT, ANN, SHOWN_MS), (CAT, ANN, 0)]
        await world.typings.start(BEN, GROUP)
        assert world.told == [(ANN, BEN, SHOWN_MS), (CAT, BEN, SHOWN_MS)]

    in_world(scenario)


@pytest.mark.parametrize("block", [(ANN, BEN), (BEN, ANN)])
def test_a_direct_chat_with_a_block_is_silent(block: tuple[str, str]) -> None:
    """Whoever of the two has blocked the other, until they unblock."""

    async def scenario(world: World) -> None:
        world.relations.hold(Relation.BLOCK, block)
        for user_id in (ANN, BEN):
            await world.typings.start(user_id, DIRECT)
            await world.typings.stop(user_id, DIRECT)
        assert world.told == []
        world.relations.hold(Relation.BLOCK)
        await asyncio.sleep(TYPING_EVERY_SECONDS)
        for user_id in (ANN, BEN):
            world.visibility.forget(user_id)
        await world.typings.start(ANN, DIRECT)
        assert world.told == [(BEN, ANN, SHOWN_MS)]

    in_world(scenario)


def test_who_blocks_many_sends_small_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those who are in the chat are named in what every node reads."""
    monkeypatch.setattr(typing_module, "HIDDEN_MAX", 10)

    async def scenario(world: World) -> None:
        heard: list[TypingSignal] = []
        world.signals.subscribe(TypingSignal, heard.append)
        world.relations.hold(Relation.BLOCK, (ANN, CAT), *((ANN, f"usr_{number}") for number in range(50)))
        await world.typings.start(ANN, GROUP)
        assert heard == [TypingSignal(GROUP, ANN, SHOWN_MS, [CAT])]
        assert world.told == [(BEN, ANN, SHOWN_MS)]

    in_world(scenario)


def test_a_store_that_is_away_only_silences() -> None:
    """Nobody is refused for something that may be lost."""

    async def scenario(world: World) -> None:
        world.relations.is_away = True
        await world.typings.start(ANN, DIRECT)
        assert world.told == []

    in_world(scenario)


def test_typing_on_and_on_costs_few_reads_and_no_memory() -> None:
    """What a direct chat needs to know is remembered for a while; what is no longer shown is forgotten."""

    async def scenario(world: World) -> None:
        hours = 1
        for _ in range(hours * 3_600 // TYPING_EVERY_SECONDS):
            await world.typings.start(ANN, DIRECT)
            await world.typings.start(BEN, GROUP)
            await asyncio.sleep(TYPING_EVERY_SECONDS)
        assert world.directory.reads <= hours * 3_600_000 / EXPIRES_MS + 1
        await asyncio.sleep(TYPING_SHOWN_SECONDS + 1)
        await world.typings.start(CAT, GROUP)
        assert len(world.typings._shown) == 1

    in_world(scenario)
