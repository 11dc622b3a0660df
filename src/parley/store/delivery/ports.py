"""What an engine must keep so that it can deliver to others. See docs/delivery.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from parley.store.delivery.rows import Lane, LaneClaim


class Lanes(Protocol):
    """The recipients that are not up to date, by chat. A lane holds positions, never messages.

    A worker runs a lane only while it has claimed it. Workers of one kind share a prefix of the ids of their
    recipients.
    """

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: LaneClaim | None = None
    ) -> list[Lane]:
        """These recipients are owed the positions from `first` to `last`; durable before it returns.

        An existing lane only gets a higher target: its front, its retries, its claim and its due time stay.
        Returns the new lanes, which are due at once, or belong to the claim if there is one.
        """
        ...

    async def due(self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()) -> list[Lane]:
        """Lanes that are due by then, without those of the recipients `besides`.

        Not more than `limit`, in no order, but none is left out for ever. A lane with a claim is due when
        the claim has run out: its worker died, or is too slow.
        """
        ...

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        """The earliest due time after this one."""
        ...

    async def claim(self, chat_id: str, recipient: str, claim: LaneClaim, now_ms: int) -> Lane | None:
        """Take a lane that is due, durable before it returns. Of several workers one gets it.

        Returns the lane as it was before, with the claim that ran out, if there was one. None: it is not due.
        """
        ...

    async def advance(self, lane: Lane, token: str) -> Lane | None:
        """Replace the lane, except its target, which only `extend` raises. Durable before it returns.

        Returns it as it is stored. None, and nothing is written, unless the lane's claim is `token`.
        """
        ...

    async def finish(self, lane: Lane) -> bool:
        """Everything up to its target was delivered: remove the lane.

        False if its target is higher by now, or the claim is another one.
        """
        ...

    async def forget(self, recipient: str) -> None:
        """Remove all lanes of a recipient. Durable before it returns."""
        ...
