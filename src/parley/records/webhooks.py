"""The webhooks of integrators."""

from __future__ import annotations

import asyncio

from parley.core.deliveries import Webhook
from parley.records.book import Book
from parley.store.ports import Records
from parley.store.tables import WEBHOOKS


class Webhooks(Book[Webhook]):
    """Workers ask for all of them again and again: callers at the same time share a read."""

    def __init__(self, records: Records) -> None:
        super().__init__(records, WEBHOOKS)
        self._reading = asyncio.Lock()
        self._reads_begun = 0
        self._reads_done = 0
        self._known: list[Webhook] = []

    async def all(self) -> list[Webhook]:
        """The oldest first. The read has begun after each of its callers asked."""
        asked = self._reads_begun
        async with self._reading:
            if self._reads_done <= asked:
                self._reads_begun += 1
                self._known = await super().all()
                self._reads_done = self._reads_begun
            return list(self._known)
