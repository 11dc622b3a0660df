"""Sending alone: batches form, and one listener that fails harms nobody else."""

import asyncio
from collections.abc import Sequence

import pytest
import structlog

from parley.bus.embedded import EmbeddedBus
from parley.chats.sending import BATCH_DRAFTS_MAX, BATCH_LETTERS_MAX, CHATS_UNDER_WAY_MAX, Sending
from parley.errors import SERVICE_UNAVAILABLE, OutcomeUnknown, Refusal, Refused, StoreUnavailable
from parley.model import Appended, AppendResult, Draft, Head, Outcome, Persisted, Stored
from parley.telemetry import Metrics
from parley.testing.clock import VirtualClock, run_virtual
from tests.fakes import UnaskedLog
from tests.waiting import eventually


class FakeLog(UnaskedLog):
    """Stores what it is given, in its order, or raises what it is told to; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.failure: Exception | None = None
        self.head = 0

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        await asyncio.sleep(0)
        self.batches.append([draft.content for draft in drafts])
        if self.failure is not None:
            raise self.failure
        outcomes: list[Outcome] = []
        positions = []
        for _ in drafts:
            self.head += 1
            outcomes.append(Appended(message_id="", sequence=self.head, epoch=1, created_at=""))
            positions.append(Stored(self.head, b"{}"))
        return AppendResult(outcomes, [Persisted("chat", 1, positions)])


class FailingListener:
    """Somebody on the bus with a bug."""

    def persisted(self, news: list[Persisted]) -> None:
        raise ValueError("on purpose")

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        raise ValueError("on purpose")

    def sessions_ended(self, session_ids: list[str]) -> None:
        raise ValueError("on purpose")


def draft(content: str) -> Draft:
    return Draft(chat_id="chat", sender_id="ann", content=content)


def sending_to(log: FakeLog, bus: EmbeddedBus | None = None) -> Sending:
    sending = Sending(log, bus or EmbeddedBus(), Metrics(VirtualClock()))
    sending.start()
    return sending


async def code_of(sending: Sending, content: str) -> str:
    """How a send ended, in one word."""
    try:
        await sending.send(draft(content))
    except Refused as refused:
        return refused.refusal.code
    return "stored"


async def test_what_waits_together_is_one_batch() -> None:
    """Drafts that arrive while another batch is under way go together in the next one, in order."""
    log = FakeLog()
    sending = sending_to(log)
    await asyncio.gather(*(sending.send(draft(f"{n}")) for n in range(10)))
    await sending.stop()
    assert [content for batch in log.batches for content in batch] == [f"{n}" for n in range(10)]
    assert len(log.batches) <= 2


def test_the_persist_path_is_timed_from_submission_to_durability() -> None:
    """A draft that waits for the batch before it has waited for both; a failed batch is no sample."""

    class SlowLog(FakeLog):
        async def append(self, drafts: Sequence[Draft]) -> AppendResult:
            await asyncio.sleep(0.25)
            return await super().append(drafts)

    async def scenario(clock: VirtualClock) -> list[float]:
        log, metrics = SlowLog(), Metrics(clock, asyncio.get_running_loop().time)
        sending = Sending(log, EmbeddedBus(), metrics)
        sending.start()
        first = asyncio.create_task(sending.send(draft("first")))
        await asyncio.sleep(0.05)
        await sending.send(draft("second"))
        log.failure = StoreUnavailable("on purpose")
        with structlog.testing.capture_logs():
            await code_of(sending, "third")
        await first
        await sending.stop()
        return [round(seconds, 3) for _, seconds in metrics.persist._samples]

    assert run_virtual(scenario) == [0.25, 0.45]


async def test_a_batch_is_bounded() -> None:
    """Neither too many drafts nor too many letters go into one batch."""
    log = FakeLog()
    sending = sending_to(log)
    drafts = ["x"] * (BATCH_DRAFTS_MAX * 2) + ["y" * (BATCH_LETTERS_MAX // 2)] * 5
    await asyncio.gather(*(sending.send(draft(content)) for content in drafts))
    await sending.stop()
    assert max(map(len, log.batches)) <= BATCH_DRAFTS_MAX
    assert max(sum(map(len, batch)) for batch in log.batches) <= BATCH_LETTERS_MAX
    assert sum(map(len, log.batches)) == len(drafts)


async def test_a_failed_batch_is_told_for_what_it_is() -> None:
    """Nothing written is store_unavailable; a failed commit, or a surprise, is outcome_unknown."""
    log = FakeLog()
    sending = sending_to(log)
    failures = [StoreUnavailable(""), OutcomeUnknown(""), ValueError("surprise"), None]
    codes = []
    with structlog.testing.capture_logs():
        for log.failure in failures:
            codes.append(await code_of(sending, "x"))
    await sending.stop()
    assert codes == ["store_unavailable", "outcome_unknown", "outcome_unknown", "stored"]


async def test_an_outage_of_the_store_fills_no_log() -> None:
    """Each batch of it is refused, and the log says so once in a while."""
    log = FakeLog()
    log.failure = StoreUnavailable("on purpose")
    sending = sending_to(log)
    with structlog.testing.capture_logs() as lines:
        for n in range(20):
            await code_of(sending, f"{n}")
    await sending.stop()
    assert [line["event"] for line in lines] == ["batch refused"]


async def test_a_listener_that_fails_stops_nobody() -> None:
    """A bug in one place that hears outcomes or news is logged, and sending goes on."""
    log, bus = FakeLog(), EmbeddedBus()
    bus.subscribe(FailingListener())
    sending = sending_to(log, bus)

    def failing(_: Draft, __: int | float | None, outcome: Outcome) -> None:
        raise ValueError("on purpose")

    with structlog.testing.capture_logs() as lines:
        sending.submit(draft("bad listener"), None, failing)
        async with asyncio.timeout(5):
            assert [await code_of(sending, f"{n}") for n in range(3)] == ["stored"] * 3
            await sending.stop()
    assert {line["event"] for line in lines} == {"an outcome could not be told", "news could not be told"}


async def test_stopping_finishes_what_was_taken() -> None:
    """What came before the stop is stored and told, what comes after is refused as temporary."""
    log = FakeLog()
    sending = sending_to(log)
    before = [asyncio.create_task(code_of(sending, f"{n}")) for n in range(5)]
    await asyncio.sleep(0)
    stopping = asyncio.create_task(sending.stop())
    await asyncio.sleep(0)
    refused: list[Outcome] = []
    sending.submit(draft("late"), None, lambda _, __, outcome: refused.append(outcome))
    await stopping
    assert await asyncio.gather(*before) == ["stored"] * 5
    (outcome,) = refused
    assert isinstance(outcome, Refusal)
    assert (outcome.code, outcome.temporary) == ("shutting_down", True)


class HeldLog(FakeLog):
    """Says when an append has begun, and ends it when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        self.begun.set()
        await self.let_go.wait()
        return await super().append(drafts)


