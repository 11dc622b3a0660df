"""The local sender alone: batches form, and one listener that fails harms nobody else."""

import asyncio
from collections.abc import Sequence

import pytest
import structlog

from parley.bus.embedded import EmbeddedBus
from parley.bus.ports import Confirm
from parley.errors import SERVICE_UNAVAILABLE, OutcomeUnknown, Refusal, Refused, StoreUnavailable
from parley.model import AppendResult, Draft, Head, Outcome, Persisted, StoredEntry
from parley.sending.pending import PendingSends
from parley.sending.sender import BATCH_CHARS_MAX, LocalSender
from parley.store.ports import DRAFTS_PER_APPEND_MAX, Batching
from parley.telemetry import Metrics
from tests.fakes import ONE_APPEND_AT_A_TIME, PER_CHAT
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.faulty_log import FaultyLog
from tests.waiting import deadline, eventually


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


def sender_to(
    log: FaultyLog,
    bus: EmbeddedBus | None = None,
    batching: Batching = ONE_APPEND_AT_A_TIME,
    metrics: Metrics | None = None,
    confirm: Confirm | None = None,
) -> LocalSender:
    sender = LocalSender(
        log,
        bus or EmbeddedBus(),
        PendingSends(),
        metrics or Metrics(VirtualClock()),
        batching,
        confirm,
    )
    sender.start()
    return sender


async def code_of(sender: LocalSender, content: str) -> str:
    """How a send ended, in one word."""
    try:
        await sender.send(draft(content))
    except Refused as refused:
        return refused.refusal.code
    return "stored"


async def test_what_waits_together_is_one_batch() -> None:
    """Drafts that arrive while another batch is under way go together in the next one, in order."""
    log = FaultyLog()
    sender = sender_to(log)
    await asyncio.gather(*(sender.send(draft(f"{n}")) for n in range(10)))
    await sender.stop()
    assert [content for batch in log.batches for content in batch] == [f"{n}" for n in range(10)]
    assert len(log.batches) <= 2


def test_the_persist_path_is_timed_from_submission_to_durability() -> None:
    """A draft that waits for the batch before it has waited for both; a failed batch is no sample."""

    class SlowLog(FaultyLog):
        async def append(self, drafts: Sequence[Draft]) -> AppendResult:
            await asyncio.sleep(0.25)
            return await super().append(drafts)

    async def scenario(clock: VirtualClock) -> list[float]:
        log, metrics = SlowLog(), Metrics(clock, asyncio.get_running_loop().time)
        sender = sender_to(log, metrics=metrics)
        first = asyncio.create_task(sender.send(draft("first")))
        await asyncio.sleep(0.05)
        await sender.send(draft("second"))
        log.failure = StoreUnavailable("on purpose")
        with structlog.testing.capture_logs():
            await code_of(sender, "third")
        await first
        await sender.stop()
        return [round(seconds, 3) for _, seconds in metrics.persist._samples]

    assert run_virtual(scenario) == [0.25, 0.45]


