"""The `Feed` of one process: groups of consumers over the entries, with durable offsets.

A group has one chunk under way at a time, so that its offset is one number. Within a chunk, chats are handled
concurrently, each by one member, chosen by hash; if that member leaves, by another.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

import structlog

from parley.core.backoff import JITTER_SHARE, backoff
from parley.core.changes import change_in
from parley.errors import StoreDamaged, StoreError
from parley.model import Change, Persisted, StoredEntry
from parley.store.ports import Handle
from parley.store.sqlite import schema
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer
from parley.telemetry import Metrics
from parley.wire.codec import decode_entry
from parley.wire.limits import PAGE_BYTES_MAX

CHUNK_ROWS_MAX = 500
CHUNK_BYTES_MAX = 4 * PAGE_BYTES_MAX
STRAY_POSITIONS_MAX = 10_000
"""How many numbers may be committed before a lower one: far more than are ever under way."""

COMMITTED = (
    "SELECT position, chat_no, sequence, length(wire) FROM entries WHERE position > ?"
    " ORDER BY position LIMIT ?"
)
OPEN = "SELECT chat_no, min(sequence) FROM open_allocations GROUP BY chat_no"
DELIVERED = (
    "SELECT sequence FROM entries WHERE chat_no = ? AND sequence <= ? AND position <= ?"
    " ORDER BY sequence DESC LIMIT 1"
)
RANGE = (
    "SELECT sequence, kind, wire FROM entries WHERE chat_no = ? AND sequence > ? AND sequence <= ?"
    " ORDER BY sequence"
)
CHAT = "SELECT chat_id, epoch FROM chats WHERE chat_no = ?"


CHATS_AT_ONCE_MAX = 8
STORE_RETRY_SECONDS = 1.0
HANDLE_RETRY_SECONDS = 1.0
HANDLE_RETRY_SECONDS_MAX = 60.0
FINISH_SECONDS_MAX = 5.0
"""How long a handler may still run after its member leaves."""

log = structlog.get_logger("parley.store")

FLUSH_AFTER_SECONDS = 0.05

NOTE_OFFSET = (
    "INSERT INTO consumer_offsets (group_name, position) VALUES (?, ?)"
    " ON CONFLICT DO UPDATE SET position = excluded.position WHERE excluded.position > position"
)


class FeedMember:
    """A worker of a group, and its running handlers."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.under_way: set[asyncio.Task[None]] = set()

    async def try_handle(self, news: Persisted) -> BaseException | None:
        """The error of the handler; None if it succeeded."""
        task = asyncio.ensure_future(self.handle(news))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    async def leave(self) -> None:
        """Let running handlers finish, within a time limit."""
        tasks = list(self.under_way)
        if tasks:
            await asyncio.wait(tasks, timeout=FINISH_SECONDS_MAX)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ConsumerGroup:
    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[FeedMember] = []
        self.news = asyncio.Event()
        self.done_through = 0
        self.reader: asyncio.Task[None] | None = None

    def member_for(self, chat_id: str) -> FeedMember:
        return self.members[zlib.crc32(chat_id.encode()) % len(self.members)]