@pytest.mark.parametrize("lanes", [0, 1])
async def test_stopping_finishes_what_waits_behind_a_batch(lanes: int) -> None:
    """Drafts that were taken while a batch was under way are stored and told too, in their order."""
    log = HeldLog()
    sending = Sending(log, EmbeddedBus(), Metrics(VirtualClock()), lanes=lanes)
    sending.start()
    under_way = asyncio.create_task(code_of(sending, "under way"))
    await asyncio.wait_for(log.begun.wait(), 5)
    behind = [asyncio.create_task(code_of(sending, f"{n}")) for n in range(3)]
    await asyncio.sleep(0)
    stopping = asyncio.create_task(sending.stop())
    await asyncio.sleep(0)
    log.let_go.set()
    async with asyncio.timeout(5):
        await stopping
        assert await asyncio.gather(under_way, *behind) == ["stored"] * 4
    assert [content for batch in log.batches for content in batch] == ["under way", "0", "1", "2"]


class FakeChatLog(FakeLog):
    """Commits chat by chat; holds the batches of one chat until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held = ""
        self.let_go = asyncio.Event()

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        assert len({draft.chat_id for draft in drafts}) == 1
        if drafts[0].chat_id == self.held:
            await self.let_go.wait()
        return await super().append(drafts)


async def test_a_slow_chat_holds_up_no_other() -> None:
    """With a lane per chat each chat waits for itself alone, keeps its order, and its batches are bounded."""
    log = FakeChatLog()
    log.held = "slow"
    sending = Sending(log, EmbeddedBus(), Metrics(VirtualClock()), lanes=0, batch_drafts_max=3)
    sending.start()
    slow = [
        asyncio.create_task(sending.send(Draft(chat_id="slow", sender_id="ann", content=f"s{n}")))
        for n in range(7)
    ]
    async with asyncio.timeout(5):
        for n in range(7):
            await sending.send(Draft(chat_id="quick", sender_id="ann", content=f"q{n}"))
        assert not any(task.done() for task in slow)
        log.let_go.set()
        await asyncio.gather(*slow)
        await sending.stop()
    said = [content for batch in log.batches for content in batch if content.startswith("s")]
    assert said == [f"s{n}" for n in range(7)]
    assert max(map(len, log.batches)) == 3


async def test_stopping_finishes_every_chat() -> None:
    """What was taken before the stop is stored, also in chats that still wait for a lane."""
    log = FakeChatLog()
    sending = Sending(log, EmbeddedBus(), Metrics(VirtualClock()), lanes=0)
    sending.start()
    tasks = [
        asyncio.create_task(sending.send(Draft(chat_id=f"{n}", sender_id="ann", content="x")))
        for n in range(CHATS_UNDER_WAY_MAX * 2)
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await sending.stop()
        await asyncio.gather(*tasks)
    assert len(log.batches) == CHATS_UNDER_WAY_MAX * 2


@pytest.mark.parametrize("lanes", [0, 1])
async def test_a_stop_ends_after_the_last_outcome(lanes: int) -> None:
    """When it returns the store may be closed: every draft that was taken is stored and told by then."""
    log, told = FakeChatLog() if not lanes else FakeLog(), list[Outcome]()
    sending = Sending(log, EmbeddedBus(), Metrics(VirtualClock()), lanes=lanes)
    sending.start()
    for number in range(CHATS_UNDER_WAY_MAX * 2):
        chosen = Draft(chat_id=f"{number}", sender_id="ann", content="x")
        sending.submit(chosen, None, lambda _, __, outcome: told.append(outcome))
    async with asyncio.timeout(5):
        await sending.stop()
    assert len(told) == CHATS_UNDER_WAY_MAX * 2


class Confirming:
    """A bus that takes its time: remembers what it was asked, and answers when and what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Persisted], dict[str, int]]] = []
        self.go = asyncio.Event()
        self.late: dict[str, Refusal] | Exception = {}

    async def __call__(self, news: list[Persisted], through: dict[str, int]) -> dict[str, Refusal]:
        self.asked.append((news, through))
        await self.go.wait()
        if isinstance(self.late, Exception):
            raise self.late
        return self.late