async def test_a_batch_is_bounded() -> None:
    """Neither too many drafts nor too many letters go into one batch."""
    log = FaultyLog()
    sender = sender_to(log)
    drafts = ["x"] * (DRAFTS_PER_APPEND_MAX * 2) + ["y" * (BATCH_CHARS_MAX // 2)] * 5
    await asyncio.gather(*(sender.send(draft(content)) for content in drafts))
    await sender.stop()
    assert max(map(len, log.batches)) <= DRAFTS_PER_APPEND_MAX
    assert max(sum(map(len, batch)) for batch in log.batches) <= BATCH_CHARS_MAX
    assert sum(map(len, log.batches)) == len(drafts)


async def test_a_failed_batch_is_told_for_what_it_is() -> None:
    """Nothing written is store_unavailable; a failed commit, or a surprise, is outcome_unknown."""
    log = FaultyLog()
    sender = sender_to(log)
    failures = [StoreUnavailable(""), OutcomeUnknown(""), ValueError("surprise"), None]
    codes = []
    with structlog.testing.capture_logs():
        for log.failure in failures:
            codes.append(await code_of(sender, "x"))
    await sender.stop()
    assert codes == ["store_unavailable", "outcome_unknown", "outcome_unknown", "stored"]


async def test_an_outage_of_the_store_fills_no_log() -> None:
    """Each batch of it is refused, and the log says so once in a while."""
    log = FaultyLog()
    log.failure = StoreUnavailable("on purpose")
    sender = sender_to(log)
    with structlog.testing.capture_logs() as lines:
        for n in range(20):
            await code_of(sender, f"{n}")
    await sender.stop()
    assert [line["event"] for line in lines] == ["batch refused"]


async def test_a_listener_that_fails_stops_nobody() -> None:
    """A bug in one place that hears outcomes or news is logged, and sending goes on."""
    log, bus = FaultyLog(), EmbeddedBus()
    bus.subscribe(FailingListener())
    sender = sender_to(log, bus)

    def failing(_: Draft, __: int | float | None, outcome: Outcome) -> None:
        raise ValueError("on purpose")

    with structlog.testing.capture_logs() as lines:
        sender.submit(draft("bad listener"), None, failing)
        async with deadline():
            assert [await code_of(sender, f"{n}") for n in range(3)] == ["stored"] * 3
            await sender.stop()
    assert {line["event"] for line in lines} == {
        "an outcome could not be delivered",
        "news could not be published",
    }


async def test_stopping_finishes_what_was_taken() -> None:
    """What came before the stop is stored and told, what comes after is refused as temporary."""
    log = FaultyLog()
    sender = sender_to(log)
    before = [asyncio.create_task(code_of(sender, f"{n}")) for n in range(5)]
    await asyncio.sleep(0)
    stopping = asyncio.create_task(sender.stop())
    await asyncio.sleep(0)
    refused: list[Outcome] = []
    sender.submit(draft("late"), None, lambda _, __, outcome: refused.append(outcome))
    await stopping
    assert await asyncio.gather(*before) == ["stored"] * 5
    (outcome,) = refused
    assert isinstance(outcome, Refusal)
    assert (outcome.code, outcome.temporary) == ("shutting_down", True)


class HeldLog(FaultyLog):
    """Says when an append has begun, and ends it when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        self.begun.set()
        await self.let_go.wait()
        return await super().append(drafts)


@pytest.mark.parametrize("batching", [PER_CHAT, ONE_APPEND_AT_A_TIME], ids=["per_chat", "shared"])
async def test_stopping_finishes_what_waits_behind_a_batch(batching: Batching) -> None:
    """Drafts that were taken while a batch was under way are stored and told too, in their order."""
    log = HeldLog()
    sender = sender_to(log, batching=batching)
    under_way = asyncio.create_task(code_of(sender, "under way"))
    async with deadline():
        await log.begun.wait()
    behind = [asyncio.create_task(code_of(sender, f"{n}")) for n in range(3)]
    await asyncio.sleep(0)
    stopping = asyncio.create_task(sender.stop())
    await asyncio.sleep(0)
    log.let_go.set()
    async with deadline():
        await stopping
        assert await asyncio.gather(under_way, *behind) == ["stored"] * 4
    assert [content for batch in log.batches for content in batch] == ["under way", "0", "1", "2"]


class ChatByChatLog(FaultyLog):
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
    """With a queue per chat each waits for itself alone, keeps its order, and its batches are bounded."""
    log = ChatByChatLog()
    log.held = "slow"
    sender = sender_to(log, batching=Batching(per_chat=True, appends_at_once_max=256, drafts_max=3))
    slow = [
        asyncio.create_task(sender.send(Draft(chat_id="slow", sender_id="ann", content=f"s{n}")))
        for n in range(7)
    ]
    async with deadline():
        for n in range(7):
            await sender.send(Draft(chat_id="quick", sender_id="ann", content=f"q{n}"))
        assert not any(task.done() for task in slow)
        log.let_go.set()
        await asyncio.gather(*slow)
        await sender.stop()
    said = [content for batch in log.batches for content in batch if content.startswith("s")]
    assert said == [f"s{n}" for n in range(7)]
    assert max(map(len, log.batches)) == 3


async def test_stopping_finishes_every_chat() -> None:
    """What was taken before the stop is stored, also in chats that still wait for a queue."""
    log = ChatByChatLog()
    sender = sender_to(log, batching=PER_CHAT)
    tasks = [
        asyncio.create_task(sender.send(Draft(chat_id=f"{n}", sender_id="ann", content="x")))
        for n in range(PER_CHAT.appends_at_once_max * 2)
    ]
    await asyncio.sleep(0)
    async with deadline():
        await sender.stop()
        await asyncio.gather(*tasks)
    assert len(log.batches) == PER_CHAT.appends_at_once_max * 2


@pytest.mark.parametrize("batching", [PER_CHAT, ONE_APPEND_AT_A_TIME], ids=["per_chat", "shared"])
async def test_a_stop_ends_after_the_last_outcome(batching: Batching) -> None:
    """When it returns the store may be closed: every draft that was taken is stored and told by then."""
    log, told = ChatByChatLog() if batching.per_chat else FaultyLog(), list[Outcome]()
    sender = sender_to(log, batching=batching)
    for number in range(PER_CHAT.appends_at_once_max * 2):
        chosen = Draft(chat_id=f"{number}", sender_id="ann", content="x")
        sender.submit(chosen, None, lambda _, __, outcome: told.append(outcome))
    async with deadline():
        await sender.stop()
    assert len(told) == PER_CHAT.appends_at_once_max * 2


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


def confirmed_by(confirming: Confirming, heard: list[str], log: FaultyLog | None = None) -> LocalSender:
    bus = EmbeddedBus()
    bus.subscribe(Ear(heard))
    return sender_to(log or FaultyLog(), bus, confirm=confirming)


async def test_an_ack_waits_for_the_bus_where_it_must() -> None:
    """With a confirmation, nothing is told before it, then the ack, then the entry."""
    confirming, heard, log = Confirming(), list[str](), FaultyLog()
    sender = confirmed_by(confirming, heard, log)
    sender.submit(draft("x"), None, lambda _, __, outcome: heard.append("ack"))
    await eventually(lambda: bool(confirming.asked))
    assert heard == []
    confirming.go.set()
    await sender.stop()
    assert heard == ["ack", "news"]
    stored = StoredEntry(1, log.tables.chats["chat"].wires[1])
    (((told,), through),) = confirming.asked
    assert (told.chat_id, told.epoch, told.positions, through) == ("chat", 1, [stored], {"chat": 1})


async def test_a_send_goes_on_while_another_waits_for_the_bus() -> None:
    """The next batch is stored while the one before waits for its confirmation."""
    confirming, log = Confirming(), FaultyLog()
    sender = confirmed_by(confirming, [], log)
    first = asyncio.create_task(code_of(sender, "1"))
    await eventually(lambda: len(confirming.asked) == 1)
    second = asyncio.create_task(code_of(sender, "2"))
    await eventually(lambda: len(confirming.asked) == 2)
    confirming.go.set()
    assert list(await asyncio.gather(first, second)) == ["stored", "stored"]
    await sender.stop()
    assert log.batches == [["1"], ["2"]]


async def test_what_the_bus_has_not_taken_is_refused_as_temporary() -> None:
    """A chat whose news is late, or of which nobody knows, is refused with a code that says to retry."""
    codes = []
    with structlog.testing.capture_logs():
        for late in ({"chat": SERVICE_UNAVAILABLE}, ValueError("surprise"), {"other": SERVICE_UNAVAILABLE}):
            confirming, heard = Confirming(), list[str]()
            confirming.late = late
            confirming.go.set()
            sender = confirmed_by(confirming, heard)
            codes.append((await code_of(sender, "x"), heard))
            await sender.stop()
    unavailable = ("service_unavailable", ["news"])
    assert codes == [unavailable, unavailable, ("stored", ["news"])]
