"""What the queue needs: of those whom it delivers to, of what it delivers, and of other nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from parley import ids
from parley.core.deliveries import DeadLetter, DeliveryQueue
from parley.core.retry import DeliveryFailure
from parley.model import Persisted
from parley.wire.frames import Entry


class DeliveryKind(Struct, frozen=True):
    """A kind of recipients. Its worker consumes the feed as `group`.

    `prefix`: how the ids of its recipients begin. `topic`: how operators call its queue, in dead letters.
    `collapses`: only the newest entry that a recipient wants is delivered, and stands for those before it.
    """

    group: str
    prefix: str
    topic: str
    collapses: bool = False


WEBHOOK_DELIVERIES = DeliveryKind(group="delivery", prefix=ids.WEBHOOK, topic="messages.outbound")
PUSH_DELIVERIES = DeliveryKind(group="push", prefix=ids.USER, topic="messages.notifications", collapses=True)
KINDS = (WEBHOOK_DELIVERIES, PUSH_DELIVERIES)


class Delivery(Struct, frozen=True):
    """One entry for one recipient. `event_id` is the same in every attempt and every replay."""

    recipient: str
    entry: Entry
    wire: bytes
    event_id: str


class Recipient(Protocol):
    """One recipient, as it was when the channel was asked for it."""

    async def wants(self, entry: Entry) -> bool:
        """Whether it wants this entry. One that it does not want counts as delivered."""
        ...

    async def attempt(self, delivery: Delivery) -> DeliveryFailure | None:
        """Try once, within a bounded time. None: the recipient has it. An error that is raised is a crash."""
        ...


class Channel(Protocol):
    """A way to recipients of one kind."""

    async def owed(self, news: Persisted) -> list[str]:
        """The recipients who may want an entry of this news."""
        ...

    async def recipient(self, recipient_id: str, stream_id: str) -> Recipient | None:
        """A recipient as it is now; None if it was removed, or wants nothing of this stream any more."""
        ...


class Source(Protocol):
    """What queues are positions in: the logs of chats, and streams of other events."""

    async def read(self, stream_id: str, after: int, limit: int) -> tuple[dict[int, bytes], int]:
        """Entries after a position, as clients get them, by sequence; and how far this read came.

        That is `after` itself at the end. A position without an entry is not to be delivered.
        """
        ...


Wake = Callable[[str, str], Awaitable[None]]
"""A queue, by chat and recipient, may be due now."""


class DeliveryTopics(Protocol):
    """What is told beyond this process. Delivery queues and dead letters are durable without it."""

    async def tell_retry(self, queue: DeliveryQueue) -> None:
        """Some worker of this kind is woken when the queue is due, unless the record is lost."""
        ...

    async def tell_dead(self, dead_letter: DeadLetter, content: str) -> None:
        """Tell other programs of a dead letter. What cannot be told in time is logged."""
        ...

    async def consume(self, prefix: str, wake: Wake) -> None:
        """Wake queues of recipients with this prefix when they are due, until cancelled."""
        ...