class SqliteFeed:
    def __init__(
        self, reads: Reads, writer: Writer, metrics: Metrics, is_atomic: bool, chance: Callable[[], float]
    ) -> None:
        self._rows = FeedRows(reads, is_atomic)
        self._offsets = Offsets(reads, writer, self._wake)
        self._metrics = metrics
        self._chance = chance
        self._groups: dict[str, ConsumerGroup] = {}

    async def consume(self, group: str, handle: Handle) -> None:
        member = FeedMember(handle)
        joined = self._groups.setdefault(group, ConsumerGroup(group))
        joined.members.append(member)
        if joined.reader is None:
            joined.reader = asyncio.create_task(self._read(joined))
            self._metrics.consumer_lag.register(lambda: self._lag(joined), group)
        try:
            await asyncio.shield(joined.reader)
        finally:
            await self._leave(joined, member, joined.reader)

    async def lags(self) -> dict[str, int]:
        last = self._rows.last()
        return {group: max(last - position, 0) for group, position in self._offsets.all().items()}

    async def _leave(self, group: ConsumerGroup, member: FeedMember, reader: asyncio.Task[None]) -> None:
        group.members.remove(member)
        await member.leave()
        if not group.members:
            self._groups.pop(group.name, None)
            group.news.set()
            await asyncio.wait([reader], timeout=FINISH_SECONDS_MAX)
            reader.cancel()
        await self._flush()

    def _wake(self) -> None:
        for group in self._groups.values():
            group.news.set()

    def _lag(self, group: ConsumerGroup) -> int:
        try:
            return max(self._rows.last() - group.done_through, 0)
        except StoreError:
            return 0  # the store has an alert of its own

    async def _flush(self) -> None:
        try:
            await self._offsets.flush()
        except StoreError as error:
            log.warning("offsets not written; the same entries will be delivered again", error=str(error))

    async def _read(self, group: ConsumerGroup) -> None:
        """Read and deliver while the group has members."""
        is_begun = False
        while group.members:
            group.news.clear()
            try:
                if not is_begun:
                    group.done_through, is_begun = self._offsets.of(group.name), True
                news, reached = self._rows.after(group.done_through)
            except StoreError as error:
                now = asyncio.get_running_loop().time()
                if (more := self._metrics.lines.admit(f"entries of {group.name}", now)) is not None:
                    log.warning("entries cannot be read", group=group.name, error=str(error), **more)
                await asyncio.sleep(STORE_RETRY_SECONDS)
                continue
            if reached == group.done_through:
                await group.news.wait()
            elif await self._deliver(group, news):
                group.done_through = reached
                self._offsets.note(group.name, reached)

    async def _deliver(self, group: ConsumerGroup, news: list[Persisted]) -> bool:
        """Returns whether all of it was handled; it was not if the last member left."""
        shares = [news[start::CHATS_AT_ONCE_MAX] for start in range(min(len(news), CHATS_AT_ONCE_MAX))]
        tasks = [asyncio.create_task(self._deliver_chats(group, share)) for share in shares]
        try:
            return all(await asyncio.gather(*tasks))
        finally:
            for queue in tasks:
                queue.cancel()

    async def _deliver_chats(self, group: ConsumerGroup, news: list[Persisted]) -> bool:
        for item in news:
            if not await self._until_handled(group, item):
                return False
        return True

    async def _until_handled(self, group: ConsumerGroup, news: Persisted) -> bool:
        attempt = 0
        while group.members:
            member = group.member_for(news.chat_id)
            error = await member.try_handle(news)
            if error is None:
                return True
            if member in group.members:
                log.error("a handler failed", group=group.name, chat_id=news.chat_id, exc_info=error)
                jitter = JITTER_SHARE * self._chance()
                await asyncio.sleep(backoff(attempt, HANDLE_RETRY_SECONDS, HANDLE_RETRY_SECONDS_MAX, jitter))
                attempt += 1
        return False


