"""The `SearchIndex` on FTS5: a file of its own beside any engine, so that no writer of a log waits for it.

A text has the rowid `chat_no << 32 | sequence`: the messages of a chat are one range, in their order, and a
search reads the newest of a chat without looking at others. All writes run on one thread of low priority,
whole batches in one statement, so that the event loop keeps its turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
import structlog

from parley.core.search import (
    HIT_BEGINS,
    HIT_ENDS,
    LEFT_OUT,
    SNIPPET_WORDS,
    HitPlace,
    IndexBatch,
    joined,
    separated,
)
from parley.errors import BUSY, Refused, StoreUnavailable
from parley.search.index import IndexPosition
from parley.store.folder import FOLDER_MODE, SEARCH_NAME, create_private
from parley.wire.limits import SEQUENCE_MAX

T = TypeVar("T")

VERSION = 1
SEQUENCE_BITS = 32
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1
FIND_THREADS = 2
FINDS_WAITING_MAX = 64
FIND_SECONDS_MAX = 2.0
"""A search that takes longer is ended: no words of anybody may keep the threads."""
BUSY_MS_MAX = 5_000
WRITER_NICENESS = 5
CACHE_KIB = 16 * 1024
WAL_PAGES_PER_CHECKPOINT = 4_000
CHECKPOINT_TRIES_MAX = 50
CHECKPOINT_PAUSE_SECONDS = 0.05
RARE_HITS_MAX = 1_000
SCAN_BYTES = 1024 * 1024
SCANNED_FOR_MAX = 32
"""Removed texts whose copies are looked for; for more, the file is written anew at once."""
TRACE_BYTES_MAX = 17
REMOVED_AT_ONCE = 200
"""Rows that one transaction removes: each costs milliseconds, and others wait."""

RULES = "tokenize = 'unicode61 remove_diacritics 2'"
SCHEMA = f"""
CREATE TABLE chats (
    chat_no INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_id TEXT NOT NULL UNIQUE,
    epoch INTEGER NOT NULL,
    through INTEGER NOT NULL,
    at INTEGER NOT NULL
);
CREATE TABLE forgotten (chat_no INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE texts USING fts5(
    begins UNINDEXED, body, ends UNINDEXED, at UNINDEXED, prefix = '2 3', {RULES}
);
INSERT INTO texts (texts, rank) VALUES ('secure-delete', 1);
PRAGMA user_version = {VERSION};
"""
MATCHER = f"CREATE VIRTUAL TABLE texts USING fts5(body, {RULES})"

POSITIONS = "SELECT chat_id, epoch, through, at FROM chats"
OF_CHATS = " WHERE chat_id IN (SELECT value FROM json_each(?))"
NUMBERS = "SELECT chat_id, chat_no FROM chats" + OF_CHATS
CHAT = "SELECT chat_no, epoch, through FROM chats WHERE chat_id = ?"
ADD_CHAT = "INSERT INTO chats (chat_id, epoch, through, at) VALUES (?, ?, 0, 0)"
MOVE = "UPDATE chats SET through = ?, at = ? WHERE chat_no = ?"
ADD = (
    "INSERT OR REPLACE INTO texts (rowid, at, body, begins, ends)"
    " SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?)"
)
CHANGE = "UPDATE texts SET body = ? WHERE rowid = ?"
THERE = "SELECT id FROM texts_content WHERE id IN (SELECT value FROM json_each(?))"
REMOVE = "DELETE FROM texts WHERE rowid = ?"
RANGE = "SELECT id FROM texts_content WHERE id BETWEEN ? AND ? ORDER BY id"
FIND = (
    "SELECT rowid, at FROM texts WHERE texts MATCH ? AND rowid BETWEEN ? AND ? AND at <= ?"
    " ORDER BY rowid DESC LIMIT ?"
)
ALL = "SELECT rowid, at FROM texts WHERE texts MATCH ? LIMIT ?"
MATCH = "SELECT rowid, snippet(texts, 0, ?, ?, ?, ?) FROM texts WHERE texts MATCH ?"

log = structlog.get_logger("parley.store")
encode = msgspec.json.Encoder().encode


class Stop:
    """Ends a search from another thread."""

    def __init__(self) -> None:
        self.is_set = False
        self.connection: apsw.Connection | None = None

    def set(self) -> None:
        self.is_set = True
        if self.connection is not None:
            self.connection.interrupt()


class FtsIndex:
    """`folder`: where its file is. `damaged` is called when the file was replaced by an empty one."""

    def __init__(self, folder: Path, damaged: Callable[[], None] = lambda: None) -> None:
        self.path = folder / SEARCH_NAME
        self._damaged = damaged
        self._writing = ThreadPoolExecutor(1, "parley-index", _yield_to_others)
        self._finding = ThreadPoolExecutor(FIND_THREADS, "parley-search")
        self._waiting = 0
        self._life = 0
        """Rises when the file is replaced: connections of before see another one."""
        self._writer: apsw.Connection | None = None
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        self._is_closed = False
        self._uncleaned: set[int] = set()
        """Rows that were removed, and that a file may still have a copy of. Of the writing thread."""

    # Life

    async def open(self) -> None:
        """Open the file, or make a new one. StoreUnavailable if the folder cannot be written to."""
        with contextlib.suppress(StoreUnavailable):  # a damaged file was replaced
            await self._write(lambda _: None)
        await self._write(lambda _: None)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._finding.shutdown(wait=False, cancel_futures=True)
        for reader in list(self._readers):
            with contextlib.suppress(apsw.Error):
                reader.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._writing, self._close)
        self._writing.shutdown(wait=False, cancel_futures=True)

    def _close(self) -> None:
        """The writer last: who closes the last connection leaves no write-ahead log behind."""
        self._finding.shutdown(wait=True)
        for reader in self._readers:
            with contextlib.suppress(apsw.Error):
                reader.close(True)
        if self._writer is not None:
            with contextlib.suppress(apsw.Error):
                self._writer.close(True)

    def _open(self) -> apsw.Connection:
        """On the writing thread."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        create_private(self.path)
        connection = self._connect()
        connection.pragma("journal_mode", "wal")
        version = connection.pragma("user_version")
        if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchall():
            connection.execute(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT")
        elif version != VERSION:
            connection.close(True)
            raise apsw.CorruptError(f"the index has the format {version}, not {VERSION}")
        return connection

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(BUSY_MS_MAX)
        connection.pragma("synchronous", "normal")
        connection.pragma("secure_delete", True)
        connection.pragma("cache_size", -CACHE_KIB)
        connection.pragma("wal_autocheckpoint", WAL_PAGES_PER_CHECKPOINT)
        return connection

    def _replace(self, error: apsw.Error) -> None:
        """On the writing thread: nothing can be read from the file, so begin with a new one."""
        log.error("the search index is damaged; it is made again from the log", error=str(error))
        if self._writer is not None:
            with contextlib.suppress(apsw.Error):
                self._writer.close(True)
        self._writer = None
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        self._writer = self._open()
        self._uncleaned.clear()
        self._life += 1
        self._damaged()

    # Writing

    async def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run a transaction on the writing thread."""
        return await self._on(self._writing, lambda: self._transact(work))

    def _transact(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            if self._writer is None:
                self._writer = self._open()
            with contextlib.ExitStack() as stack:
                self._writer.execute("BEGIN IMMEDIATE")
                stack.callback(self._roll_back)
                result = work(self._writer)
                self._writer.execute("COMMIT")
                return result
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._replace(error)
            raise StoreUnavailable("the search index was damaged, and is made again") from error

    def _roll_back(self) -> None:
        if self._writer is not None and self._writer.in_transaction:
            with contextlib.suppress(apsw.Error):
                self._writer.execute("ROLLBACK")

    async def _on(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._is_closed:
            raise StoreUnavailable("the search index is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except (apsw.Error, OSError, RuntimeError) as error:
            raise StoreUnavailable(f"the search index {self.path.name} cannot be used: {error}") from error

    async def apply(self, chat_id: str, batch: IndexBatch) -> bool:
        removed = await self._write(lambda connection: _apply(connection, chat_id, batch))
        if removed:
            with contextlib.suppress(StoreUnavailable):  # the next one cleans after both
                await self._on(self._writing, lambda: self._clean(removed, tries_max=1))
        return removed is not None

    async def reset(self, chat_id: str, epoch: int | None) -> None:
        """The chat gets another number at once; what it had is removed little by little."""

        def begin(connection: apsw.Connection) -> None:
            row = connection.execute(CHAT, (chat_id,)).fetchone()
            if row is not None:
                connection.execute("INSERT INTO forgotten (chat_no) VALUES (?)", (row[0],))
                connection.execute("DELETE FROM chats WHERE chat_no = ?", (row[0],))
            if epoch is not None:
                connection.execute(ADD_CHAT, (chat_id, epoch))

        await self._write(begin)
        await self.collect()

    async def collect(self) -> None:
        """Remove what is left of chats that were forgotten."""
        while await self._write(_collect):
            pass
        await self._on(self._writing, lambda: self._empty_log(tries_max=1))

    async def remove(self, chat_id: str, sequences: Iterable[int]) -> None:
        left, removed = sorted(set(sequences)), list[int]()
        while left:
            some, left = left[:REMOVED_AT_ONCE], left[REMOVED_AT_ONCE:]
            removed += await self._write(partial(_remove, chat_id=chat_id, sequences=some))
        if not await self._on(self._writing, lambda: self._clean(removed, CHECKPOINT_TRIES_MAX)):
            raise StoreUnavailable("the write-ahead log of the search index is in use")

    def _clean(self, removed: Sequence[int], tries_max: int) -> bool:
        """Whether no file has the texts of these rows any more. On the writing thread.

        What is deleted is overwritten in its place, but a page whose rows were moved before may have a copy.
        That is rare: only then, and for very many rows, is the file written anew.
        """
        self._uncleaned.update(removed)
        removed = sorted(self._uncleaned)
        traces = [trace.encode() for rowid in removed for trace in _traces(rowid)]
        is_empty = self._empty_log(tries_max)
        if len(removed) > SCANNED_FOR_MAX or _holds(self.path, traces):
            assert self._writer is not None
            self._writer.execute("VACUUM")
            is_empty = self._empty_log(tries_max)
        if is_empty:
            self._uncleaned.clear()
        return is_empty

    def _empty_log(self, tries_max: int) -> bool:
        """Bring everything from the write-ahead log to the file, and truncate the log."""
        for attempt in range(tries_max):
            if attempt:
                time.sleep(CHECKPOINT_PAUSE_SECONDS)
            with contextlib.suppress(apsw.BusyError):
                assert self._writer is not None
                if self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0):
                    return True
        return False

    # Reading

    async def positions(self, chat_ids: Sequence[str] | None = None) -> dict[str, IndexPosition]:
        def work(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            if chat_ids is None:
                return connection.execute(POSITIONS).fetchall()
            return connection.execute(POSITIONS + OF_CHATS, (_json(chat_ids),)).fetchall()

        return {chat_id: IndexPosition(*rest) for chat_id, *rest in await self._read(work)}

    async def sequences(self, chat_id: str, after: int, through: int) -> list[int]:
        def work(connection: apsw.Connection) -> list[int]:
            row = connection.execute(CHAT, (chat_id,)).fetchone()
            if row is None:
                return []
            bounds = (_rowid(row[0], after + 1), _rowid(row[0], through))
            return [rowid & SEQUENCE_MASK for (rowid,) in connection.execute(RANGE, bounds)]

        return await self._read(work)

    async def find(
        self, expression: str, chat_ids: Sequence[str], before: HitPlace | None, limit: int
    ) -> list[HitPlace]:
        stop = Stop()
        return await self._timely(
            stop,
            lambda: self._reading(lambda one: _find(one, stop, expression, chat_ids, before, limit), stop),
        )

    async def match(self, expression: str, texts: Sequence[str]) -> list[str | None]:
        stop = Stop()
        return await self._timely(stop, lambda: _match(self._matcher(stop), expression, texts))

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._on(self._finding, lambda: self._reading(work))

    async def _timely(self, stop: Stop, work: Callable[[], T]) -> T:
        """Run it on a thread for searches, within the time that one may take."""
        if self._waiting >= FINDS_WAITING_MAX:
            raise Refused(BUSY)
        self._waiting += 1
        try:
            async with asyncio.timeout(FIND_SECONDS_MAX):
                return await self._on(self._finding, work)
        except TimeoutError:
            raise Refused(BUSY.because("this search takes too long; use longer or more words")) from None
        finally:
            stop.set()
            self._waiting -= 1

    def _reading(self, work: Callable[[apsw.Connection], T], stop: Stop | None = None) -> T:
        """On a thread for searches, with its own connection."""
        try:
            connection = self._reader()
            if stop is not None:
                stop.connection = connection
            try:
                return work(connection)
            finally:
                if stop is not None:
                    stop.connection = None
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._local.life = -1
            self._writing.submit(self._replace, error)
            raise StoreUnavailable("the search index was damaged, and is made again") from error

    def _reader(self) -> apsw.Connection:
        if getattr(self._local, "life", -1) != self._life:
            if (before := getattr(self._local, "reader", None)) is not None:
                self._readers.remove(before)
                before.close(True)
            self._local.reader = self._connect()
            self._readers.append(self._local.reader)
            self._local.reader.pragma("query_only", True)
            self._local.life = self._life
        connection: apsw.Connection = self._local.reader
        return connection

    def _matcher(self, stop: Stop) -> apsw.Connection:
        if not hasattr(self._local, "matcher"):
            self._local.matcher = apsw.Connection(":memory:")
            self._local.matcher.execute(MATCHER)
        connection: apsw.Connection = self._local.matcher
        stop.connection = None
        return connection


def _rowid(chat_no: int, sequence: int) -> int:
    return chat_no << SEQUENCE_BITS | min(sequence, SEQUENCE_MASK)


def _json(values: object) -> str:
    return encode(values).decode()


def _traces(rowid: int) -> tuple[str, str]:
    """What stands before and behind a text in the file: by it a copy is found that was left behind."""
    return f"\x02{rowid:016x}", f"{rowid:016x}\x03"


def _holds(path: Path, traces: Sequence[bytes]) -> bool:
    """Whether a file has one of these. It is read in parts: others run meanwhile."""
    before = b""
    if not traces:
        return False
    with path.open("rb") as file:
        while part := file.read(SCAN_BYTES):
            view = before + part
            if any(trace in view for trace in traces):
                return True
            before = view[-TRACE_BYTES_MAX:]
    return False


def _apply(connection: apsw.Connection, chat_id: str, batch: IndexBatch) -> list[int] | None:
    """The rows that were removed; None if the batch does not begin where the index ends."""
    row = connection.execute(CHAT, (chat_id,)).fetchone()
    if row is None and batch.after == 0:
        connection.execute(ADD_CHAT, (chat_id, batch.epoch))
        row = connection.execute(CHAT, (chat_id,)).fetchone()
    if row is None or (row[1], row[2]) != (batch.epoch, batch.after) or batch.through > SEQUENCE_MASK:
        return None
    chat_no = row[0]
    if batch.added:
        rows = [(row := _rowid(chat_no, n), at, text, *_traces(row)) for n, (at, text) in batch.added.items()]
        connection.execute(ADD, (_json(rows),))
    for sequence, body in batch.changed.items():
        connection.execute(CHANGE, (body, _rowid(chat_no, sequence)))
    connection.execute(MOVE, (batch.through, batch.at, chat_no))
    return _removed(connection, [_rowid(chat_no, sequence) for sequence in batch.removed])


def _remove(connection: apsw.Connection, chat_id: str, sequences: Sequence[int]) -> list[int]:
    row = connection.execute(CHAT, (chat_id,)).fetchone()
    return [] if row is None else _removed(connection, [_rowid(row[0], n) for n in sequences])


def _removed(connection: apsw.Connection, rowids: Sequence[int]) -> list[int]:
    """Remove rows; returns those that were there."""
    rows: list[Any] = connection.execute(THERE, (_json(rowids),)).fetchall() if rowids else []
    connection.executemany(REMOVE, rows)
    return [rowid for (rowid,) in rows]


def _collect(connection: apsw.Connection) -> bool:
    """Remove some rows of a forgotten chat; False if there is none."""
    row = connection.execute("SELECT chat_no FROM forgotten LIMIT 1").fetchone()
    if row is None:
        return False
    bounds = (_rowid(row[0], 0), _rowid(row[0], SEQUENCE_MASK))
    found = connection.execute(f"{RANGE} LIMIT {REMOVED_AT_ONCE}", bounds).fetchall()
    connection.executemany(REMOVE, found)
    if not found:
        connection.execute("DELETE FROM forgotten WHERE chat_no = ?", row)
    return True


def _find(
    connection: apsw.Connection,
    stop: Stop,
    expression: str,
    chat_ids: Sequence[str],
    before: HitPlace | None,
    limit: int,
) -> list[HitPlace]:
    """The newest of each chat first: only the chats with the newest of all are read further."""
    rows: list[Any] = connection.execute(NUMBERS, (_json(chat_ids),)).fetchall()
    numbers: dict[str, int] = dict(rows)

    def of_chat(chat_id: str, most: int) -> list[HitPlace]:
        if stop.is_set:
            raise apsw.InterruptError("it took too long")
        values = (expression, *_bounds(numbers[chat_id], chat_id, before), most)
        found: list[Any] = connection.execute(FIND, values).fetchall()
        return [HitPlace(at, chat_id, rowid & SEQUENCE_MASK) for rowid, at in found]

    chats = list(numbers)
    if len(chats) > limit:
        rare = _rare(connection, expression, {number: chat_id for chat_id, number in numbers.items()})
        if rare is not None:
            below = [place for place in rare if before is None or place < before]
            return sorted(below, reverse=True)[:limit]
        newest = [place for chat_id in chats for place in of_chat(chat_id, 1)]
        chats = [place.chat_id for place in sorted(newest, reverse=True)[:limit]]
    found = [place for chat_id in chats for place in of_chat(chat_id, limit)]
    return sorted(found, reverse=True)[:limit]


def _rare(connection: apsw.Connection, expression: str, chats: dict[int, str]) -> list[HitPlace] | None:
    """All hits in these chats, if there are few hits at all: one look instead of one for each chat."""
    rows: list[Any] = connection.execute(ALL, (expression, RARE_HITS_MAX + 1)).fetchall()
    if len(rows) > RARE_HITS_MAX:
        return None
    return [
        HitPlace(at, chats[rowid >> SEQUENCE_BITS], rowid & SEQUENCE_MASK)
        for rowid, at in rows
        if rowid >> SEQUENCE_BITS in chats
    ]


def _bounds(chat_no: int, chat_id: str, before: HitPlace | None) -> tuple[int, int, int]:
    """The rows of a chat that are below a place, and the highest time of them."""
    last, at_max = SEQUENCE_MASK, SEQUENCE_MAX
    if before is not None and before.chat_id == chat_id:
        last = min(before.sequence - 1, SEQUENCE_MASK)
    elif before is not None:
        at_max = before.at if chat_id < before.chat_id else before.at - 1
    return chat_no << SEQUENCE_BITS, (chat_no << SEQUENCE_BITS) + last, at_max


def _match(connection: apsw.Connection, expression: str, texts: Sequence[str]) -> list[str | None]:
    connection.execute("BEGIN")
    try:
        rows = [(number, separated(text)) for number, text in enumerate(texts, 1)]
        connection.executemany("INSERT INTO texts (rowid, body) VALUES (?, ?)", rows)
        values = (HIT_BEGINS, HIT_ENDS, LEFT_OUT, SNIPPET_WORDS, expression)
        matching: list[Any] = connection.execute(MATCH, values).fetchall()
    finally:
        connection.execute("ROLLBACK")
    found: dict[int, str] = dict(matching)
    return [joined(found[number]) if number in found else None for number, _ in rows]


def _yield_to_others() -> None:
    """The thread of the index gets what the event loop leaves."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), WRITER_NICENESS)
