"""The second half of the engine contract: what commands need. See `store/ports.py` for what serves.

Each port may be used without `Engine.open`, beside a server or instead of one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from parley.model import StoredEntry
from parley.store.invariants import Breach
from parley.store.records import ChatRecord, Record
from parley.store.rows import (
    ChatRow,
    KeyRow,
    LogChunk,
    MemberRow,
    PositionRow,
    Remains,
    Repair,
)


class Inspection(Protocol):
    """The rows that `parley.checks` checks, streamed page by page. May be used without `Engine.open`.

    The engine yields rows unchanged, however broken, and writes nothing. Servers may run meanwhile. A page is
    a snapshot. If a page may hold half of a transaction, the engine reads rows that seem broken again, for
    longer than a transaction takes, before it yields them. So a temporary state is never reported.
    `StoreUnreadable`: the check cannot continue.
    """

    not_shown: frozenset[str]
    """The invariants that this engine cannot break, or whose breach leaves no trace in it."""
    chats_at_once_max: int
    """How many chats are read at the same time."""

    async def chat_count(self) -> int:
        """How many chats there are. It may be some hours old."""
        ...

    def chats(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[ChatRow]]:
        """Every chat, or those in `chat_ids` that exist."""
        ...

    def members(self, chat: ChatRow) -> AsyncIterator[list[MemberRow]]:
        """The members of a chat, in the order of their ids."""
        ...

    def log(self, chat: ChatRow) -> AsyncIterator[LogChunk]:
        """The entries of a chat above what was trimmed, in the order of their numbers; at least one chunk.

        The counter of the last chunk is at least as new as all entries before it.
        """
        ...

    def keys(self, chat: ChatRow) -> AsyncIterator[list[KeyRow]]:
        """The idempotency keys of a chat, in the order of the keys."""
        ...

    def positions(self, chat_ids: Sequence[str] | None) -> AsyncIterator[list[PositionRow]]:
        """The positions of devices and people, in every existing chat, or of the members of these.

        Rows of a chat that does not exist may be among them, as stored.
        """
        ...

    def own_breaches(self, chat_ids: Sequence[str] | None, *, whole: bool) -> AsyncIterator[Breach]:
        """Breaches that only this engine can have: of its schema, its file, orphaned rows.

        `whole`: includes checks that take long on a big store. With `chat_ids`: only breaches of these chats.
        """
        ...


class Repairs(Protocol):
    """The recovery of lost counters: `checks.recovery` decides, the engine writes.

    May be used without `Engine.open`. NoSuchChat if there is no such chat.
    """

    may_raise: bool
    """Whether recovery raises a counter that fell behind its log: true where another service holds the
    counter and may lose data. A counter in the engine's own tables never falls back by itself."""

    async def chats_without_counter(self) -> list[str]:
        """The chats that refuse sends: their counter is missing, or has fallen back and may be raised."""
        ...

    async def remains(self, chat_id: str) -> Remains:
        """The highest number in each table, read strongly."""
        ...

    async def holes(self, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges from `first` to `last` of numbers that are neither entry nor void nor known as open."""
        ...

    async def write(self, repair: Repair) -> int:
        """Write voids and counter, durable before it returns. Returns the counter's value. May be repeated.

        Voids are written before the counter or with it, and never over an entry. An existing counter is never
        overwritten, unless it may be raised. CounterMissingError if a counter was restored or lost since
        the remains were read. Running servers notice the change.
        """
        ...

    def how_to_delete_counter(self, chat_id: str) -> str:
        """The command with which an operator deletes a counter that is wrong."""
        ...


class Transfer(Protocol):
    """The rows that are no records, read and written as they are: for `parley copy` and after a restore.

    May be used without `Engine.open`, by one command at a time. No server runs on the store meanwhile.
    """

    def chats(self, chat_ids: Sequence[str] | None = None) -> AsyncIterator[list[ChatRecord]]:
        """Every chat, or those of these that exist, page by page. Beside a server, too."""
        ...

    def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        """All members, states of members, cursors or lanes, page by page, in an order of the engine's own."""
        ...

    async def put(self, records: Sequence[Record]) -> None:
        """Write records of one kind as they are, durable when it returns; those that are there are replaced.

        What a record refers to was put before it (see `RECORDS`), and each `ChatRecord` before its entries.
        """
        ...

    def positions(self, chat_id: str, after: int) -> AsyncIterator[list[StoredEntry]]:
        """The stored positions of a chat above a number, ascending, page by page. There may be holes."""
        ...

    async def put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        """Write positions, ascending, with the keys that follow from them; durable when it returns.

        The same positions again change nothing. Those up to the end of the last call are all there.
        """
        ...

    async def log_ends(self, chat_ids: Sequence[str]) -> dict[str, int]:
        """The highest stored position of each chat; 0 if it has none."""
        ...

    async def settle(self, groups: Sequence[str], now_ms: int) -> None:
        """Everything in the log counts as done by these groups of workers, and as published.

        An overview with a token of an earlier life of the store lists every chat.
        """
        ...

    async def begin_anew(self, now_ms: int) -> int:
        """Give each chat an epoch that no earlier life of the store gave; returns how many chats.

        At least that of the time in seconds: the same backup may be restored twice. Every device then hears
        of every chat, and starts over. May be repeated.
        """
        ...
