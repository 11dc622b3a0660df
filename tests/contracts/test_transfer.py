"""The port `Transfer`: what an engine gives and takes, row by row, is the same on every engine."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from parley.clock import MS_PER_DAY
from parley.errors import ConfigError
from parley.ids import Ids
from parley.migration.copies import CopyRefused, CopyReport, StoreCopy
from parley.migration.rows import StoreRows
from parley.model import Appended, Head
from parley.store.records import COPY_MARK, RECORDS, UNFINISHED, ChatRecord, Record
from parley.store.tables import ServerKey
from tests.contracts.acting import contents, message, read_all
from tests.contracts.engines import Engine, MemoryEngine, OpenStore
from tests.contracts.full_store import FullStore

GROUPS = ["delivery", "push"]


@asynccontextmanager
async def in_memory(mode: str = "atomic") -> AsyncIterator[OpenStore]:
    """With chats that no other test has: counters of some engines are in a service that tests share."""
    async with MemoryEngine(mode).opened() as store:
        store.ids = Ids(random.SystemRandom().getrandbits)
        await store.reopen()  # its messages have ids of their own, too
        yield store


@asynccontextmanager
async def transfer_of(store: OpenStore) -> AsyncIterator[StoreRows]:
    async with store.operator() as operator:
        yield StoreRows(operator)


async def all_records(transfer: StoreRows) -> dict[str, list[Record]]:
    return {
        kind.__name__: sorted([one async for page in transfer.records(kind) for one in page], key=repr)
        for kind in RECORDS
    }


async def copied(source: OpenStore, target: OpenStore, **options: Any) -> CopyReport:
    async with transfer_of(source) as one, transfer_of(target) as other:
        return await StoreCopy(one, other, "there", GROUPS, target.clock, **options).run()


async def test_records_of_every_kind_are_there(engine: Engine) -> None:
    """A store with everything has records of every kind, and reading them changes none."""
    async with engine.opened() as store:
        await FullStore(store).fill()
        async with transfer_of(store) as transfer:
            found = await all_records(transfer)
            assert [kind for kind, records in found.items() if not records] == []
            assert await all_records(transfer) == found


async def test_pages_hold_everything_once(engine: Engine, pages_of_two: None) -> None:
    """However small the pages are."""
    async with engine.opened() as store:
        full = await FullStore(store).fill()
        async with transfer_of(store) as transfer:
            people = (await all_records(transfer))["PersonRecord"]
            assert len(people) == len(full.people)
            positions = [one async for page in transfer.positions(full.group, 1) for one in page]
            assert [one.sequence for one in positions] == [2, 3, 4]


@pytest.mark.parametrize("mode", ["atomic", "two_phase"])
async def test_a_copy_there_and_back_is_the_same_store(engine: Engine, mode: str) -> None:
    """Memory to this engine and back to memory: fingerprints are equal, and every record is."""
    async with in_memory(mode) as first, in_memory(mode) as last:
        async with engine.opened() as store:
            for other in (first, last):
                other.clock.advance(store.clock() - other.clock())  # nothing has expired
            await FullStore(first).fill()
            there = await copied(first, store)
            back = await copied(store, last)
            assert store.breaches() == []
        assert there == back
        assert (there.entries, there.records["PersonRecord"]) == (16, 5)
        assert (there.rules, there.holds, there.records["PendingErasure"]) == (1, 1, 1)
        assert [there.records.get(kind) for kind in ("MessageMark", "AmendmentNote")] == [4, 1]
        async with transfer_of(first) as one, transfer_of(last) as another:
            mine, theirs = await all_records(one), await all_records(another)
        assert [kind for kind in mine if kind != "ServerKey" and mine[kind] != theirs[kind]] == []


async def test_a_copied_store_goes_on(engine: Engine) -> None:
    """Sends get the next numbers, retries their old answers; messages, sessions and names are found."""
    async with in_memory() as first, engine.opened() as store:
        first.clock.advance(store.clock() - first.clock())  # keys have not expired
        full = await FullStore(first).fill()
        ann, cat = full.people["ann"], full.people["cat"]
        await copied(first, store)
        await store.reopen()
        (again,) = (await store.log.append([message(full.group, cat, "see @ann", full.client_id)])).outcomes
        assert isinstance(again, Appended)
        assert (again.sequence, again.deduplicated) == (2, True)
        assert await store.log.find_message(again.message_id, [full.direct, full.group]) == (
            full.group,
            2,
        )
        assert await store.log.find_message(again.message_id, None) == (full.group, 2)
        assert await store.log.find_message(again.message_id, [full.direct]) is None
        (new,) = (await store.log.append([message(full.group, ann, "next")])).outcomes
        assert isinstance(new, Appended)
        assert new.sequence == 5
        assert await store.log.heads([full.group]) == {full.group: Head(1, 5)}
        before = contents(await read_all(first, full.group))
        assert contents(await read_all(store, full.group)) == [*before, "next"]
        found = await store.accounts.user_by_name("bob")
        assert found is not None
        assert found[1] == "another hash"
        assert await store.sessions.by_token(b"\x00\xff" * 16) is not None
        assert await store.cursors.position(ann, "phone", full.group) == 2
        assert await store.push.outcomes.rung_through(full.direct, full.people["bob"], "phone") == 1
        assert store.breaches() == []


async def test_what_has_expired_is_not_copied(engine: Engine) -> None:
    """An engine may delete it at any moment, so nobody relies on it."""
    async with in_memory() as first, engine.opened() as store:
        first.clock.advance(store.clock() - first.clock())
        await FullStore(first).fill()
        store.clock.advance(30 * MS_PER_DAY)
        report = await copied(first, store)
        assert (report.records["PushOutcome"], report.records["DeadLetter"]) == (0, 1)


async def test_abandoned_numbers_become_voids(engine: Engine) -> None:
    """A number that was taken and not written is a void in the copy, and the next one is not taken twice."""
    async with engine.opened() as store, in_memory() as target:
        full = await FullStore(store).fill()
        store.abandon(full.group, 5, store.clock())
        report = await copied(store, target)
        assert report.voids == 1
        await target.reopen()
        (new,) = (await target.log.append([message(full.group, full.people["ann"], "next")])).outcomes
        assert isinstance(new, Appended)
        assert new.sequence == 6


async def test_positions_may_be_put_again(engine: Engine) -> None:
    """A copy that was cut off writes the last positions once more: nothing is twice."""
    async with in_memory() as first, engine.opened() as store:
        full = await FullStore(first).fill()
        async with transfer_of(first) as source, transfer_of(store) as target:
            for kind in RECORDS:
                async for page in source.records(kind):
                    await target.put(page)
            positions = [one async for page in source.positions(full.group, 0) for one in page]
            await target.put_positions(full.group, positions[:3])
            assert await target.log_ends([full.group, full.direct]) == {full.group: 3, full.direct: 0}
            await target.put_positions(full.group, positions)
            found = [one async for page in target.positions(full.group, 0) for one in page]
            assert [(one.sequence, one.wire) for one in found] == [(p.sequence, p.wire) for p in positions]


async def test_records_may_be_put_again(engine: Engine) -> None:
    """Every record put twice is there once."""
    async with engine.opened() as store:
        await FullStore(store).fill()
        async with transfer_of(store) as transfer:
            before = await all_records(transfer)
            for kind in RECORDS:
                async for page in transfer.records(kind):
                    await transfer.put(page)
            assert await all_records(transfer) == before


async def test_a_target_that_is_not_empty_is_refused(engine: Engine) -> None:
    """It stays as it is, also after a copy that was finished."""
    async with in_memory() as first, engine.opened() as store:
        await FullStore(first).fill()
        await copied(first, store)
        with pytest.raises(CopyRefused, match="not empty"):
            await copied(first, store)
    async with in_memory() as first, engine.opened() as store:
        async with transfer_of(store) as transfer:
            await transfer.put([ServerKey(name="vapid", value="x")])
        with pytest.raises(CopyRefused, match="not empty"):
            await copied(first, store)


async def test_no_server_opens_half_a_copy(engine: Engine) -> None:
    """Until the copy is finished, the store is not served."""
    async with engine.opened() as store:
        async with transfer_of(store) as transfer:
            await transfer.put([ServerKey(name=COPY_MARK, value=UNFINISHED + "{}")])
        async with store.operator() as operator:
            with pytest.raises(ConfigError, match="not finished"):
                await operator.open()
        async with transfer_of(store) as transfer:
            await transfer.put([ServerKey(name=COPY_MARK, value="done")])
        async with store.operator() as operator:
            await operator.open()


async def test_another_life_has_another_epoch(engine: Engine) -> None:
    """Every chat's epoch rises, to the time at least; entries stay, and new ones have the new epoch."""
    async with engine.opened() as store:
        full = await FullStore(store).fill()
        token = (await store.overviews.changed(full.people["cat"], "phone", None, 10)).token
        async with transfer_of(store) as transfer:
            assert await transfer.begin_anew(store.clock() + 5_000) == 4
        await store.reopen()
        epoch = (store.clock() + 5_000) // 1_000
        assert await store.log.heads([full.group]) == {full.group: Head(epoch, 4)}
        page = await store.overviews.changed(full.people["cat"], "phone", token, 10)
        assert {(chat.chat_id, chat.epoch) for chat in page.positions} == {
            (full.group, epoch),
            (full.left, epoch),
            (full.lively, epoch),
        }
        (new,) = (await store.log.append([message(full.group, full.people["ann"], "new")])).outcomes
        assert isinstance(new, Appended)
        assert (new.sequence, new.epoch) == (5, epoch)
        async with transfer_of(store) as transfer:
            await transfer.begin_anew(0)
            (chat,) = [
                one
                async for found in transfer.records(ChatRecord)
                for one in found
                if isinstance(one, ChatRecord) and one.chat.chat_id == full.group
            ]
        assert chat.chat.epoch == epoch + 1
        assert store.breaches() == []


async def test_what_was_copied_is_not_delivered_again(engine: Engine) -> None:
    """Workers begin after the copied entries, and the bus has them."""
    async with in_memory() as first, engine.opened() as store:
        await FullStore(first).fill()
        await copied(first, store)
        async with store.operator() as operator:
            await operator.open()
            if operator.outbox is not None:
                assert await operator.outbox.unpublished() == {}
            if operator.feed is not None:
                assert await operator.feed.lags() == dict.fromkeys(GROUPS, 0)
