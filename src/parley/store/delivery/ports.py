"""What an engine must keep so that it can deliver to others. See docs/delivery.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from parley.store.delivery.rows import DeadLetter, DeliveryEvent, Lane, Selection, Webhook


class Lanes(Protocol):
    """The recipients that are not up to date, by chat. A lane holds positions, never messages."""

    async def extend(self, chat_id: str, recipients: Sequence[str], first: int, last: int) -> None:
        """These recipients are owed the positions from `first` to `last`; durable before it returns.

        An existing lane only gets a higher target: its front, its retries and its due time stay.
        """
        ...

    async def due(self, now_ms: int, limit: int, besides: Collection[str] = ()) -> list[Lane]:
        """Lanes that are due by then, the longest due first, without those of the recipients `besides`."""
        ...

    async def next_due(self, after_ms: int) -> int | None:
        """The earliest due time after this one."""
        ...

    async def advance(self, lane: Lane) -> bool:
        """Replace the lane, durable before it returns; its target stays if it has been raised meanwhile.

        False, and nothing is written, if the lane does not exist.
        """
        ...

    async def finish(self, chat_id: str, recipient: str, through: int) -> bool:
        """Everything up to here was delivered: remove the lane. False if its target is higher."""
        ...

    async def forget(self, recipient: str) -> None:
        """Remove all lanes of a recipient. Durable before it returns."""
        ...


class DeadLetters(Protocol):
    """Messages that could not be delivered, until they expire."""

    async def add(self, letter: DeadLetter) -> bool:
        """Durable before it returns. False, and nothing changes, if its id is known."""
        ...

    async def find(self, selection: Selection, before_id: str, limit: int) -> list[DeadLetter]:
        """Those selected, the highest id first: those with a lower id than `before_id`, if it is given."""
        ...

    async def count(self, selection: Selection) -> dict[str, int]:
        """How many are selected, by error."""
        ...

    async def queue(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        """Those selected that are pending and not queued wait for their replay, with retry count 0.

        All of them or none, durable before it returns. Returns how many. `event` is added to their history.
        """
        ...

    async def discard(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        """Those selected that are pending have failed permanently, also if they were queued. As `queue`."""
        ...

    async def queued(self, limit: int) -> list[DeadLetter]:
        """The first `limit` queued letters of each recipient and chat, by recipient, chat and sequence."""
        ...

    async def settle(self, letter: DeadLetter) -> bool:
        """Replace a letter, durable before it returns.

        False, and nothing is written, unless the stored version is the letter's: somebody was faster.
        """
        ...

    async def expire(self, before_ms: int) -> int:
        """Delete what has not changed since then and is not queued; returns how many."""
        ...


class Webhooks(Protocol):
    """The webhooks of integrators."""

    async def add(self, webhook: Webhook) -> None:
        """Durable before it returns."""
        ...

    async def all(self) -> list[Webhook]:
        """Every webhook, the oldest first. Read strongly."""
        ...

    async def remove(self, webhook_id: str) -> bool:
        """Durable before it returns; False if there is none."""
        ...


class DeliveryStore(Protocol):
    """The ports of deliveries."""

    @property
    def lanes(self) -> Lanes:
        """See `Lanes`."""
        ...

    @property
    def dead_letters(self) -> DeadLetters:
        """See `DeadLetters`."""
        ...

    @property
    def webhooks(self) -> Webhooks:
        """See `Webhooks`."""
        ...
