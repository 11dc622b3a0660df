"""The `Attachments` port on SQLite."""

from __future__ import annotations

import msgspec

from parley.core.attachments import CHARGED_BYTES_MIN, Attachment, AttachmentState
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer

NAMES = tuple(field.name for field in msgspec.structs.fields(Attachment))
KEY = ("chat_id", "attachment_id")
COLUMNS = ", ".join(NAMES)
SELECT = f"SELECT {COLUMNS} FROM attachments"
ADD = f"INSERT INTO attachments ({COLUMNS}) VALUES ({', '.join('?' * len(NAMES))})"
SWAP = (
    f"UPDATE attachments SET {', '.join(f'{name} = ?' for name in NAMES)}"
    f" WHERE ({COLUMNS}) = ({', '.join('?' * len(NAMES))})"
)
CHARGED = "SELECT coalesce(sum(max(size, ?)), 0) FROM attachments WHERE user_id = ?"


class SqliteAttachments:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def add(self, attachment: Attachment) -> None:
        await self._writer.run(lambda tx: tx.execute(ADD, _values(attachment)))

    async def get(self, chat_id: str, attachment_id: str) -> Attachment | None:
        row = self._reads.row(f"{SELECT} WHERE chat_id = ? AND attachment_id = ?", (chat_id, attachment_id))
        return _attachment_of(row) if row else None

    async def swap(self, before: Attachment, after: Attachment) -> bool:
        def work(tx: Transaction) -> bool:
            tx.execute(SWAP, (*_values(after), *_values(before)))
            return tx.connection.changes() == 1

        return await self._writer.run(work)

    async def remove(self, attachment: Attachment) -> None:
        sql = "DELETE FROM attachments WHERE chat_id = ? AND attachment_id = ?"
        await self._writer.run(lambda tx: tx.execute(sql, (attachment.chat_id, attachment.attachment_id)))

    async def unsettled(self) -> list[Attachment]:
        rows = self._reads.rows(f"{SELECT} WHERE state <> '{AttachmentState.ATTACHED.value}'")
        return [_attachment_of(row) for row in rows]

    async def charged_bytes(self, user_id: str) -> int:
        row = self._reads.row(CHARGED, (CHARGED_BYTES_MIN, user_id))
        return int(row[0]) if row else 0


def _values(attachment: Attachment) -> tuple[str | int | bytes, ...]:
    return tuple(getattr(attachment, name) for name in NAMES)


def _attachment_of(row: Row) -> Attachment:
    return msgspec.convert(dict(zip(NAMES, row, strict=True)), Attachment)
