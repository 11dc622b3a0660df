"""The job behind the logs, in virtual time: what it stores when, at which pace, and what it costs a page."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from parley.chats.log_hasher import (
    BUSY_ENTRIES_PER_SECOND,
    ENTRIES_PER_SECOND_MAX,
    HASHED_PER_PAGE_MAX,
    PASS_SECONDS,
    STORED_EVERY,
    LogHasher,
)
from parley.core.log_hash import LogHash
from parley.errors import StoreUnavailable
from parley.model import Draft, Page
from parley.records.log_hashes import LogHashes
from parley.store.tables import LOG_HASHES
from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.faulty_log import FaultyLog
from tests.harness.log_replay import replayed_log
from tests.memory.records import MemoryRecords

CHAT, OTHER = "chat_1", "chat_2"


class CountedLog(FaultyLog):
    """Counts what is read, and cannot read a chat that a test names."""

    def __init__(self) -> None:
        super().__init__()
        self.positions_read = 0
        self.broken: set[str] = set()

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        if chat_id in self.broken:
            raise StoreUnavailable("a hole")
        page = await super().read(chat_id, after, limit)
        self.positions_read += page.to_sequence - after
        return page


class CountedHashes(LogHashes):
    """Counts what is asked and written."""

    def __init__(self, log: CountedLog) -> None:
        super().__init__(MemoryRecords(log.tables))
        self.lookups = 0
        self.writes: list[list[int]] = []
        self.failure: StoreUnavailable | None = None

    async def last(self, chat_id: str, epoch: int, up_to: int) -> LogHash | None:
        self.lookups += 1
        if self.failure is not None:
            raise self.failure
        return await super().last(chat_id, epoch, up_to)

    async def write(self, chat_id: str, hashes: Sequence[LogHash]) -> None:
        self.writes.append([one.sequence for one in hashes])
        await super().write(chat_id, hashes)


class Node:
    """A log, its hasher, and the job that a supervisor would run."""

    def __init__(self) -> None:
        self.log = CountedLog()
        self.hashes = CountedHashes(self.log)
        self.hasher = LogHasher(self.log, self.hashes, Metrics(VirtualClock()))

    async def append(self, count: int, chat_id: str = CHAT) -> None:
        drafts = [Draft(chat_id=chat_id, sender_id="ann", content=f"{n}") for n in range(count)]
        self.hasher.persisted((await self.log.append(drafts)).persisted)

    async def run(self, seconds: float) -> None:
        """Let the job run as the supervisor does: its interval begins with the end of a run."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await self.hasher.follow_news()
            await asyncio.sleep(PASS_SECONDS)

    def stored(self, chat_id: str = CHAT) -> list[int]:
        places = self.log.tables.records.get(LOG_HASHES.name, {})
        return sorted(int(place.partition(".")[2]) for at, place in places if at == chat_id)


def run(scenario: Callable[[Node], Awaitable[None]]) -> None:
    run_virtual(lambda _: scenario(Node()))


def test_the_end_of_a_log_is_stored_after_a_rest() -> None:
    """A chat that is being written to costs a write for each span; when it rests, one more."""

    async def scenario(node: Node) -> None:
        await node.append(STORED_EVERY + 5)
        await node.hasher.follow_news()
        assert node.stored() == [STORED_EVERY]
        await node.run(node.hashes.tail_seconds + PASS_SECONDS)
        assert node.stored() == [STORED_EVERY, STORED_EVERY + 5]
        written = len(node.hashes.writes)
        await node.run(60)
        assert len(node.hashes.writes) == written, "nothing is left to do"

    run(scenario)


def test_few_entries_of_a_busy_chat_are_not_looked_at() -> None:
    """Below a full span and without a rest there is nothing to store, so nothing is read."""

    async def scenario(node: Node) -> None:
        for _ in range(STORED_EVERY - 1):
            await node.append(1)
            await node.run(PASS_SECONDS)
        assert node.log.positions_read == 0
        await node.append(1)
        await node.run(PASS_SECONDS)
        assert node.stored() == [STORED_EVERY]

    run(scenario)


def test_the_pace_is_bounded() -> None:
    """However much there is to hash, and however many chats."""

    async def scenario(node: Node) -> None:
        for number in range(20):
            await node.append(1_000, f"chat_{number}")
        began, before = asyncio.get_running_loop().time(), node.log.positions_read
        await node.hasher.follow_news()
        seconds = asyncio.get_running_loop().time() - began
        assert node.log.positions_read - before == 20_000
        assert seconds >= 20_000 / ENTRIES_PER_SECOND_MAX - 0.001

    run(scenario)


