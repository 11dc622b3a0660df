"""What is kept of deliveries to others: queues, dead letters, webhooks. Pure."""

from __future__ import annotations

from enum import StrEnum
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

DEAD_LETTER_DAYS = 30
"""How long a dead letter is kept after its last change."""
DEAD_LETTER_SHARDS = 16
HISTORY_EVENTS_MAX = 20
"""A dead letter that is replayed again and again keeps its first event and the latest ones."""


class DeliveryEvent(Struct, frozen=True):
    """Something that happened to a delivery. `actor` is empty for what the server did by itself."""

    at_ms: int
    action: str
    error: str = ""
    detail: str = ""
    actor: str = ""


class DeliveryQueue(Struct, frozen=True, kw_only=True):
    """What is still to be delivered from one chat to one recipient: positions `next_sequence` to `target`.

    The rest is about the message in front: its retries, its crashes, its attempts, and when it is due.
    `claim`: the token of the worker that runs it. Such a queue is due again when the claim runs out.
    """

    chat_id: str
    recipient: str
    next_sequence: int
    target: int
    due_ms: int = 0
    retry_count: int = 0
    crashes: int = 0
    attempts: tuple[DeliveryEvent, ...] = ()
    claim: str = ""


class QueueClaim(Struct, frozen=True):
    """The right of one worker to run a queue, until then. Every claim has a token of its own."""

    token: str
    until_ms: int


class DeadLetterStatus(StrEnum):
    PENDING = "pending"
    REPLAYED = "replayed"
    FAILED = "permanently_failed"


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A message that could not be delivered to one recipient. Its content stays in the log.

    `is_queued`: it waits for its replay, and is due at `due_ms`. `job_id`: the last job that chose it.
    `changed_ms`: when the status was last set. `version` rises with each change.
    """

    dlq_id: str
    chat_id: str
    sequence: int
    recipient: str
    message_id: str
    sender_id: str
    created_ms: int
    error: str
    detail: str
    retry_count: int
    first_attempt_ms: int
    last_attempt_ms: int
    dlq_ms: int
    changed_ms: int
    source_topic: str
    source_partition: int = 0
    source_offset: int = 0
    status: DeadLetterStatus = DeadLetterStatus.PENDING
    is_queued: bool = False
    due_ms: int = 0
    crashes: int = 0
    job_id: str = ""
    version: int = 1
    history: tuple[DeliveryEvent, ...] = ()


class PendingDeadLetter(Struct, frozen=True, kw_only=True):
    """A line of the list of pending dead letters. `since_ms`: when it was written."""

    dlq_id: str
    error: str
    since_ms: int


class QueuedDeadLetter(Struct, frozen=True, kw_only=True):
    """A line of the list of dead letters that wait for their replay, as a job put it there."""

    dlq_id: str
    recipient: str
    chat_id: str
    sequence: int
    job_id: str
    since_ms: int


def shard_of(name: str) -> str:
    return str(crc32(name.encode()) % DEAD_LETTER_SHARDS)


def pending_line(dead_letter: DeadLetter, now_ms: int) -> PendingDeadLetter:
    return PendingDeadLetter(dlq_id=dead_letter.dlq_id, error=dead_letter.error, since_ms=now_ms)


def queue_line(dead_letter: DeadLetter, now_ms: int) -> QueuedDeadLetter:
    return QueuedDeadLetter(
        dlq_id=dead_letter.dlq_id,
        recipient=dead_letter.recipient,
        chat_id=dead_letter.chat_id,
        sequence=dead_letter.sequence,
        job_id=dead_letter.job_id,
        since_ms=now_ms,
    )


def with_events(history: tuple[DeliveryEvent, ...], *events: DeliveryEvent) -> tuple[DeliveryEvent, ...]:
    """A dead letter's history with these added, and without the middle if it is too long."""
    longer = (*history, *events)
    return longer if len(longer) <= HISTORY_EVENTS_MAX else (longer[0], *longer[1 - HISTORY_EVENTS_MAX :])


def queued_dead_letter(dead_letter: DeadLetter, job_id: str, event: DeliveryEvent) -> DeadLetter:
    """As it waits for its replay, with new retries."""
    return replace(
        dead_letter,
        is_queued=True,
        due_ms=0,
        retry_count=0,
        crashes=0,
        job_id=job_id,
        version=dead_letter.version + 1,
        history=with_events(dead_letter.history, event),
    )


def discarded_dead_letter(dead_letter: DeadLetter, job_id: str, event: DeliveryEvent) -> DeadLetter:
    """As it has failed permanently."""
    return replace(
        dead_letter,
        is_queued=False,
        status=DeadLetterStatus.FAILED,
        changed_ms=event.at_ms,
        job_id=job_id,
        version=dead_letter.version + 1,
        history=with_events(dead_letter.history, event),
    )


class Selection(Struct, frozen=True, kw_only=True):
    """Which dead letters are meant. A field that is None does not matter; all that are given must hold.

    `after_ms` and `before_ms`: when it became a dead letter, from the one and before the other.
    """

    ids: tuple[str, ...] | None = None
    status: DeadLetterStatus | None = None
    is_queued: bool | None = None
    error: str | None = None
    topic: str | None = None
    chat_id: str | None = None
    recipient: str | None = None
    job_id: str | None = None
    after_ms: int | None = None
    before_ms: int | None = None


def is_selected(dead_letter: DeadLetter, selection: Selection) -> bool:
    same = (
        (selection.status, dead_letter.status),
        (selection.is_queued, dead_letter.is_queued),
        (selection.error, dead_letter.error),
        (selection.topic, dead_letter.source_topic),
        (selection.chat_id, dead_letter.chat_id),
        (selection.recipient, dead_letter.recipient),
        (selection.job_id, dead_letter.job_id),
    )
    after, before = selection.after_ms, selection.before_ms
    return (
        all(wanted is None or wanted == found for wanted, found in same)
        and (selection.ids is None or dead_letter.dlq_id in selection.ids)
        and (after is None or dead_letter.dlq_ms >= after)
        and (before is None or dead_letter.dlq_ms < before)
    )


class Webhook(Struct, frozen=True, kw_only=True):
    """An address that events are sent to. Without `chat_id` it gets those of every chat."""

    webhook_id: str
    url: str
    events: tuple[str, ...]
    secret: str
    created_ms: int
    chat_id: str = ""
    is_paused: bool = False
    """By an operator: nothing is sent to it, and what it is owed waits."""
