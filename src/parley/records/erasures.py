"""People whose bodies are to be removed from every log, until that is done."""

from __future__ import annotations

from parley.records.book import Book
from parley.store.ports import Records
from parley.store.tables import ERASURES, PendingErasure


class Erasures:
    def __init__(self, records: Records) -> None:
        self._book = Book(records, ERASURES)

    async def add(self, user_id: str, now_ms: int) -> None:
        """Durable before it returns. May be repeated."""
        await self._book.add(PendingErasure(user_id=user_id, since_ms=now_ms))

    async def pending(self) -> list[str]:
        """Those that are not finished, the oldest first."""
        found = await self._book.all()
        return [one.user_id for one in sorted(found, key=lambda one: (one.since_ms, one.user_id))]

    async def finish(self, user_id: str) -> None:
        """Durable before it returns. May be repeated."""
        await self._book.remove(user_id)
