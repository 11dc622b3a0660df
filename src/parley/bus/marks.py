"""How far each chat is on the bus, as the store has it, for whoever must start somewhere."""

from __future__ import annotations

import asyncio

from parley.store.ports import Outbox


class Marks:
    """One look at the store's list serves everybody who asked for it before it began."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._looking: asyncio.Task[dict[str, int]] | None = None
        self._next: asyncio.Task[dict[str, int]] | None = None

    async def listed(self) -> dict[str, int]:
        """The chats with unpublished entries and their marks, as of some moment after this call."""
        if self._next is None:
            self._next = asyncio.create_task(self._look(self._looking))
            self._next.add_done_callback(_seen)
        return await asyncio.shield(self._next)

    async def _look(self, before: asyncio.Task[dict[str, int]] | None) -> dict[str, int]:
        if before is not None:
            await asyncio.wait([before])
        self._looking, self._next = self._next, None
        return await self._outbox.unpublished()


def _seen(task: asyncio.Task[dict[str, int]]) -> None:
    """Whoever asked may have gone: then nobody misses the answer, nor the error."""
    if not task.cancelled():
        task.exception()
