"""The `Entries` port on SQLite.

A trim moves the mark and deletes rows in the same transaction, some hundred at a time: messages of others are
written in between. The id of an archived message stays, so that it is found; its idempotency key stays for as
long as one lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec
from msgspec import Struct, field

from parley.clock import MS_PER_DAY, Clock, iso
from parley.errors import StoreBusy, StoreUnavailable
from parley.model import Kind
from parley.store.ports import Replaced
from parley.store.rows import EVERYTHING, ArchiveMark
from parley.store.sqlite import schema
from parley.store.sqlite.chat_state import SqliteChatStates
from parley.store.sqlite.database import Database
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer
from parley.wire.codec import decode_entry
from parley.wire.limits import IDEMPOTENCY_DAYS

TRIMMED_PER_STEP = 500
"""Rows of one transaction: a few milliseconds."""

OF_CHATS = (
    "FROM chats LEFT JOIN chat_archives USING (chat_id) WHERE chat_id IN (SELECT value FROM json_each(?))"
)
MARKS = f"SELECT chat_id, archived_through, trimmed_through, version, manifest {OF_CHATS}"
ADD_MARK = "INSERT OR IGNORE INTO chat_archives (chat_id) SELECT chat_id FROM chats WHERE chat_id = ?"
RECORD = (
    "UPDATE chat_archives SET archived_through = ?, version = ?, manifest = ?"
    " WHERE chat_id = ? AND version = ? AND archived_through <= ?"
)
OLDEST_NEEDED = (
    "SELECT sequence FROM entries WHERE chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?)"
    " AND position > ? ORDER BY sequence LIMIT 1"
)
OLDEST_QUEUE = "SELECT min(next_sequence) FROM lanes WHERE chat_id = ?"
STEP = "SELECT sequence FROM entries WHERE chat_no = ? AND sequence <= ? ORDER BY sequence LIMIT ?"
KEEP_IDS = (
    "INSERT OR IGNORE INTO archived_messages (message_id, chat_no, sequence)"
    " SELECT message_id, chat_no, sequence FROM entries"
    " WHERE chat_no = ? AND sequence <= ? AND message_id IS NOT NULL"
)
KEEP_KEYS = (
    "INSERT OR IGNORE INTO archived_keys (chat_no, client_id, sequence, sender_no, message_id, created_at)"
    " SELECT chat_no, client_id, sequence, sender_no, message_id, CAST(wire AS TEXT) ->> 'created_at'"
    " FROM entries WHERE chat_no = ?1 AND sequence <= ?2 AND client_id IS NOT NULL"
    " AND CAST(wire AS TEXT) ->> 'created_at' >= ?3"
)
FORGET_KEYS = (
    "DELETE FROM archived_keys WHERE (chat_no, client_id) IN"
    " (SELECT chat_no, client_id FROM archived_keys WHERE created_at < ? LIMIT ?)"
)
NOTE_REWRITTEN = (
    f"INSERT INTO rewritten_spans SELECT DISTINCT position / {schema.REWRITTEN_SPAN},"
    " (SELECT coalesce(max(number), 0) + 1 FROM rewritten_spans)"
    " FROM entries WHERE chat_no = ? AND sequence <= ?"
    " ON CONFLICT (span) DO UPDATE SET number = excluded.number"
)
DELETE = "DELETE FROM entries WHERE chat_no = ? AND sequence <= ?"
SET_TRIMMED = "UPDATE chat_archives SET trimmed_through = ?2 WHERE chat_id = ?1 AND trimmed_through < ?2"
REPLACE = (
    "UPDATE entries SET wire = ?1, kind = ?2 WHERE sequence = ?3 AND wire = coalesce(?4, wire)"
    " AND chat_no = (SELECT chat_no FROM chats WHERE chat_id = ?5)"
)
TOUCH = "UPDATE chat_counters SET change = ? WHERE chat_id = ?"

encode = msgspec.json.Encoder().encode


class Scrubbing(Struct):
    """What the next look at the file looks for."""

    leftovers: list[bytes] = field(default_factory=list)
    is_done: bool = False


class SqliteEntries:
    def __init__(
        self, reads: Reads, writer: Writer, states: SqliteChatStates, database: Database, clock: Clock
    ) -> None:
        self._reads = reads
        self._writer = writer
        self._states = states
        self._database = database
        self._clock = clock
        self._cleaning = asyncio.Lock()
        self._wanted = Scrubbing()

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]:
        return {
            chat_id: ArchiveMark(
                archived_through=archived or 0,
                trimmed_through=trimmed or 0,
                version=version or 0,
                manifest=manifest or "",
            )
            for chat_id, archived, trimmed, version, manifest in self._of(MARKS, chat_ids)
        }

    def _of(self, sql: str, chat_ids: Sequence[str]) -> list[tuple[Any, ...]]:
        return self._reads.rows(sql, (encode(list(chat_ids)).decode(),))

    async def record(self, chat_id: str, mark: ArchiveMark) -> bool:
        def write(transaction: Transaction) -> bool:
            transaction.execute(ADD_MARK, (chat_id,))
            before, through = transaction.connection.total_changes(), mark.archived_through
            values = (through, mark.version, mark.manifest, chat_id, mark.version - 1, through)
            transaction.execute(RECORD, values)
            return transaction.connection.total_changes() > before

        return await self._writer.run(write)

    async def needed_from(self, chat_id: str) -> int:
        """Offsets that were noted and not yet written count as not done."""
        found = [EVERYTHING]
        offsets = self._reads.row("SELECT min(position) FROM consumer_offsets")
        if offsets is not None and offsets[0] is not None:
            entry = self._reads.row(OLDEST_NEEDED, (chat_id, offsets[0]))
            found += [entry[0]] if entry is not None else []
        queue = self._reads.row(OLDEST_QUEUE, (chat_id,))
        return int(min(found + ([queue[0]] if queue is not None and queue[0] is not None else [])))

    async def trim(self, chat_id: str, through: int) -> None:
        mark = (await self.marks([chat_id])).get(chat_id, ArchiveMark())
        if mark.archived_through < through:
            return
        horizon = iso(self._clock() - IDEMPOTENCY_DAYS * MS_PER_DAY)
        is_more = True
        while is_more:  # each step is a transaction, and others write in between
            is_more = await self._writer.run(lambda tx: self._trim(tx, chat_id, through, horizon))

    def _trim(self, transaction: Transaction, chat_id: str, through: int, horizon: str) -> bool:
        """One step; returns whether there may be more. Memory follows at once: later jobs of this
        transaction must not write where it has deleted."""
        state = self._states.within(transaction.execute, chat_id)
        if state is None:
            return False
        execute, chat_no = transaction.execute, state.chat_no
        rows: list[Any] = execute(STEP, (chat_no, through, TRIMMED_PER_STEP)).fetchall()
        last = rows[-1][0] if len(rows) == TRIMMED_PER_STEP else through
        execute(KEEP_IDS, (chat_no, last))
        execute(KEEP_KEYS, (chat_no, last, horizon))
        execute(FORGET_KEYS, (horizon, TRIMMED_PER_STEP))
        execute(NOTE_REWRITTEN, (chat_no, last))
        execute(DELETE, (chat_no, last))
        execute(SET_TRIMMED, (chat_id, last))
        state.trimmed = max(state.trimmed, last)
        state.has_archived_keys = True
        return last < through

    async def replace(self, chat_id: str, entries: Mapping[int, Replaced]) -> list[int]:
        def write(transaction: Transaction) -> list[int]:
            done = []
            for sequence, new in entries.items():
                transaction.execute(REPLACE, (new.after, _kind_of(new.after), sequence, new.before, chat_id))
                if transaction.connection.changes():
                    done.append(sequence)
            if done:
                transaction.execute(TOUCH, (transaction.change, chat_id))
            return done

        return await self._writer.run(write)

    async def scrub(self, leftovers: Sequence[bytes] | None = None) -> None:
        """Without leftovers rewrite the file, and empty the write-ahead log. Writers wait meanwhile.

        `secure_delete` overwrites what is deleted, but pages that were rearranged before may have a copy.
        Those who wait for a look at the file share the next: each reads all of it.
        """
        run = asyncio.get_running_loop().run_in_executor
        if leftovers is None:
            await run(None, self._scrub, None)
            return
        wanted = self._wanted
        wanted.leftovers += leftovers
        async with self._cleaning:
            if not wanted.is_done:
                self._wanted = Scrubbing()
                await run(None, self._scrub, wanted.leftovers)
                wanted.is_done = True

    def _scrub(self, leftovers: Sequence[bytes] | None) -> None:
        try:
            if leftovers is None:
                self._database.rewrite()
            else:
                self._database.clean(leftovers)
        except apsw.BusyError as error:
            raise StoreBusy("another program uses the store; what was removed may still be in it") from error
        except (apsw.Error, OSError) as error:
            raise StoreUnavailable(f"the store cannot be rewritten: {error}") from error


def _kind_of(wire: bytes) -> int:
    """Whether it counts as unread."""
    entry = decode_entry(wire)
    is_message = entry.kind == Kind.MESSAGE.value and entry.deleted is not True
    return schema.MESSAGE if is_message else schema.OTHER
