"""The report of an erasure counts everything that was removed, wherever a process died, on every engine."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from parley.archive.steps import ERASURE_LABELS
from parley.bodies.erasures import BodyAdmin
from parley.bodies.retention import Retention
from parley.bodies.writer import EntryWriter
from parley.model import ErasureReport
from parley.store.dynamodb import scans
from parley.store.ports import Replaced
from parley.store.rows import ChatRetention
from tests.contracts.acting import add_group, message, stored
from tests.contracts.cold_world import ColdWorld
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.test_retention import two_people

REASONS = 3
STEPS = 3
"""Of the erasure below: what is in no chat, and two chats."""


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


class Died(BaseException):
    """The process ended here."""


class ErasureWorld:
    """Ann has written to three chats, one of them under a hold, and one of them partly archived."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store = store
        self.cold = ColdWorld(store, folder)
        self.reasons = REASONS
        self.ann = ""
        self.chats: list[str] = []

    async def fill(self) -> None:
        store = self.store
        self.ann, ben, chat = await two_people(store)
        await self.cold.run()
        await store.log.append([message(chat, self.ann, f"late {at}") for at in range(3)])
        others = [await add_group(store, self.ann, ben) for _ in range(2)]
        for other in others:
            for at in range(4):
                await stored(store, message(other, self.ann, f"other {at}"))
        self.chats = [chat, *others]
        await store.kinds.retentions.decide(others[1], ChatRetention(days=None, is_held=True))
        for device in ("phone", "pad"):
            store.cursors.note_acked(self.ann, device, chat, 1, store.clock())
        await store.cursors.flush()

    def admin(self, fault_point: Callable[[str], None] = lambda _: None) -> BodyAdmin:
        engine = self.store.engine
        eraser = EntryWriter(engine.log, engine.entries, self.cold.archiver)
        retention = Retention(
            eraser, self.store.kinds.retentions, engine.inspection, self.store.clock, self.store.metrics, 0
        )
        return BodyAdmin(
            make_retention=lambda: retention,
            directory=engine.directory,
            retentions=self.store.kinds.retentions,
            erasures=self.store.kinds.erasures,
            reports=self.store.kinds.erasure_reports,
            clock=self.store.clock,
            forget_cursors=engine.member_states.forget_cursors,
            forget_reasons=self._forget_reasons,
            fault_point=fault_point,
        )

    async def _forget_reasons(self, user_id: str, *, dry: bool = False) -> int:
        found, self.reasons = self.reasons, self.reasons if dry else 0
        return found

    async def report(self) -> ErasureReport:
        """Without times, and with chats in a known order."""
        report = await self.admin().report_of(self.ann)
        assert report is not None
        assert report.finished_at
        chats = tuple(sorted(report.chats, key=lambda chat: chat.chat_id))
        return replace(report, begun_at="", finished_at="", chats=chats)


async def check_report(world: ErasureWorld) -> None:
    report = await world.report()
    bodies = {chat.chat_id: (chat.hot + chat.cold, chat.is_held) for chat in report.chats}
    assert bodies == {world.chats[0]: (15, False), world.chats[1]: (4, False), world.chats[2]: (0, True)}
    totals = (report.hot + report.cold, report.cursors, report.reports, report.under_way)
    assert totals == (19, 2, REASONS, None)
    assert world.store.kinds.erasures is not None
    assert await world.store.kinds.erasures.pending() == []


async def test_a_report_counts_everything(engine: Engine, tmp_path: Path) -> None:
    """Bodies in both tiers by chat, positions and reasons; a second look adds nothing."""
    async with engine.opened() as store:
        world = ErasureWorld(store, tmp_path)
        await world.fill()
        await world.admin().begin(world.ann)
        await world.admin().look()
        await check_report(world)
        await world.admin().begin(world.ann)
        await world.admin().look()
        await check_report(world)


@pytest.mark.parametrize("label", ERASURE_LABELS)
async def test_a_crash_loses_no_count(engine: Engine, tmp_path: Path, label: str) -> None:
    """At every step, again and again: each look dies one step later, and the last one says the same."""
    async with engine.opened() as store:
        world = ErasureWorld(store, tmp_path)
        await world.fill()
        await world.admin().begin(world.ann)
        deaths = 0
        for number in range(1, STEPS + 1):
            left = number

            def die(reached: str) -> None:
                nonlocal left
                left -= reached == label
                if not left:
                    raise Died

            try:
                await world.admin(die).look()
            except Died:
                deaths += 1
        assert deaths
        await world.admin().look()
        await check_report(world)


async def test_a_crash_in_the_middle_of_a_chat_loses_no_count(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the bodies of a page are removed when the process dies."""
    async with engine.opened() as store:
        world = ErasureWorld(store, tmp_path)
        await world.fill()
        await world.admin().begin(world.ann)
        tier = store.engine.entries
        whole = tier.replace

        async def half(chat_id: str, bodies: dict[int, Replaced]) -> None:
            await whole(chat_id, dict(list(bodies.items())[: len(bodies) // 2]))
            raise Died

        with monkeypatch.context() as dying:
            dying.setattr(tier, "replace", half)
            with pytest.raises(Died):
                await world.admin().look()
        await world.admin().look()
        await check_report(world)


async def test_a_hold_that_is_set_after_a_crash_keeps_what_is_left(engine: Engine, tmp_path: Path) -> None:
    """The report counts what was removed before it, and names the chat as held."""
    async with engine.opened() as store:
        world = ErasureWorld(store, tmp_path)
        await world.fill()
        await world.admin().begin(world.ann)
        left = 2  # the first step is what is in no chat

        def die(reached: str) -> None:
            nonlocal left
            left -= reached == "erasure_after_count"
            if not left:
                raise Died

        with pytest.raises(Died):
            await world.admin(die).look()
        report = await world.admin().report_of(world.ann)
        assert report is not None
        assert report.under_way is not None
        for chat in world.chats:
            await world.store.kinds.retentions.decide(chat, ChatRetention(days=None, is_held=True))
        await world.admin().look()
        last = await world.report()
        assert (last.hot, last.cold, last.cursors, last.reports) == (0, 0, 2, REASONS)
        assert {chat.chat_id for chat in last.chats if chat.is_held} == {*world.chats}
