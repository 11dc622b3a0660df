"""The sessions of many heartbeats: read together, at half the price, and never missed."""

import asyncio
from collections.abc import Sequence

import pytest

from parley.errors import StoreUnavailable
from parley.store.dynamodb.driver import Item
from parley.store.dynamodb.session_reads import SESSIONS_PER_READ_MAX, SessionReads
from tests.harness.clock import VirtualClock, run_virtual


class CountedTable:
    """Sessions, and the requests for them. `unseen`: written so lately that only a strong read finds them."""

    def __init__(self, *token_hashes: bytes) -> None:
        self.items: dict[bytes, Item] = {one: {"token_hash": one} for one in token_hashes}
        self.unseen: set[bytes] = set()
        self.batches: list[int] = []
        self.strong_reads = 0
        self.is_down = False

    async def batch_get(self, table: str, keys: Sequence[Item], *, consistent: bool = True) -> list[Item]:
        assert not consistent
        await asyncio.sleep(0.01)
        if self.is_down:
            raise StoreUnavailable("on purpose")
        self.batches.append(len(keys))
        wanted = [key["token_hash"] for key in keys]
        return [item for one, item in self.items.items() if one in wanted and one not in self.unseen]

    async def get(self, table: str, key: Item, *, consistent: bool = True) -> Item | None:
        assert consistent
        self.strong_reads += 1
        found: object = key["token_hash"]
        return self.items.get(found) if isinstance(found, bytes) else None


def reads_of(table: CountedTable) -> SessionReads:
    return SessionReads(table)  # type: ignore[arg-type]


def test_heartbeats_of_a_moment_share_requests() -> None:
    """A hundred in each, and none of them read strongly."""

    async def scenario(clock: VirtualClock) -> None:
        hashes = [bytes([number, 1]) for number in range(150)]
        table = CountedTable(*hashes)
        reads = reads_of(table)
        found = await asyncio.gather(*map(reads.read, hashes))
        assert found == list(table.items.values())
        assert (table.batches, table.strong_reads) == ([SESSIONS_PER_READ_MAX, 50], 0)

    run_virtual(scenario)


def test_a_session_that_is_not_seen_yet_is_not_taken_for_an_ended_one() -> None:
    """A replica that is behind ends nobody's connection."""

    async def scenario(clock: VirtualClock) -> None:
        table = CountedTable(b"1")
        table.unseen.add(b"1")
        reads = reads_of(table)
        assert await reads.read(b"1") == {"token_hash": b"1"}
        assert await reads.read(b"2") is None

    run_virtual(scenario)


def test_a_store_that_fails_fails_those_who_asked_and_no_later_one() -> None:
    """Each of them is told, and the next moment is read anew."""

    async def scenario(clock: VirtualClock) -> None:
        table = CountedTable(b"1", b"2")
        reads = reads_of(table)
        table.is_down = True
        failed = await asyncio.gather(reads.read(b"1"), reads.read(b"2"), return_exceptions=True)
        assert [type(error) for error in failed] == [StoreUnavailable] * 2
        table.is_down = False
        assert await reads.read(b"1") == {"token_hash": b"1"}

    run_virtual(scenario)


def test_who_gives_up_leaves_the_others_their_answers() -> None:
    """A connection that ends while its session is read cancels nothing but its own wait."""

    async def scenario(clock: VirtualClock) -> None:
        reads = reads_of(CountedTable(b"1"))
        one, two = asyncio.create_task(reads.read(b"1")), asyncio.create_task(reads.read(b"1"))
        await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert await two == {"token_hash": b"1"}

    run_virtual(scenario)
