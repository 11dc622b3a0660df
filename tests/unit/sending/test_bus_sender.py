"""Drafts through a topic: their order, their answers in time, and what is never claimed."""

import asyncio
from collections.abc import Sequence

from parley.bus.ports import BufferedDraft, ReplyAddress
from parley.errors import NOT_A_MEMBER, OutcomeUnknown, Refusal, StoreUnavailable
from parley.model import Appended, Draft, Outcome
from parley.sending.answers import SEND_SECONDS_MAX, Done
from parley.sending.bus_sender import BusSender
from parley.sending.pending import PendingSends
from parley.sending.sender import Sender
from parley.telemetry import Metrics
from parley.wire.frames import RequestId
from parley.wire.limits import ANSWER_SECONDS_MAX
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.sending.nodes import change, message

ADDRESS = ReplyAddress("http://here", "here.1")


class FakeQueue:
    """A topic with one partition. `failure`: what the next puts raise. `open`: while it is set puts end."""

    def __init__(self) -> None:
        self.drafts: list[BufferedDraft] = []
        self.puts = 0
        self.failure: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    def partition_of(self, chat_id: str) -> int:
        return 0

    async def put(self, partition: int, drafts: Sequence[BufferedDraft]) -> None:
        self.puts += 1
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.drafts += drafts

    @property
    def contents(self) -> list[str]:
        return [one.draft.content for one in self.drafts]


class FakeDirect(Sender):
    """The other way: it keeps what it is given until it is told to answer."""

    def __init__(self) -> None:
        self.taken: list[tuple[Draft, RequestId, Done]] = []

    def submit(self, draft: Draft, request_id: RequestId, done: Done) -> None:
        self.taken.append((draft, request_id, done))

    @property
    def contents(self) -> list[str]:
        return [draft.content for draft, _, _ in self.taken]

    def answer(self) -> None:
        draft, request_id, done = self.taken.pop(0)
        done(draft, request_id, appended(1))


def appended(sequence: int) -> Appended:
    return Appended(message_id=f"msg_{sequence}", sequence=sequence, epoch=1, created_at="")


class World:
    """A sender, its topic, and what its senders hear, with the second in which they do."""

    def __init__(self, clock: VirtualClock) -> None:
        self.queue, self.direct, self.pending = FakeQueue(), FakeDirect(), PendingSends()
        self.sender = BusSender(self.direct, self.queue, lambda: ADDRESS, self.pending, Metrics(clock), clock)
        self.heard: list[str] = []
        self.seconds: list[float] = []

    def send(self, *drafts: Draft) -> None:
        for draft in drafts:
            self.sender.submit(draft, None, self._hear)

    def _hear(self, draft: Draft, _: RequestId, outcome: Outcome) -> None:
        said = outcome.code if isinstance(outcome, Refusal) else str(outcome.sequence)
        self.heard.append(f"{draft.content}: {said}")
        self.seconds.append(asyncio.get_running_loop().time())

    def settle(self, *outcomes: Outcome) -> None:
        """The next drafts of the topic have these outcomes."""
        for outcome in outcomes:
            self.sender.settle([(self.queue.drafts.pop(0).ticket, outcome)])


async def moment() -> None:
    await asyncio.sleep(0.01)


def test_an_ack_waits_for_the_store() -> None:
    """That a draft is in the topic is no answer; the outcome of the log is, also a refusal."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.send(message("a"), message("b"))
        await moment()
        assert (world.queue.contents, world.heard) == (["a", "b"], [])
        assert {one.reply for one in world.queue.drafts} == {ADDRESS}
        world.settle(appended(7), NOT_A_MEMBER)
        assert world.heard == ["a: 7", "b: not_a_member"]

    run_virtual(scenario)


def test_a_lost_outcome_is_unknown_in_time() -> None:
    """Never that nothing was stored: the draft is in the topic; an outcome that comes later is ignored."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.send(message("a"))
        await asyncio.sleep(ANSWER_SECONDS_MAX)
        assert world.heard == ["a: outcome_unknown"]
        assert SEND_SECONDS_MAX <= world.seconds[0] < ANSWER_SECONDS_MAX
        world.settle(appended(1))
        assert world.heard == ["a: outcome_unknown"]
        world.send(message("a"))
        await moment()
        world.settle(appended(1))
        assert world.heard[1:] == ["a: 1"]

    run_virtual(scenario)


def test_a_broker_that_cannot_be_reached_is_a_temporary_refusal() -> None:
    """Nothing was written, so that is what the sender hears."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.queue.failure = StoreUnavailable("no broker")
        world.send(message("a"))
        await moment()
        assert world.heard == ["a: store_unavailable"]

    run_virtual(scenario)


def test_a_put_that_may_have_worked_is_not_refused() -> None:
    """Its outcome may still come; if not, it is unknown."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.queue.failure = OutcomeUnknown("no answer")
        world.send(message("a"))
        await moment()
        assert world.heard == []
        await asyncio.sleep(ANSWER_SECONDS_MAX)
        assert world.heard == ["a: outcome_unknown"]

    run_virtual(scenario)


def test_what_waits_behind_a_hanging_broker_is_refused_and_never_written() -> None:
    """Only what was given to the topic may be stored later, and only that is unknown."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.queue.open.clear()
        world.send(message("a"))
        await moment()
        world.send(message("b"))
        await asyncio.sleep(ANSWER_SECONDS_MAX)
        assert sorted(world.heard) == ["a: outcome_unknown", "b: store_unavailable"]
        world.queue.open.set()
        await moment()
        assert world.queue.contents == ["a"]

    run_virtual(scenario)


def test_drafts_of_a_chat_are_written_in_their_order() -> None:
    """One batch at a time, whatever comes meanwhile."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        sent = [str(number) for number in range(1_200)]
        for content in sent:
            world.send(message(content))
            if content.endswith("00"):
                await asyncio.sleep(0)
        await moment()
        assert world.queue.contents == sent
        assert world.queue.puts >= 3

    run_virtual(scenario)


def test_a_change_waits_for_the_messages_before_it() -> None:
    """It goes directly, and what follows it waits for it; another chat does not."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.send(message("a"), change("rename"), message("b"), message("c", "other"))
        await moment()
        assert (world.queue.contents, world.direct.contents) == (["a", "c"], [])
        world.settle(appended(1))
        await moment()
        assert (world.queue.contents, world.direct.contents) == (["c"], ["rename"])
        world.direct.answer()
        await moment()
        assert world.queue.contents == ["c", "b"]

    run_virtual(scenario)


def test_an_entry_waits_for_the_ack_of_its_draft() -> None:
    """It may arrive by the bus before its outcome does."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.send(message("a"), message("b"))
        await moment()
        world.pending.after_answers("chat", 2, lambda: world.heard.append("entries"))
        world.settle(appended(1))
        assert world.heard == ["a: 1"]
        world.settle(appended(2))
        assert world.heard == ["a: 1", "b: 2", "entries"]

    run_virtual(scenario)


def test_a_stop_waits_for_the_answers() -> None:
    """What comes later is refused; when it returns everybody has heard."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.send(message("a"))
        await moment()
        stopping = asyncio.create_task(world.sender.stop())
        await moment()
        world.send(message("b"))
        assert world.heard == ["b: shutting_down"]
        assert not stopping.done()
        world.settle(appended(1))
        await stopping
        assert world.heard == ["b: shutting_down", "a: 1"]

    run_virtual(scenario)
