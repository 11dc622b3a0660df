"""The consumer of drafts: what is settled, what is tried again, and in which order."""

import asyncio

from parley.bus.embedded import EmbeddedBus
from parley.bus.ports import BufferedDraft, ReplyAddress
from parley.errors import Refusal, StoreUnavailable
from parley.model import Outcome
from parley.sending.bus_ingest import TRIES_MAX, BusIngest
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.telemetry import Metrics
from tests.fakes import PER_CHAT
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.faulty_log import FaultyLog
from tests.unit.sending.nodes import message

REPLY = ReplyAddress("http://there", "there.1")


class World:
    """A node that appends, over a log that fails as it is told to; `is_available` is what its store says."""

    def __init__(self, clock: VirtualClock) -> None:
        self.log = FaultyLog()
        self.sender = LocalSender(self.log, EmbeddedBus(), PendingSends(), Metrics(clock), PER_CHAT)
        self.sender.start()
        self.is_available = True
        self.ingest = BusIngest(self.sender, self._give_back, lambda: self.is_available, lambda: 0.0)
        self.given: list[str] = []

    def _give_back(self, buffered: BufferedDraft, outcome: Outcome) -> None:
        said = outcome.code if isinstance(outcome, Refusal) else str(outcome.sequence)
        self.given.append(f"{buffered.draft.content}: {said}")


def buffered(*contents: str, chat_id: str = "chat") -> list[BufferedDraft]:
    return [
        BufferedDraft(message(content, chat_id), place, REPLY, 0) for place, content in enumerate(contents)
    ]


def test_drafts_are_appended_in_order_and_their_outcomes_given_back() -> None:
    """Of every chat; more than one batch of one chat keeps its order too."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        many = [str(number) for number in range(300)]
        await world.ingest.append([*buffered(*many), *buffered("x", "y", chat_id="other")])
        assert world.log.contents == {"chat": many, "other": ["x", "y"]}
        assert sorted(world.given) == sorted(
            [*(f"{number}: {number + 1}" for number in range(300)), "x: 1", "y: 2"]
        )

    run_virtual(scenario)


def test_a_record_that_is_read_again_is_stored_once() -> None:
    """After a crash before its offset was committed; its sender gets the original."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        await world.ingest.append(buffered("a", "b"))
        await world.ingest.append(buffered("a", "b", "c"))
        assert world.log.contents == {"chat": ["a", "b", "c"]}
        assert world.given == ["a: 1", "b: 2", "a: 1", "b: 2", "c: 3"]

    run_virtual(scenario)


def test_while_the_store_is_away_nothing_is_settled_and_nothing_lost() -> None:
    """However long: no outcome is given back, and everything is appended in order afterwards."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.log.failure, world.is_available = StoreUnavailable("away"), False
        appending = asyncio.create_task(world.ingest.append(buffered("a", "b")))
        await asyncio.sleep(3_600)
        assert (world.given, appending.done()) == ([], False)
        world.log.failure, world.is_available = None, True
        await appending
        assert world.log.contents == {"chat": ["a", "b"]}
        assert world.given == ["a: 1", "b: 2"]

    run_virtual(scenario)


def test_a_draft_that_fails_alone_does_not_stop_the_others_for_ever() -> None:
    """After some tries it is given up: its sender knows that the outcome is unknown."""

    class OneBadChat(FaultyLog):
        async def append(self, drafts):  # type: ignore[no-untyped-def]
            if drafts[0].chat_id == "bad":
                raise StoreUnavailable("only this one")
            return await super().append(drafts)

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.log = OneBadChat()
        world.sender = LocalSender(world.log, EmbeddedBus(), PendingSends(), Metrics(clock), PER_CHAT)
        world.ingest = BusIngest(world.sender, world._give_back, lambda: True, lambda: 0.0)
        async with asyncio.timeout(TRIES_MAX * 10):
            await world.ingest.append([*buffered("poison", chat_id="bad"), *buffered("a")])
        assert world.given == ["a: 1"]

    run_virtual(scenario)
