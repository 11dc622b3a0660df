"""One attempt to deliver one position, and the dead letter that a hopeless one becomes."""

from __future__ import annotations

import contextlib
import hashlib
import traceback
from collections.abc import Callable

import msgspec
import structlog
from msgspec import Struct

from parley import ids
from parley.clock import Clock, from_iso, iso
from parley.core.deliveries import DeadLetter, DeliveryEvent, DeliveryQueue, with_events
from parley.core.recipient_health import RecipientHealth
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy, after_crash, after_failure, is_too_old
from parley.delivery.ports import Delivery, Recipient, Source
from parley.errors import StoreError
from parley.store.ports import Log
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

COLLAPSED_LOOKED_AT_MAX = 200
"""How far back a queue that collapses looks for an entry that its recipient wants."""
DETAIL_CHARS_MAX = 4_000
BEGAN, FAILED, DEAD_LETTERED, HELD_BACK = "began", "failed", "dead_lettered", "held_back"
"""What is noted of an attempt. `began` is noted only where a process died before: after another death it
says of which message. `held_back` is no attempt: since then those before it, or its recipient, failed.
"""


log = structlog.get_logger("parley.delivery")


class Attempted(Struct, frozen=True):
    """What came of trying a delivery. `was_made`: the recipient wants it, and was asked."""

    failure: DeliveryFailure | None = None
    was_made: bool = False


class Failed(Struct, frozen=True):
    """A delivery after it failed. `wait_ms`: until its next attempt; None: it is hopeless."""

    wait_ms: int | None
    crashes: int
    history: tuple[DeliveryEvent, ...]


