"""What operators did. Nothing is ever removed."""

from __future__ import annotations

from parley.model import AuditRecord
from parley.store.ports import Records
from parley.store.tables import AUDIT, ONE_LIST, PutRecord


class AuditLog:
    def __init__(self, records: Records) -> None:
        self._records = records

    async def record(self, record: AuditRecord) -> None:
        """Durable before it returns. The same id again replaces the record."""
        await self._records.commit(AUDIT, [PutRecord(record)])

    async def records(self, before: str, limit: int) -> list[AuditRecord]:
        """The newest records, newest first: those with a lower id than `before`, if that is not empty."""
        return await self._records.page(AUDIT, ONE_LIST, before, limit, newest_first=True)
