"""The `Amendments` port on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import apsw
from msgspec import Struct, field

from parley.errors import StoreBusy, StoreUnavailable
from parley.model import Kind
from parley.store.amendments import AmendmentNote, MessageMark
from parley.store.sqlite import schema
from parley.store.sqlite.database import Database
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer
from parley.wire.codec import decode_entry

BEGIN = "INSERT OR IGNORE INTO amendments (chat_id, client_id, target, since_ms) VALUES (?, ?, ?, ?)"
UNDER_WAY = "SELECT chat_id, client_id, target, since_ms FROM amendments"
FINISH = "DELETE FROM amendments WHERE chat_id = ? AND client_id = ?"
MARK = (
    "INSERT INTO message_marks (chat_id, target, name, sequence, is_on) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (chat_id, target, name) DO UPDATE SET sequence = excluded.sequence, is_on = excluded.is_on"
    " WHERE excluded.sequence > sequence"
)
MARKS = "SELECT name, sequence, is_on FROM message_marks WHERE chat_id = ? AND target = ? ORDER BY name"
REPLACE = (
    "UPDATE entries SET wire = ?, kind = ? WHERE sequence = ? AND wire = ?"
    " AND chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?)"
)
TOUCH = "UPDATE chat_counters SET change = ? WHERE chat_id = ?"


class Scrubbing(Struct):
    """What the next look at the file looks for."""

    traces: list[bytes] = field(default_factory=list)
    is_done: bool = False


class SqliteAmendments:
    def __init__(self, reads: Reads, writer: Writer, database: Database) -> None:
        self._reads = reads
        self._writer = writer
        self._database = database
        self._cleaning = asyncio.Lock()
        self._wanted = Scrubbing()

    async def begin(self, note: AmendmentNote) -> None:
        await self._write(BEGIN, note.chat_id, note.client_key, note.target, note.since_ms)

    async def under_way(self, chat_id: str | None = None) -> list[AmendmentNote]:
        rows = (
            self._reads.rows(UNDER_WAY)
            if chat_id is None
            else self._reads.rows(f"{UNDER_WAY} WHERE chat_id = ?", (chat_id,))
        )
        return [AmendmentNote(*row) for row in rows]

    async def mark(self, chat_id: str, marks: Sequence[MessageMark]) -> None:
        rows = [(chat_id, mark.target, mark.name, mark.sequence, mark.is_on) for mark in marks]
        await self._writer.run(lambda transaction: transaction.executemany(MARK, rows))

    async def finish(self, note: AmendmentNote) -> None:
        await self._write(FINISH, note.chat_id, note.client_key)

    async def _write(self, sql: str, *values: str | bytes | int) -> None:
        def work(transaction: Transaction) -> None:
            transaction.execute(sql, values)

        await self._writer.run(work)

    async def marks(self, chat_id: str, target: int) -> list[MessageMark]:
        rows = self._reads.rows(MARKS, (chat_id, target))
        return [MessageMark(target, name, sequence, bool(is_on)) for name, sequence, is_on in rows]

    async def replace(self, chat_id: str, sequence: int, before: bytes, after: bytes) -> bool:
        entry = decode_entry(after)
        counts = entry.kind == Kind.MESSAGE.value and entry.deleted is not True
        values = (after, schema.MESSAGE if counts else schema.OTHER, sequence, before, chat_id)

        def work(transaction: Transaction) -> bool:
            changes = transaction.connection.total_changes()
            transaction.execute(REPLACE, values)
            if transaction.connection.total_changes() == changes:
                return False
            transaction.execute(TOUCH, (transaction.change, chat_id))
            return True

        return await self._writer.run(work)

    async def scrub(self, traces: Sequence[bytes]) -> None:
        """Those who wait for one share the next: each reads the whole file."""
        wanted = self._wanted
        wanted.traces += traces
        async with self._cleaning:
            if not wanted.is_done:
                self._wanted = Scrubbing()
                await asyncio.get_running_loop().run_in_executor(None, self._clean, wanted.traces)
                wanted.is_done = True

    def _clean(self, traces: Sequence[bytes]) -> None:
        try:
            self._database.clean(traces)
        except apsw.BusyError as error:
            raise StoreBusy("another program uses the store; what was removed may still be in it") from error
        except (apsw.Error, OSError) as error:
            raise StoreUnavailable(f"the store cannot be cleaned: {error}") from error