class FeedRows:
    """The entries as a topic: in commit order, and within each chat in the order of its log.

    With two_phase sequencing a lower number may be committed after a higher one. A chunk therefore delivers a
    chat up to its highest number, with the lower ones that were committed later, and a later chunk skips
    those. Nothing above an open number is delivered.

    `is_atomic`: commit order is each log's order, so no lookups are needed.
    """

    def __init__(self, reads: Reads, is_atomic: bool) -> None:
        self._reads = reads
        self._is_atomic = is_atomic

    def after(self, position: int) -> tuple[list[Persisted], int]:
        """The next committed entries, by chat, and the last position: `position` itself if there are none."""
        stretches: dict[int, tuple[int, int]] = {}
        reached, size = position, 0
        unresolved: dict[int, int] = dict(self._reads.rows(OPEN))
        for row, chat_no, sequence, bytes_of in self._reads.rows(COMMITTED, (position, CHUNK_ROWS_MAX)):
            size += bytes_of or 0
            is_open_below = sequence > unresolved.get(chat_no, sequence)
            if is_open_below or (size > CHUNK_BYTES_MAX and stretches):
                break
            low, high = stretches.get(chat_no, (sequence, sequence))
            stretches[chat_no] = min(low, sequence), max(high, sequence)
            reached = row
        news = [self._range(chat_no, low, high, position) for chat_no, (low, high) in stretches.items()]
        return [item for item in news if item is not None], reached

    def _range(self, chat_no: int, low: int, high: int, position: int) -> Persisted | None:
        after = low - 1 if self._is_atomic else self._delivered(chat_no, high, position)
        chat = self._reads.row(CHAT, (chat_no,))
        rows = self._reads.rows(RANGE, (chat_no, after, high))
        if chat is None or not rows:
            return None
        positions = [StoredEntry(sequence, wire, _change(kind, wire)) for sequence, kind, wire in rows]
        return Persisted(chat[0], chat[1], positions)

    def _delivered(self, chat_no: int, high: int, position: int) -> int:
        """How far a chat was delivered when everything up to this position was."""
        row = self._reads.row(DELIVERED, (chat_no, high + STRAY_POSITIONS_MAX, position))
        return int(row[0]) if row else 0

    def last(self) -> int:
        row = self._reads.row("SELECT max(position) FROM entries")
        return int(row[0] or 0) if row else 0


class Offsets:
    """How far each group is: noted in memory, durable with the next commit or a moment later.

    `on_commit` is called after every commit.
    """

    def __init__(self, reads: Reads, writer: Writer, on_commit: Callable[[], None]) -> None:
        self._reads = reads
        self._writer = writer
        self._on_commit = on_commit
        self._noted: dict[str, int] = {}
        self._in_commit: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._damage: StoreDamaged | None = None
        """What the last transaction met, so that these notes are not in it."""
        writer.add_piggyback(self)

    def of(self, group: str) -> int:
        """What is durable; 0 for a new group."""
        row = self._reads.row("SELECT position FROM consumer_offsets WHERE group_name = ?", (group,))
        return int(row[0]) if row else 0

    def all(self) -> dict[str, int]:
        """What is durable, of every group."""
        return dict(self._reads.rows("SELECT group_name, position FROM consumer_offsets"))

    def note(self, group: str, position: int) -> None:
        """Everything up to here is done."""
        self._noted[group] = position
        self._flush_soon()

    async def flush(self) -> None:
        """Everything noted before the call is durable when it returns."""
        if self._noted or self._in_commit:
            await self._writer.run(lambda _: None)
            if self._damage is not None:
                raise StoreDamaged(self._damage.place, self._damage.problem)

    def _flush_soon(self) -> None:
        if self._timer is None and not self._in_commit:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        """No commit came by in time: make one."""
        self._timer = None
        if self._writer.available:
            self._flushing = asyncio.ensure_future(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except StoreError:
            self._flush_soon()  # until it is durable, a crash hands the same entries out again

    def write_pending(self, transaction: Transaction) -> None:
        self._damage = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._noted:
            self._in_commit, self._noted = self._noted, {}
            transaction.executemany(NOTE_OFFSET, list(self._in_commit.items()))

    def committed(self) -> None:
        self._in_commit = {}
        if self._noted:
            self._flush_soon()
        self._on_commit()

    def failed(self, damage: StoreDamaged | None = None) -> None:
        self._damage = damage
        self._noted = self._in_commit | self._noted
        self._in_commit = {}
        if self._noted:
            self._flush_soon()


def _change(kind: int, wire: bytes | None) -> Change | None:
    return change_in(decode_entry(wire)) if kind == schema.OTHER and wire is not None else None
