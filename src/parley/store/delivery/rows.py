"""The rows of deliveries, the same on every engine."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class DeliveryEvent(Struct, frozen=True):
    """Something that happened to a delivery. `actor` is empty for what the server did by itself."""

    at_ms: int
    action: str
    error: str = ""
    detail: str = ""
    actor: str = ""


class Lane(Struct, frozen=True, kw_only=True):
    """What is still to be delivered from one chat to one recipient: positions `next_sequence` to `target`.

    The rest is about the message in front: its retries, its crashes, its attempts, and when it is due.
    """

    chat_id: str
    recipient: str
    next_sequence: int
    target: int
    due_ms: int = 0
    retry_count: int = 0
    crashes: int = 0
    attempts: tuple[DeliveryEvent, ...] = ()


class LetterStatus(StrEnum):
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
    status: LetterStatus = LetterStatus.PENDING
    is_queued: bool = False
    due_ms: int = 0
    crashes: int = 0
    job_id: str = ""
    version: int = 1
    history: tuple[DeliveryEvent, ...] = ()


class Selection(Struct, frozen=True, kw_only=True):
    """Which dead letters are meant. A field that is None does not matter; all that are given must hold.

    `after_ms` and `before_ms`: when it became a dead letter, from the one and before the other.
    """

    ids: tuple[str, ...] | None = None
    status: LetterStatus | None = None
    is_queued: bool | None = None
    error: str | None = None
    topic: str | None = None
    chat_id: str | None = None
    recipient: str | None = None
    job_id: str | None = None
    after_ms: int | None = None
    before_ms: int | None = None


class Webhook(Struct, frozen=True, kw_only=True):
    """An address that events are sent to. Without `chat_id` it gets those of every chat."""

    webhook_id: str
    url: str
    events: tuple[str, ...]
    secret: str
    created_ms: int
    chat_id: str = ""
