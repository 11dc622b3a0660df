"""Every sender is answered in time, whatever the store or another node does, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from parley.bus.embedded import EmbeddedBus
from parley.model import AppendResult, Draft, Head, Persisted
from parley.sending.answers import SEND_SECONDS_MAX
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.store.ports import Batching
from parley.telemetry import Metrics
from parley.wire.limits import ANSWER_SECONDS_MAX
from tests.fakes import ONE_APPEND_AT_A_TIME, PER_CHAT
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.faulty_log import FaultyLog
from tests.unit.sending.nodes import ME, Cluster, Mood, message

A_MOMENT_SECONDS = 0.05


class HangingLog(FaultyLog):
    """Stores a batch at once, and answers only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = asyncio.Semaphore(0)

    def answer(self, batches: int = 9) -> None:
        for _ in range(batches):
            self._turns.release()

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        result = await super().append(drafts)
        await self._turns.acquire()
        return result


class Sends:
    """What everybody who sends to a hanging log hears, with the second in which they do."""

    def __init__(self, batching: Batching) -> None:
        self.log = HangingLog()
        bus = EmbeddedBus()
        bus.subscribe(self)
        self.pending = PendingSends()
        self.sender = LocalSender(self.log, bus, self.pending, Metrics(VirtualClock()), batching)
        self.sender.start()
        self.heard: list[str] = []
        self.seconds: dict[str, float] = {}

    def submit(self, content: str, chat_id: str = "chat") -> None:
        draft = Draft(chat_id=chat_id, sender_id="ann", content=content)
        self.sender.submit(draft, None, lambda _, __, outcome: self._hear(content, outcome))

    def _hear(self, content: str, outcome: object) -> None:
        self.seconds[content] = asyncio.get_running_loop().time()
        self.heard.append(f"{content}: {getattr(outcome, 'code', 'stored')}")

    def persisted(self, news: list[Persisted]) -> None:
        self.heard += [f"news {stored.sequence}" for item in news for stored in item.positions]

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        raise AssertionError("nobody joins")

    def sessions_ended(self, session_ids: list[str]) -> None:
        raise AssertionError("nothing ends")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    with structlog.testing.capture_logs():
        run_virtual(lambda _: scenario())


def each_way(scenario: Callable[[Batching], Awaitable[None]]) -> None:
    """With a queue over all chats, and with a queue for each chat."""
    for batching in (ONE_APPEND_AT_A_TIME, PER_CHAT):
        run(lambda batching=batching: scenario(batching))  # type: ignore[misc]


def test_a_store_that_hangs_leaves_no_sender_waiting() -> None:
    """What it was given is unknown, what it was not is refused, each within the deadline and once."""

    async def scenario(batching: Batching) -> None:
        sends = Sends(batching)
        sends.submit("given")
        await asyncio.sleep(A_MOMENT_SECONDS)
        sends.submit("behind it")
        await asyncio.sleep(8)
        assert sorted(sends.heard) == ["behind it: store_unavailable", "given: outcome_unknown"]
        assert max(sends.seconds.values()) < ANSWER_SECONDS_MAX
        sends.log.answer()
        await sends.sender.stop()
        assert len(sends.heard) == 3, "two answers and the news of what was stored after all"

    each_way(scenario)


def test_what_is_refused_for_its_age_is_never_stored() -> None:
    """A draft that is taken back while it waits for its turn does not reach the log later."""

    async def scenario(batching: Batching) -> None:
        sends = Sends(batching)
        sends.submit("given")
        await asyncio.sleep(A_MOMENT_SECONDS)
        sends.submit("behind it")
        await asyncio.sleep(SEND_SECONDS_MAX - 1)
        sends.submit("young")
        await asyncio.sleep(2)
        sends.log.answer()
        await sends.sender.stop()
        assert sends.log.batches == [["given"], ["young"]]
        assert sends.heard[-2:] == ["young: stored", "news 2"]

    each_way(scenario)


def test_in_one_batch_the_young_are_not_given_up_with_the_old() -> None:
    """Of a batch that hangs each draft is unknown at its own time; the rest is told what became of it."""

    async def scenario(batching: Batching) -> None:
        sends = Sends(batching)
        sends.submit("first")
        await asyncio.sleep(A_MOMENT_SECONDS)
        sends.submit("old")
        await asyncio.sleep(3)
        sends.submit("young")
        sends.log.answer(1)
        await asyncio.sleep(2)
        assert sends.heard[2:] == ["old: outcome_unknown"]
        sends.log.answer()
        await sends.sender.stop()
        assert sends.log.batches == [["first"], ["old", "young"]]
        assert sends.heard[2:] == ["old: outcome_unknown", "young: stored", "news 2", "news 3"]

    each_way(scenario)


