"""Keeps the search index behind the logs: a job follows each chat that has news, from where its index is.

The index holds how far each chat is in it, in the same transaction as the texts. So whatever a crash takes,
the job goes on from there, and only what is missing is read again. A search brings the chats up to date that
it looks at, so that it finds what was sent before it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from weakref import WeakValueDictionary

import structlog
from msgspec import Struct

from parley.clock import from_iso
from parley.core.jobs import Job
from parley.core.search import batch_of, is_indexed, unknown_targets
from parley.model import Head, Page, Persisted
from parley.search.index import IndexPosition, SearchIndex
from parley.store.ports import Log
from parley.telemetry import Metrics
from parley.wire.codec import decode_entry

PASS_SECONDS = 0.25
PASS_SECONDS_MAX = 3_600.0
SLICE_ENTRIES = 100
"""What is read, and indexed, without giving way to others."""
BUSY_PER_SECOND = 200
"""Entries that the server stores in a second: from there on it is busy, and the job gives way to it."""
BUSY_SHARE = 0.03
"""How much of the time the job takes while the server is busy; acks come first."""
LOOK_SECONDS = 600.0
"""How often all chats are looked at: what was written beside the server has no news."""
COMPARE_SECONDS = 24 * 3_600.0
"""How often the index is compared with the logs: bodies that a command erased leave no entry."""
HEADS_AT_ONCE = 500
PROGRESS_CHATS = 1_000

BEFORE_INDEX, AFTER_INDEX = INDEX_LABELS = ("before_index", "after_index")
"""A slice is read and not written yet; it is written, and nobody was told."""

log = structlog.get_logger("parley.search")

Chats = Callable[[], AsyncIterator[list[str]]]


class Waiting(Struct):
    """A chat that is not followed to its end: since when, by the loop."""

    through: int
    since: float


class SearchIndexer:
    """Subscribe it to the bus, and run its `job`.

    `chats`: the chats that are looked at from time to time, by pages. `owns`: whether a chat belongs into
    this index. `is_alone`: there is no other index. `is_told`: whether other nodes tell this one of bodies
    that were removed; what was removed before is found by comparing. `fault_point` is told the labels of
    `INDEX_LABELS`.
    """

    def __init__(
        self,
        log: Log,
        index: SearchIndex,
        metrics: Metrics,
        chats: Chats,
        owns: Callable[[str], bool] = lambda _: True,
        *,
        is_alone: bool = True,
        is_told: Callable[[], bool] = lambda: True,
        fault_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._fault_point = fault_point
        self._log = log
        self._index = index
        self._metrics = metrics
        self._chats = chats
        self._owns = owns
        self._look_seconds = LOOK_SECONDS if is_alone else math.inf
        self._compare_seconds = COMPARE_SECONDS if is_alone else math.inf
        self._waiting: dict[str, Waiting] = {}
        self._heard = 0
        """Entries that were stored since the last slice."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looked_at: float | None = None
        self._is_alone = is_alone
        self._compared_at: float | None = None
        self._is_told = is_told
        self._gaps = 0
        """How often this node was perhaps not told of bodies that were removed."""
        metrics.search_lag.register(self._lag_seconds)
        metrics.search_chats_waiting.register(lambda: len(self._waiting))

    @property
    def job(self) -> Job:
        return Job(
            name="search_index",
            does="indexes what is new; a search that comes before does it, or is refused as temporary",
            run=self.follow_news,
            interval_seconds=PASS_SECONDS,
            timeout_seconds=PASS_SECONDS_MAX,
            first_seconds=PASS_SECONDS,
        )

    # What has news: a listener of the bus

    def persisted(self, news: list[Persisted]) -> None:
        for item in news:
            self._heard += len(item.positions)
            self.note(item.chat_id, item.positions[-1].sequence)

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        """A new chat has no entry yet."""

    def sessions_ended(self, session_ids: list[str]) -> None:
        """Sessions are in no log."""

    def note(self, chat_id: str, through: int) -> None:
        """A chat has entries up to here, at least."""
        if not self._owns(chat_id):
            return
        known = self._waiting.get(chat_id)
        if known is None:
            self._waiting[chat_id] = Waiting(through, _now())
        else:
            known.through = max(known.through, through)

    def look_again(self) -> None:
        """The file is new, or other chats belong into it: compare all of them with the index."""
        self._looked_at = None

    def compare_again(self) -> None:
        """Bodies may have been removed that this node was not told of."""
        self._gaps += 1
        self._compared_at = None

    def _lag_seconds(self) -> float:
        """How long the chat has waited that waits longest."""
        try:
            oldest = min((one.since for one in self._waiting.values()), default=None)
            return 0.0 if oldest is None else max(_now() - oldest, 0.0)
        except RuntimeError:  # asked without a loop
            return 0.0

    # The job

    async def follow_news(self) -> None:
        """Look at all chats if it is time, then follow those that wait."""
        if _is_due(self._looked_at, self._look_seconds):
            await self._look()
        if self._must_compare():
            await self.compare_all()
        for number, chat_id in enumerate(list(self._waiting), 1):
            await self._follow_noted(chat_id)
            if number % PROGRESS_CHATS == 0:
                log.info("the search index follows", chats_left=len(self._waiting))

    def _must_compare(self) -> bool:
        """The only node hears of everything that is erased while it runs, and looks again once a day for what
        a command erased. One of several looks when it has joined the others, at its start and after it was
        away: from then on it is told."""
        if self._compared_at is None and self._is_alone:
            self._compared_at = _now()
        return self._is_told() and _is_due(self._compared_at, self._compare_seconds)

    async def _follow_noted(self, chat_id: str) -> None:
        """Follow a chat to its end. One that fails is behind all others the next time."""
        noted = self._waiting.pop(chat_id)
        is_behind = True
        try:
            while is_behind:
                began, self._heard = _now(), 0
                is_behind = await self._one_slice(chat_id)
                await asyncio.sleep(self._pause_seconds(_now() - began))
        except BaseException:
            self._waiting.setdefault(chat_id, noted)
            raise

    def _pause_seconds(self, took: float) -> float:
        """How long to rest after a slice. A busy server keeps most of its time for itself."""
        is_busy = self._heard > BUSY_PER_SECOND * took and self._heard > 0
        return took * (1 - BUSY_SHARE) / BUSY_SHARE if is_busy else 0.0

    async def _look(self) -> None:
        """Note every chat whose index is not where its log is."""
        await self._index.collect()
        behind = total = 0
        async for chat_ids in self._chats():
            for start in range(0, len(chat_ids), HEADS_AT_ONCE):
                some = chat_ids[start : start + HEADS_AT_ONCE]
                total += len(some)
                for chat_id, head, position in await self._compared(some):
                    if _missing(head, position):
                        self.note(chat_id, head.sequence)
                        behind += 1
                await asyncio.sleep(0)
        self._looked_at = _now()
        if behind:
            log.info("the search index follows", chats_behind=behind, chats=total)

    async def _compared(self, chat_ids: Sequence[str]) -> list[tuple[str, Head, IndexPosition]]:
        heads, positions = await self._log.heads(chat_ids), await self._index.positions(chat_ids)
        return [(chat_id, head, positions.get(chat_id, IndexPosition())) for chat_id, head in heads.items()]

    # One chat

    async def behind(self, chat_ids: Sequence[str]) -> dict[str, int]:
        """How many entries each of these chats is behind its log, for those that are."""
        found: dict[str, int] = {}
        for chat_id, head, position in await self._compared(chat_ids):
            if missing := _missing(head, position):
                found[chat_id] = missing
        return found

    async def catch_up(self, chat_id: str) -> None:
        """Index a chat up to where its log can be read now."""
        is_behind = True
        while is_behind:
            is_behind = await self._one_slice(chat_id)
            await asyncio.sleep(0)

    async def _one_slice(self, chat_id: str) -> bool:
        """Whether there is more. What is read is in the index before anybody may remove it from there."""
        async with self._lock(chat_id):
            position = (await self._index.positions([chat_id])).get(chat_id, IndexPosition())
            page = await self._log.read(chat_id, position.through, SLICE_ENTRIES)
            if page.epoch != position.epoch or page.head < position.through:
                if position.epoch:  # a backup was restored: it is another log
                    log.warning("the search index of a chat is made again", chat_id=chat_id)
                    await self._index.reset(chat_id, page.epoch)
                    return True
                position = IndexPosition(page.epoch)
            if page.to_sequence <= position.through:
                return False
            await self._add(chat_id, position, page)
            return not page.complete

    async def _add(self, chat_id: str, position: IndexPosition, page: Page) -> None:
        entries = [decode_entry(wire) for wire in page.entries]
        targets: dict[str, int] = {}
        for message_id in unknown_targets(entries):
            found = await self._log.find_message(message_id, [chat_id])
            if found is not None:
                targets[message_id] = found[1]
        timed = [(entry, from_iso(entry.created_at)) for entry in entries]
        batch = batch_of(timed, targets, page.epoch, position.through, page.to_sequence, position.at)
        self._fault_point(BEFORE_INDEX)
        if await self._index.apply(chat_id, batch):
            self._fault_point(AFTER_INDEX)
            self._metrics.search_entries.inc(page.to_sequence - position.through)

    def _lock(self, chat_id: str) -> asyncio.Lock:
        return self._locks.setdefault(chat_id, asyncio.Lock())

    # What is removed without an entry, or must be gone before an answer

    async def forget(self, chat_id: str, sequences: Iterable[int]) -> None:
        """These messages have no body any more: when it returns, the index has none of them either."""
        async with self._lock(chat_id):
            await self._index.remove(chat_id, sequences)

    async def compare(self, chat_id: str) -> int:
        """Take out of the index what the log no longer has. Returns how many messages that were."""
        async with self._lock(chat_id):  # what is being indexed now counts, too
            through = (await self._index.positions([chat_id])).get(chat_id, IndexPosition()).through
        after = removed = 0
        while after < through:
            async with self._lock(chat_id):
                page = await self._log.read(chat_id, after, SLICE_ENTRIES)
                if page.to_sequence <= after:
                    break
                known = await self._index.sequences(chat_id, after, min(page.to_sequence, through))
                kept = {entry.sequence for entry in map(decode_entry, page.entries) if is_indexed(entry)}
                gone = [sequence for sequence in known if sequence not in kept]
                if gone:
                    await self._index.remove(chat_id, gone)
                after, removed = page.to_sequence, removed + len(gone)
            await asyncio.sleep(0)
        return removed

    async def compare_all(self) -> None:
        """Compare every chat of the index with its log, and forget those that another node has now."""
        removed, gaps = 0, self._gaps
        for number, chat_id in enumerate({*self._locks, *await self._index.positions()}):
            if self._owns(chat_id):
                removed += await self.compare(chat_id)
            else:
                await self._index.reset(chat_id, None)
            if number % PROGRESS_CHATS == PROGRESS_CHATS - 1:
                log.info("the search index is compared with the log", chats=number + 1, removed=removed)
        if gaps == self._gaps:
            self._compared_at = _now()


def _missing(head: Head, position: IndexPosition) -> int:
    """How many entries an index must still take; all of them, if it is of another log."""
    if position.through and (position.epoch != head.epoch or position.through > head.sequence):
        return max(head.sequence, 1)
    return head.sequence - position.through


def _now() -> float:
    return asyncio.get_running_loop().time()


def _is_due(last: float | None, seconds: float) -> bool:
    return last is None or _now() - last >= seconds
