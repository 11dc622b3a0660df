"""What many ask for within a moment: read together, at half the price, and never missed."""

import asyncio
from collections.abc import Sequence

import pytest

from parley.errors import StoreUnavailable
from parley.ids import Ids
from parley.model import Session
from parley.store.dynamodb.driver import Item
from parley.store.dynamodb.recent_reads import ITEMS_PER_READ_MAX, RecentReads
from parley.store.dynamodb.records import DynamoRecords
from parley.store.tables import ALONE, SESSIONS, SessionRecord, alone
from tests.harness.clock import VirtualClock, run_virtual


class CountedTable:
    """Records, and the requests for them. `unseen`: written so lately that only a strong read finds them."""

    def __init__(self, *names: str) -> None:
        self.items: dict[str, Item] = {one: {"partition": one, "place": ALONE} for one in names}
        self.unseen: set[str] = set()
        self.batches: list[int] = []
        self.is_down = False

    async def get(self, table: str, key: Item, *, consistent: bool = True) -> Item | None:
        assert consistent
        return self.items.get(str(key["partition"]))

    async def batch_get(self, table: str, keys: Sequence[Item], *, consistent: bool = True) -> list[Item]:
        assert not consistent
        await asyncio.sleep(0.01)
        if self.is_down:
            raise StoreUnavailable("on purpose")
        self.batches.append(len(keys))
        wanted = [key["partition"] for key in keys]
        return [item for one, item in self.items.items() if one in wanted and one not in self.unseen]


def reads_of(table: CountedTable) -> RecentReads:
    return RecentReads(table)  # type: ignore[arg-type]


async def read(reads: RecentReads, name: str) -> Item | None:
    return await reads.read("sessions", name, ALONE)


def test_heartbeats_of_a_moment_share_requests() -> None:
    """A hundred in each."""

    async def scenario(clock: VirtualClock) -> None:
        names = [f"token {number}" for number in range(150)]
        table = CountedTable(*names)
        reads = reads_of(table)
        found = await asyncio.gather(*(read(reads, name) for name in names))
        assert found == list(table.items.values())
        assert table.batches == [ITEMS_PER_READ_MAX, 50]

    run_virtual(scenario)


def test_a_session_that_is_not_seen_yet_is_not_taken_for_an_ended_one() -> None:
    """A replica that is behind ends nobody's connection."""

    async def scenario(clock: VirtualClock) -> None:
        kept = SessionRecord(session=Session("ses_1", "ann", "phone", "", 1, 1, 2), token_hash=b"1")
        table = CountedTable("31")
        table.items["31"]["record"] = SESSIONS.encode(kept).decode()
        table.unseen.add("31")
        records = DynamoRecords(table, clock, Ids(lambda _: 0), connected)  # type: ignore[arg-type]
        assert await records.get(SESSIONS, [SESSIONS.key(kept)], may_be_old=True) == [kept]
        assert await records.get(SESSIONS, [alone("32")], may_be_old=True) == [None]

    run_virtual(scenario)


async def connected() -> None:
    """It is."""


def test_a_store_that_fails_fails_those_who_asked_and_no_later_one() -> None:
    """Each of them is told, and the next moment is read anew."""

    async def scenario(clock: VirtualClock) -> None:
        table = CountedTable("1", "2")
        reads = reads_of(table)
        table.is_down = True
        failed = await asyncio.gather(read(reads, "1"), read(reads, "2"), return_exceptions=True)
        assert [type(error) for error in failed] == [StoreUnavailable] * 2
        table.is_down = False
        assert await read(reads, "1") == table.items["1"]

    run_virtual(scenario)


def test_who_gives_up_leaves_the_others_their_answers() -> None:
    """A connection that ends while its session is read cancels nothing but its own wait."""

    async def scenario(clock: VirtualClock) -> None:
        table = CountedTable("1")
        reads = reads_of(table)
        one, two = asyncio.create_task(read(reads, "1")), asyncio.create_task(read(reads, "1"))
        await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert await two == table.items["1"]

    run_virtual(scenario)
