"""What the queue needs to know of those whom it delivers to."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from parley.core.retry import DeliveryFailure
from parley.wire.frames import Entry


class Parcel(Struct, frozen=True):
    """One entry for one recipient. `event_id` is the same in every attempt and every replay."""

    recipient: str
    entry: Entry
    wire: bytes
    event_id: str


class Channel(Protocol):
    """A way to recipients of one kind."""

    async def recipients(self, chat_id: str, until_ms: int | None = None) -> list[str]:
        """Those who may want entries of a chat, the newest of which is from then; of any time if None."""
        ...

    async def wants(self, recipient: str, entry: Entry) -> bool:
        """Whether this recipient wants this entry. One that it does not want counts as delivered."""
        ...

    async def attempt(self, parcel: Parcel) -> DeliveryFailure | None:
        """Try once, within a bounded time. None: the recipient has it. An error that is raised is a crash."""
        ...
