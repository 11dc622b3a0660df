"""The `Feed` of one process: groups of consumers over the entries, with durable offsets.

A group has one chunk under way at a time, so that its offset is one number. Within it chats are handled side
by side, each by the member that its name falls to; if that member leaves, by another.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable

import structlog

from parley.clock import MS_PER_SECOND
from parley.core.backoff import backoff_ms
from parley.errors import StoreError
from parley.model import Persisted
from parley.store.sqlite.feed_rows import FeedRows
from parley.store.sqlite.offsets import Offsets
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Writer
from parley.telemetry import Metrics

CHATS_AT_ONCE_MAX = 8
STORE_RETRY_SECONDS = 1.0
FINISH_SECONDS_MAX = 5.0
"""How long a handler may go on when its member leaves."""

Handle = Callable[[Persisted], Awaitable[None]]

log = structlog.get_logger("parley.store")


class Member:
    """Somebody who handles, and what of it is under way."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.under_way: set[asyncio.Task[None]] = set()

    async def try_to_handle(self, news: Persisted) -> BaseException | None:
        """Why it is not done; None if it is."""
        task = asyncio.ensure_future(self.handle(news))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    async def leave(self) -> None:
        """What is under way may end, within limits."""
        tasks = list(self.under_way)
        if tasks:
            await asyncio.wait(tasks, timeout=FINISH_SECONDS_MAX)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Group:
    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[Member] = []
        self.news = asyncio.Event()
        self.done_through = 0
        self.reader: asyncio.Task[None] | None = None

    def member_for(self, chat_id: str) -> Member:
        return self.members[zlib.crc32(chat_id.encode()) % len(self.members)]


class SqliteFeed:
    def __init__(
        self, reads: Reads, writer: Writer, metrics: Metrics, is_atomic: bool, chance: Callable[[], float]
    ) -> None:
        self._rows = FeedRows(reads, is_atomic)
        self._offsets = Offsets(reads, writer, self._wake)
        self._metrics = metrics
        self._chance = chance
        self._groups: dict[str, Group] = {}

    async def consume(self, group: str, handle: Handle) -> None:
        member = Member(handle)
        joined = self._groups.setdefault(group, Group(group))
        joined.members.append(member)
        if joined.reader is None:
            joined.reader = asyncio.create_task(self._read(joined))
            self._metrics.consumer_lags[group] = lambda: self._lag(joined)
        try:
            await asyncio.shield(joined.reader)
        finally:
            await self._leave(joined, member, joined.reader)

    async def _leave(self, group: Group, member: Member, reader: asyncio.Task[None]) -> None:
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

    def _lag(self, group: Group) -> int:
        try:
            return max(self._rows.last() - group.done_through, 0)
        except StoreError:
            return 0  # the store has an alert of its own

    async def _flush(self) -> None:
        try:
            await self._offsets.flush()
        except StoreError as error:
            log.warning("offsets are not written; the same entries will come again", error=str(error))

    async def _read(self, group: Group) -> None:
        """While the group has members."""
        is_begun = False
        while group.members:
            group.news.clear()
            try:
                if not is_begun:
                    group.done_through, is_begun = self._offsets.of(group.name), True
                news, reached = self._rows.after(group.done_through)
            except StoreError as error:
                log.warning("entries cannot be read", group=group.name, error=str(error))
                await asyncio.sleep(STORE_RETRY_SECONDS)
                continue
            if reached == group.done_through:
                await group.news.wait()
            elif await self._hand_out(group, news):
                group.done_through = reached
                self._offsets.note(group.name, reached)

    async def _hand_out(self, group: Group, news: list[Persisted]) -> bool:
        """Whether all of it is done; it is not when the last member has left."""
        shares = [news[start::CHATS_AT_ONCE_MAX] for start in range(min(len(news), CHATS_AT_ONCE_MAX))]
        lanes = [asyncio.create_task(self._run_lane(group, share)) for share in shares]
        try:
            return all(await asyncio.gather(*lanes))
        finally:
            for lane in lanes:
                lane.cancel()

    async def _run_lane(self, group: Group, news: list[Persisted]) -> bool:
        for item in news:
            if not await self._until_handled(group, item):
                return False
        return True

    async def _until_handled(self, group: Group, news: Persisted) -> bool:
        attempt = 0
        while group.members:
            member = group.member_for(news.chat_id)
            error = await member.try_to_handle(news)
            if error is None:
                return True
            if member in group.members:
                log.error("a handler failed", group=group.name, chat_id=news.chat_id, exc_info=error)
                await asyncio.sleep(backoff_ms(attempt, self._chance()) / MS_PER_SECOND)
                attempt += 1
        return False