class Ear:
    """Hears on the bus what has become durable."""

    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def persisted(self, news: list[Persisted]) -> None:
        self._heard.append("news")

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        raise AssertionError("nobody joins")

    def sessions_ended(self, session_ids: list[str]) -> None:
        raise AssertionError("nothing ends")


def confirmed_by(confirming: Confirming, heard: list[str], log: FakeLog | None = None) -> Sending:
    bus = EmbeddedBus()
    bus.subscribe(Ear(heard))
    sending = Sending(log or FakeLog(), bus, Metrics(VirtualClock()), confirm=confirming)
    sending.start()
    return sending


async def test_an_ack_waits_for_the_bus_where_it_must() -> None:
    """With a confirmation, nothing is told before it, then the ack, then the entry."""
    confirming, heard = Confirming(), list[str]()
    sending = confirmed_by(confirming, heard)
    sending.submit(draft("x"), None, lambda _, __, outcome: heard.append("ack"))
    await eventually(lambda: bool(confirming.asked))
    assert heard == []
    confirming.go.set()
    await sending.stop()
    assert heard == ["ack", "news"]
    assert confirming.asked == [([Persisted("chat", 1, [Stored(1, b"{}")])], {"chat": 1})]


async def test_a_send_goes_on_while_another_waits_for_the_bus() -> None:
    """The next batch is stored while the one before waits for its confirmation."""
    confirming, log = Confirming(), FakeLog()
    sending = confirmed_by(confirming, [], log)
    first = asyncio.create_task(code_of(sending, "1"))
    await eventually(lambda: len(confirming.asked) == 1)
    second = asyncio.create_task(code_of(sending, "2"))
    await eventually(lambda: len(confirming.asked) == 2)
    confirming.go.set()
    assert list(await asyncio.gather(first, second)) == ["stored", "stored"]
    await sending.stop()
    assert log.batches == [["1"], ["2"]]


async def test_what_the_bus_has_not_taken_is_refused_as_temporary() -> None:
    """A chat whose news is late, or of which nobody knows, is refused with a code that says to retry."""
    codes = []
    with structlog.testing.capture_logs():
        for late in ({"chat": SERVICE_UNAVAILABLE}, ValueError("surprise"), {"other": SERVICE_UNAVAILABLE}):
            confirming, heard = Confirming(), list[str]()
            confirming.late = late
            confirming.go.set()
            sending = confirmed_by(confirming, heard)
            codes.append((await code_of(sending, "x"), heard))
            await sending.stop()
    unavailable = ("service_unavailable", ["news"])
    assert codes == [unavailable, unavailable, ("stored", ["news"])]