def test_news_waits_for_the_answers_to_what_is_under_way_here() -> None:
    """What the log may show of this node's own drafts is told after their acks, in both ways to send."""

    async def scenario(batching: Batching) -> None:
        sends = Sends(batching)
        sends.submit("mine")
        await asyncio.sleep(A_MOMENT_SECONDS)
        sends.pending.after_answers("chat", 1, lambda: sends.heard.append("held"))
        assert sends.heard == []
        sends.pending.after_answers("another", 1, lambda: sends.heard.append("another"))
        assert sends.heard == ["another"]
        sends.log.answer()
        await sends.sender.stop()
        assert sends.heard == ["another", "mine: stored", "news 1", "held"]

    each_way(scenario)


def test_news_from_before_a_batch_does_not_wait_for_it() -> None:
    """A hot chat always has a batch under way: what stands before it is told at once."""

    async def scenario() -> None:
        sends = Sends(PER_CHAT)
        sends.submit("first")
        await asyncio.sleep(A_MOMENT_SECONDS)
        sends.submit("second")
        sends.log.answer(1)
        await asyncio.sleep(A_MOMENT_SECONDS)
        assert sends.log.batches == [["first"], ["second"]]
        sends.pending.after_answers("chat", 2, lambda: sends.heard.append("held"))
        sends.pending.after_answers("chat", 1, lambda: sends.heard.append("at once"))
        assert sends.heard[-1] == "at once"
        assert "held" not in sends.heard
        sends.log.answer()
        await sends.sender.stop()

    run(scenario)


def test_news_is_not_held_for_an_answer_that_was_given_up() -> None:
    """Once everybody knows that the outcome is unknown, there is nothing left to wait for."""

    async def scenario(batching: Batching) -> None:
        sends = Sends(batching)
        sends.submit("mine")
        await asyncio.sleep(A_MOMENT_SECONDS)
        sends.pending.after_answers("chat", 1, lambda: sends.heard.append("held"))
        await asyncio.sleep(8)
        assert sends.heard == ["mine: outcome_unknown", "held"]
        sends.log.answer()
        await sends.sender.stop()

    each_way(scenario)


def test_a_node_with_a_slow_store_leaves_no_sender_waiting() -> None:
    """It takes as long as a node may, and what waits behind it would again: everybody hears in time."""

    async def scenario() -> None:
        cluster = Cluster(["one"], appends_here=False)
        cluster.peers.moods = {"one": [Mood.SLOW] * 9}
        late: list[str] = []

        def look(content: str) -> None:
            late.extend([content] * (not cluster.told[content]))

        for number in range(8):
            cluster.submit(message(f"{number}"))
            asyncio.get_running_loop().call_later(ANSWER_SECONDS_MAX, look, f"{number}")
            await asyncio.sleep(0.5)
        await asyncio.sleep(ANSWER_SECONDS_MAX)
        assert late == []
        await cluster.finish()
        assert {cluster.code(f"{number}") for number in range(8)} <= {"outcome_unknown", "store_unavailable"}

    run(scenario)


def test_a_forwarded_draft_is_answered_in_time_though_this_node_must_append_it() -> None:
    """The first node is silent, then the own store hangs: unknown within the deadline."""

    async def scenario() -> None:
        cluster = Cluster(["one"])
        cluster.peers.owners["chat"] = "one"
        cluster.peers.moods = {"one": [Mood.DEAF]}
        cluster.local.hangs = asyncio.Event()
        cluster.submit(message("hello"))
        await asyncio.sleep(ANSWER_SECONDS_MAX)
        assert cluster.code("hello") == "outcome_unknown"
        cluster.local.hangs.set()
        await cluster.finish()

    run(scenario)


def test_a_chat_that_changes_hands_keeps_its_order() -> None:
    """What this node took for its own log is stored before the next draft goes to the new owner."""

    async def scenario() -> None:
        cluster = Cluster(["one"])
        cluster.peers.owners["chat"] = ME
        cluster.local.hangs = asyncio.Event()
        cluster.submit(message("here"))
        await asyncio.sleep(A_MOMENT_SECONDS)
        cluster.submit(message("behind it"))
        cluster.peers.owners["chat"] = "one"
        cluster.submit(message("there"))
        await asyncio.sleep(A_MOMENT_SECONDS)
        assert cluster.forwarded() == []
        cluster.local.hangs.set()
        await cluster.finish()
        assert cluster.forwarded() == [("one", ["there"])]
        assert cluster.store.contents["chat"] == ["here", "behind it", "there"]

    run(scenario)