class Attempts:
    """Tries one delivery and says what came of it, and what follows. `holder` names this process.

    Errors of the store are raised: they say nothing of the delivery.
    """

    def __init__(self, policy: RetryPolicy, clock: Clock, holder: str, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._holder = holder
        self._chance = chance

    async def attempt(
        self, recipient: Recipient, recipient_id: str, wire: bytes, crashes: int, *, is_replay: bool = False
    ) -> Attempted:
        """`crashes`: how often this message has crashed before. A replay may deliver what is old."""
        try:
            entry = decode_entry(wire)
            created_ms = from_iso(entry.created_at)
        except (msgspec.DecodeError, ValueError) as error:
            return Attempted(DeliveryFailure(Fault.MALFORMED, _short(str(error))))
        try:
            if not await recipient.wants(entry):
                return Attempted()
            if not is_replay and is_too_old(created_ms, self._clock(), self._policy):
                return Attempted(DeliveryFailure(Fault.TOO_OLD, f"from {entry.created_at}"))
            delivery = Delivery(recipient_id, entry, wire, event_id_of(entry))
            return Attempted(await recipient.attempt(delivery), was_made=True)
        except StoreError:
            raise
        except Exception as error:
            log.error("a delivery crashed", recipient=recipient_id, chat_id=entry.chat_id, exc_info=error)
            return Attempted(after_crash(crashes + 1, _short("".join(traceback.format_exception(error)))))

    def begun(self, history: tuple[DeliveryEvent, ...]) -> tuple[DeliveryEvent, ...]:
        """A history with the attempt that begins now, to be noted before it: it may kill this process."""
        return with_events(history, DeliveryEvent(self._clock(), BEGAN, actor=self._holder))

    def failed(
        self,
        failure: DeliveryFailure,
        history: tuple[DeliveryEvent, ...],
        *,
        retry_count: int,
        crashes: int,
        failing_ms: int = 0,
    ) -> Failed:
        """After a failure. `failing_ms`: how long the recipient could not have this message."""
        event = DeliveryEvent(self._clock(), FAILED, failure.fault.value, failure.detail)
        return Failed(
            after_failure(failure, retry_count, self._policy, self._chance(), failing_ms),
            crashes + (failure.fault is Fault.CRASHED),
            with_events(without_begun(history), event),
        )


async def is_wanted(recipient: Recipient, wire: bytes) -> bool:
    """Whether an attempt would ask the recipient; also of what cannot be read."""
    try:
        return await recipient.wants(decode_entry(wire))
    except msgspec.DecodeError:
        return True


def event_id_of(entry: Entry) -> str:
    """The id of an entry's event: that of its message, so that it is the same forever."""
    return ids.EVENT + entry.message_id.removeprefix(ids.MESSAGE)


def dlq_id_of(recipient: str, chat_id: str, sequence: int, created_ms: int) -> str:
    """The same for the same delivery, so that one has at most one dead letter. Later messages sort later."""
    digest = hashlib.sha256("\0".join([recipient, chat_id, str(sequence)]).encode()).digest()
    return ids.DEAD_LETTER + ids.ulid(created_ms, int.from_bytes(digest[:10], "big"))


def dead_letter_id(recipient: str, chat_id: str, sequence: int, wire: bytes) -> str:
    """Without the time for what is in no log: it is not the same at each attempt."""
    created_ms = _facts(wire)[2] if chat_id.startswith(ids.CHAT) else 0
    return dlq_id_of(recipient, chat_id, sequence, created_ms)


def begun(history: tuple[DeliveryEvent, ...]) -> int:
    """How many attempts have begun without an end, since anything else is known: each of them died."""
    ended = [place for place, event in enumerate(history, 1) if event.action != BEGAN]
    return len(history) - max(ended, default=0)


def without_begun(history: tuple[DeliveryEvent, ...]) -> tuple[DeliveryEvent, ...]:
    return history[: len(history) - begun(history)]


def poison(history: tuple[DeliveryEvent, ...], deaths_max: int = 1) -> DeliveryFailure | None:
    """What a message is over which so many processes died; None if they did not."""
    if begun(history) < deaths_max:
        return None
    began = history[-1]
    return DeliveryFailure(
        Fault.POISON,
        f"processes died while they delivered this: the last attempt began at {iso(began.at_ms)}"
        f" on {began.actor}",
    )


def failing_since(queue: DeliveryQueue, wire: bytes, health: RecipientHealth | None, now_ms: int) -> int:
    """Since when the front of a queue cannot be delivered: not before it was there.

    It counts from its first attempt, or from when those before it or its recipient began to fail. What is in
    no log is as new as its last reading, so only its own attempts count.
    """
    times = [event.at_ms for event in without_begun(queue.attempts)[:1]]
    if not queue.chat_id.startswith(ids.CHAT):
        return min([*times, now_ms])
    if health is not None:
        times.append(health.failing_since_ms)
    return max(_facts(wire)[2], min([*times, now_ms]))


def make_dead_letter(
    queue: DeliveryQueue, wire: bytes, failure: DeliveryFailure, now_ms: int, source_topic: str
) -> DeadLetter:
    """Of the message at the front of a queue. The last of the queue's attempts is the one that failed now."""
    sequence, attempts = queue.next_sequence, queue.attempts
    made = [event for event in attempts if event.action != HELD_BACK] or attempts
    message_id, sender_id, created_ms = _facts(wire)
    dead = DeliveryEvent(now_ms, DEAD_LETTERED, failure.fault.value, f"after {queue.retry_count} retries")
    return DeadLetter(
        dlq_id=dead_letter_id(queue.recipient, queue.chat_id, sequence, wire),
        chat_id=queue.chat_id,
        sequence=sequence,
        recipient=queue.recipient,
        message_id=message_id,
        sender_id=sender_id,
        created_ms=created_ms,
        error=failure.fault.value,
        detail=failure.detail,
        retry_count=queue.retry_count,
        first_attempt_ms=made[0].at_ms,
        last_attempt_ms=made[-1].at_ms,
        dlq_ms=now_ms,
        changed_ms=now_ms,
        source_topic=source_topic,
        source_offset=sequence,
        history=with_events(attempts, dead),
    )


class LogSource:
    """The logs of chats."""

    def __init__(self, logs: Log) -> None:
        self._log = logs

    async def read(self, stream_id: str, after: int, limit: int) -> tuple[dict[int, bytes], int]:
        page = await self._log.read(stream_id, after, limit)
        voids = set(page.voids)
        resolved = range(page.from_sequence, page.to_sequence + 1)
        sequences = [sequence for sequence in resolved if sequence not in voids]
        return dict(zip(sequences, page.entries, strict=False)), max(page.to_sequence, after)


def content_of(wire: bytes) -> str:
    """What a message says; empty if it cannot be read."""
    try:
        return decode_entry(wire).content
    except msgspec.DecodeError:
        return ""


async def newest_wanted(
    source: Source, recipient: Recipient, queue: DeliveryQueue
) -> tuple[int, bytes] | None:
    """The newest entry of a queue that its recipient wants."""
    after = max(queue.next_sequence - 1, queue.target - COLLAPSED_LOOKED_AT_MAX)
    found: dict[int, bytes] = {}
    while after < queue.target:
        wires, reached = await source.read(queue.chat_id, after, queue.target - after)
        if reached == after:
            break
        found, after = found | wires, reached
    for sequence, wire in sorted(found.items(), reverse=True):
        with contextlib.suppress(msgspec.DecodeError):
            if sequence <= queue.target and await recipient.wants(decode_entry(wire)):
                return sequence, wire
    return None


def time_of(wire: bytes) -> int | None:
    """When an entry was stored; None if that cannot be read."""
    return _facts(wire)[2] or None


def _facts(wire: bytes) -> tuple[str, str, int]:
    """The message's id, its sender and its time, as far as it can be read."""
    try:
        entry = decode_entry(wire)
        return entry.message_id, entry.sender_id, from_iso(entry.created_at)
    except (msgspec.DecodeError, ValueError):
        return "", "", 0


def _short(text: str) -> str:
    """The end of a text that is too long: of a traceback it says the most."""
    return text if len(text) <= DETAIL_CHARS_MAX else "…" + text[1 - DETAIL_CHARS_MAX :]
