"""Numbers that are noted now and written a moment later."""

import asyncio
from typing import Any

import pytest

from parley.errors import StoreUnavailable
from parley.records.raised import SHARED_SECONDS, RaisedLater
from parley.store.tables import PEOPLE, Key, alone
from tests.harness.clock import VirtualClock, run_virtual

ANN, BEN = alone("ann"), alone("ben")


class CountedRecords:
    """Counts what is raised, and may be away."""

    def __init__(self) -> None:
        self.raised: list[tuple[Key, int]] = []
        self.is_away = False

    async def raise_to(self, table: object, key: Key, number: int) -> bool:
        await asyncio.sleep(0.01)
        if self.is_away:
            raise StoreUnavailable("on purpose")
        self.raised.append((key, number))
        return True


def test_of_many_notes_the_highest_is_written_once() -> None:
    """A moment later, by itself; a key that no record can have is none."""

    async def scenario(clock: VirtualClock) -> None:
        records: Any = CountedRecords()
        later = RaisedLater(records, SHARED_SECONDS)
        for number in (5, 9, 7):
            later.note(PEOPLE, ANN, number)
        later.note(PEOPLE, BEN, 1)
        later.note(PEOPLE, alone("\ud800"), 1)
        await asyncio.sleep(SHARED_SECONDS / 2)
        assert records.raised == []
        await asyncio.sleep(SHARED_SECONDS)
        assert records.raised == [(ANN, 9), (BEN, 1)]

    run_virtual(scenario)


def test_what_could_not_be_written_is_written_later() -> None:
    """A flush says so; a later note is not lowered by an earlier one that comes back."""

    async def scenario(clock: VirtualClock) -> None:
        records: Any = CountedRecords()
        later = RaisedLater(records, SHARED_SECONDS)
        later.note(PEOPLE, ANN, 5)
        records.is_away = True
        flushing = asyncio.create_task(later.flush())
        await asyncio.sleep(0)
        later.note(PEOPLE, ANN, 8)
        with pytest.raises(StoreUnavailable):
            await flushing
        records.is_away = False
        await asyncio.sleep(2 * SHARED_SECONDS)
        assert records.raised == [(ANN, 8)]

    run_virtual(scenario)


def test_closing_writes_what_was_noted() -> None:
    """Without a flush before, and nothing is left to be done afterwards."""

    async def scenario(clock: VirtualClock) -> None:
        records: Any = CountedRecords()
        later = RaisedLater(records, SHARED_SECONDS)
        later.note(PEOPLE, ANN, 5)
        await later.close()
        assert records.raised == [(ANN, 5)]

    run_virtual(scenario)
