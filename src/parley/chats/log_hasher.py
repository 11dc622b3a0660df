"""The hashes of logs: computed behind the appends, stored at every 25th position, ready when a page is read.

An append does not hash. A job follows the chats that have news, at a pace that costs less than 2% of a core
and a quarter of that while much is sent, and stores what it computes. A page needs the hash at its end: from
memory, or from the nearest hash before it, which is usually inside the page. A page whose hash would take
long is answered without one, and noted for the job. See docs/proof.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from parley.core import log_hash
from parley.core.jobs import Job
from parley.core.log_hash import LogHash
from parley.errors import StoreError
from parley.model import Head, Page, Persisted
from parley.records.log_hashes import LogHashes
from parley.store.ports import Log
from parley.telemetry import Metrics
from parley.wire.limits import HASHES_STORED_EVERY

STORED_EVERY = HASHES_STORED_EVERY
"""The hash at each multiple of this is stored. A page that ends at one needs no hashing."""
HASHED_PER_PAGE_MAX = 256
"""Positions that one answer may hash, at about 2 µs each."""
PASS_SECONDS = 1.0
PASS_SECONDS_MAX = 600.0
SLICE_ENTRIES = 100
"""What the job hashes without giving way to others."""
STORED_AT_ONCE = 40
"""Hashes that the job stores in one write, if there are so many."""
ENTRIES_PER_SECOND_MAX = 4_000
"""The pace of the job. An entry costs it about 4 µs, so this is less than 2% of a core."""
BUSY_ENTRIES_PER_SECOND = 1_000
"""A node with so many new positions a second is busy. This is the pace then, and the job catches up later."""
RATE_SECONDS = 1.0
"""How long new positions are counted before the pace is chosen again."""
VISIT_ENTRIES = 20
"""What it costs to look at a chat, in entries."""
CHATS_REMEMBERED_MAX = 20_000
"""Chats whose last hash is in memory, and chats that wait for the job."""

assert STORED_EVERY <= HASHED_PER_PAGE_MAX


class News(Struct):
    """A chat that the job has not followed to its end: how far it goes at least, and the time of the news."""

    through: int
    at: float


class Pace:
    """How fast the job may go: slowly while much is sent. Times are those of the event loop."""

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0
        self._is_busy = False

    def note(self, count: int, now: float) -> None:
        """So many positions are new."""
        self._count += count
        elapsed = now - self._since
        if elapsed >= RATE_SECONDS:
            self._is_busy = self._count >= BUSY_ENTRIES_PER_SECOND * elapsed
            self._since, self._count = now, 0

    def pause(self, entries: int, now: float) -> float:
        """How long to wait after a slice of so many entries."""
        self.note(0, now)
        pace = BUSY_ENTRIES_PER_SECOND if self._is_busy else ENTRIES_PER_SECOND_MAX
        return max(entries, VISIT_ENTRIES) / pace


class LogHasher:
    """Subscribe it to the bus, run its `job`, and ask it for the hash of each page."""

    def __init__(self, log: Log, hashes: LogHashes, metrics: Metrics) -> None:
        self._log = log
        self._hashes = hashes
        self._metrics = metrics
        self._last: dict[str, LogHash] = {}
        """The furthest hash of each chat that is known here, stored or not."""
        self._followed: dict[str, int] = {}
        """How far the job has followed each chat."""
        self._news: dict[str, News] = {}
        self._pace = Pace()

    @property
    def job(self) -> Job:
        return Job(
            name="log_hashes",
            does="computes and stores the hashes of the logs that grew",
            run=self.follow_news,
            interval_seconds=PASS_SECONDS,
            timeout_seconds=PASS_SECONDS_MAX,
        )

    # For readers

    async def hash_of(self, page: Page) -> bytes | None:
        """The hash at the end of a page of the log; None if it cannot be had at once."""
        try:
            return await self._hash_of(page)
        except StoreError:  # the page itself was read, and its reader can do without
            return None

    async def stored_through(self, chat_id: str, head: Head) -> int:
        """Up to which position the hash of a log is stored."""
        stored = await self._hashes.last(chat_id, head.epoch, head.sequence)
        return stored.sequence if stored is not None else 0

    async def _hash_of(self, page: Page) -> bytes | None:
        known = await self._nearest(page)
        if page.to_sequence - known.sequence > HASHED_PER_PAGE_MAX:
            self._note(page.chat_id, page.to_sequence)
            return None
        before = page.from_sequence - 1
        if known.sequence < before:
            between = await self._log.read(page.chat_id, known.sequence, before - known.sequence)
            known = _end_of(known, self._hashed(known, between))
            if known.sequence != before:
                return None
        known = _end_of(known, self._hashed(known, page))
        if known.sequence != page.to_sequence:
            return None
        self._remember(page.chat_id, known)
        return known.value

    async def _nearest(self, page: Page) -> LogHash:
        """The last known hash up to the end of a page."""
        known = self._last.get(page.chat_id)
        if known is None or known.epoch != page.epoch or known.sequence > page.to_sequence:
            known = LogHash(page.epoch, 0, log_hash.empty_log(page.chat_id))
        if page.to_sequence - known.sequence < STORED_EVERY:
            return known
        stored = await self._hashes.last(page.chat_id, page.epoch, page.to_sequence)
        return known if stored is None or stored.sequence < known.sequence else stored

    @staticmethod
    def _hashed(known: LogHash, page: Page) -> list[bytes]:
        """The hashes at the positions of a page after a known one, which is in it or just before it.

        None at all if the page is of another epoch, or a body cannot be read.
        """
        if page.epoch != known.epoch or page.to_sequence <= known.sequence:
            return []
        skipped = known.sequence - (page.from_sequence - 1)
        voids = [void for void in page.voids if void > known.sequence]
        entries = page.entries[skipped - (len(page.voids) - len(voids)) :]
        try:
            return log_hash.following(known.value, known.sequence, entries, voids)
        except msgspec.DecodeError:
            return []

    def _remember(self, chat_id: str, known: LogHash) -> None:
        before = self._last.pop(chat_id, known)
        is_older = (before.epoch, before.sequence) > (known.epoch, known.sequence)
        self._last[chat_id] = before if is_older else known
        _bound(self._last)

    # What has news: a listener of the bus

    def persisted(self, news: list[Persisted]) -> None:
        for item in news:
            self._note(item.chat_id, item.positions[-1].sequence)
            self._pace.note(len(item.positions), asyncio.get_running_loop().time())

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        """A new chat has no entry yet."""

    def sessions_ended(self, session_ids: list[str]) -> None:
        """Sessions are in no log."""

    def _note(self, chat_id: str, through: int) -> None:
        noted, now = self._news.get(chat_id), asyncio.get_running_loop().time()
        if noted is None:
            self._news[chat_id] = News(through, now)
            _bound(self._news)  # a reader of a chat that is forgotten notes it again
        else:
            noted.at = now
            noted.through = max(noted.through, through)

    # The job

    async def follow_news(self) -> None:
        """Follow each chat that has a hash to store: a full span of positions, or its end after a rest."""
        for chat_id, news in list(self._news.items()):
            has_rested = self._has_rested(news)
            followed = self._followed.get(chat_id, 0)
            if has_rested or news.through // STORED_EVERY > followed // STORED_EVERY:
                self._news.pop(chat_id, None)
                self._news[chat_id] = news  # if this one fails, the next pass begins with the others
                await self._follow(chat_id, has_rested)
                if has_rested and self._has_rested(news):
                    self._news.pop(chat_id, None)

    def _has_rested(self, news: News) -> bool:
        return asyncio.get_running_loop().time() - news.at >= self._hashes.tail_seconds

    async def _follow(self, chat_id: str, with_tail: bool) -> None:
        """Hash a chat from the last stored hash to its end, slice by slice, and store what is due."""
        known = await self._last_stored(chat_id)
        to_store: list[LogHash] = []
        while known is not None:
            page = await self._log.read(chat_id, known.sequence, SLICE_ENTRIES)
            values = self._hashed(known, page)
            to_store += _due(known, values)
            known = _end_of(known, values)
            is_end = page.complete or not values
            if with_tail and is_end and values and known not in to_store:
                to_store.append(known)
            if to_store and (is_end or len(to_store) >= STORED_AT_ONCE):
                await self._hashes.write(chat_id, to_store)
                to_store = []
            self._note_followed(chat_id, known, len(values))
            await asyncio.sleep(self._pace.pause(len(values), asyncio.get_running_loop().time()))
            if is_end:
                return

    def _note_followed(self, chat_id: str, known: LogHash, count: int) -> None:
        self._metrics.entries_hashed.inc(count)
        self._remember(chat_id, known)
        self._followed[chat_id] = known.sequence
        _bound(self._followed)

    async def _last_stored(self, chat_id: str) -> LogHash | None:
        """Where to go on; None if there is no such chat."""
        head = (await self._log.heads([chat_id])).get(chat_id)
        if head is None:
            return None
        stored = await self._hashes.last(chat_id, head.epoch, head.sequence)
        return stored or LogHash(head.epoch, 0, log_hash.empty_log(chat_id))


def _end_of(known: LogHash, values: list[bytes]) -> LogHash:
    """The last of the hashes that follow a known one, or that one."""
    return LogHash(known.epoch, known.sequence + len(values), values[-1]) if values else known


def _due(known: LogHash, values: list[bytes]) -> list[LogHash]:
    """Those that are stored, of the hashes that follow a known one."""
    first = known.sequence + 1
    spans = range(-first % STORED_EVERY, len(values), STORED_EVERY)
    return [LogHash(known.epoch, first + at, values[at]) for at in spans]


def _bound(chats: dict[str, Any]) -> None:
    """Forget the oldest of too many chats."""
    if len(chats) > CHATS_REMEMBERED_MAX:
        del chats[next(iter(chats))]