def test_the_job_gives_way_while_much_is_sent() -> None:
    """Behind a fast stream it falls back; when that ends it catches up at its full pace."""

    async def scenario(node: Node) -> None:
        job, seconds, sent = asyncio.create_task(node.run(10)), 6, 0
        for _ in range(seconds * 10):
            await node.append(BUSY_ENTRIES_PER_SECOND // 5)
            sent += BUSY_ENTRIES_PER_SECOND // 5
            await asyncio.sleep(0.1)
        first = ENTRIES_PER_SECOND_MAX  # the first second is not judged yet
        assert node.log.positions_read <= first + seconds * BUSY_ENTRIES_PER_SECOND < sent
        await job
        assert node.stored()[-1] == node.log.positions_read == sent

    run(scenario)


def test_few_messages_do_not_slow_the_job() -> None:
    """A stream below the limit leaves it its pace: what was left behind is made good meanwhile."""

    async def scenario(node: Node) -> None:
        await node.append(10_000)
        job = asyncio.create_task(node.hasher.follow_news())
        for _ in range(40):
            await node.append(BUSY_ENTRIES_PER_SECOND // 20, OTHER)
            await asyncio.sleep(0.1)
        assert node.stored()[-1] == 10_000
        await job

    run(scenario)


def test_a_chat_that_cannot_be_read_holds_up_no_other() -> None:
    """The job fails and is told of; the next pass begins with the others."""

    async def scenario(node: Node) -> None:
        await node.append(STORED_EVERY)
        await node.append(STORED_EVERY, OTHER)
        node.log.broken = {CHAT}
        for _ in range(2):
            try:
                await node.hasher.follow_news()
            except StoreUnavailable:
                continue
        assert node.stored(OTHER) == [STORED_EVERY]
        node.log.broken = set()
        await node.run(PASS_SECONDS)
        assert node.stored() == [STORED_EVERY]

    run(scenario)


def test_a_page_at_the_end_of_a_followed_log_reads_nothing_more() -> None:
    """Everybody who catches up with a chat that rests gets the hash from memory."""

    async def scenario(node: Node) -> None:
        await node.append(STORED_EVERY + 5)
        await node.run(10)
        page = await node.log.read(CHAT, STORED_EVERY + 1, 100)
        lookups, read = node.hashes.lookups, node.log.positions_read
        assert await node.hasher.hash_of(page) == (await replayed_log(node.log, CHAT))[STORED_EVERY + 5]
        assert node.hashes.lookups == lookups
        assert node.log.positions_read - read == STORED_EVERY + 5, "those of the replay"

    run(scenario)


def test_a_page_that_ends_at_a_stored_hash_hashes_nothing() -> None:
    """What an SDK asks for: one lookup, and no entry of the page is looked at."""

    async def scenario(node: Node) -> None:
        await node.append(4 * STORED_EVERY)
        await node.run(10)
        page = await node.log.read(CHAT, 3, 2 * STORED_EVERY - 3)
        page.entries = [b"not even JSON"] * len(page.entries)
        assert await node.hasher.hash_of(page) == (await replayed_log(node.log, CHAT))[2 * STORED_EVERY]

    run(scenario)


def test_a_page_is_answered_whatever_happens_to_its_hash() -> None:
    """A store that cannot look a hash up, or a body that cannot be read: there is no hash."""

    async def scenario(node: Node) -> None:
        await node.append(HASHED_PER_PAGE_MAX)
        page = await node.log.read(CHAT, 0, 100)
        node.hashes.failure = StoreUnavailable("no answer")
        assert await node.hasher.hash_of(page) is None
        node.hashes.failure = None
        page.entries[50] = b"{"
        assert await node.hasher.hash_of(page) is None

    run(scenario)


def test_a_log_of_another_epoch_is_hashed_anew() -> None:
    """Of a log that was restored, nothing that is known of the lost one counts."""

    async def scenario(node: Node) -> None:
        await node.append(STORED_EVERY)
        await node.run(10)
        record = node.log.tables.chats[CHAT]
        first = record.entries[1]
        assert first is not None
        record.wires[1] = msgspec.json.encode(msgspec.structs.replace(first, content="restored"))
        record.chat = msgspec.structs.replace(record.chat, epoch=2)
        page = await node.log.read(CHAT, 0, 100)
        assert page.epoch == 2
        assert await node.hasher.hash_of(page) == (await replayed_log(node.log, CHAT))[STORED_EVERY]

    run(scenario)
