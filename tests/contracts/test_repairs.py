"""The `Repairs` port, and the recovery of lost counters that `checks.recovery` makes of it.

Every test repairs by an engine that was never opened, beside the one that serves the chat.
"""

import asyncio
from collections.abc import Callable

import pytest

from parley.checks.recovery import ImplausibleNumber, Recovery, recover
from parley.errors import CounterMissingError, InconsistentCounterError
from parley.model import Action
from parley.store.cassandra import inspection as cassandra_inspection
from parley.store.dynamodb import scans
from parley.store.invariants import NoSuchChat
from parley.store.rows import Remains, Repair
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    contents,
    head_of,
    message,
    position_of,
    read_all,
    resolved,
    said,
    stored,
)
from tests.contracts.cassandra_engine import CassandraEngine
from tests.contracts.dynamodb_engine import DynamoEngine
from tests.contracts.engines import Engine, OpenStore

ENTRIES = 4
UNKNOWN = ["", "chat_nowhere", "x" * 3000]


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(cassandra_inspection, "LOOK_AGAIN_SECONDS", (0.0,))


async def written(store: OpenStore) -> tuple[str, str, str]:
    """Ann and Ben, and their group with entries 1 to 4; Ben's phone is at 2."""
    ann, ben = await add_people(store, "ann", "ben")
    group = await add_group(store, ann, ben)
    await said(store, group, ann, *(f"{number}" for number in range(1, ENTRIES + 1)))
    store.cursors.note_acked(ben, "phone", group, 2, store.clock())
    await store.cursors.flush()
    return ann, ben, group


async def remains_of(store: OpenStore, chat_id: str) -> Remains:
    async with store.operator() as operator:
        return await operator.repairs.remains(chat_id)


async def holes_in(store: OpenStore, chat_id: str, first: int, last: int) -> list[tuple[int, int]]:
    async with store.operator() as operator:
        return await operator.repairs.holes(chat_id, first, last)


async def write(store: OpenStore, repair: Repair) -> int:
    async with store.operator() as operator:
        return await operator.repairs.write(repair)


async def recovered(
    store: OpenStore, chat_id: str, *, apply: bool = True, seal_holes: bool = False
) -> Recovery:
    async with store.operator() as operator:
        return await recover(operator, chat_id, apply=apply, seal_holes=seal_holes)


async def lost(store: OpenStore, chat_id: str, counter: int, *voids: tuple[int, int]) -> Repair:
    """The repair of a chat that has no counter."""
    return Repair(chat_id, counter, True, list(voids), await remains_of(store, chat_id))


async def sealing(store: OpenStore, chat_id: str, counter: int, *voids: tuple[int, int]) -> Repair:
    """The repair of holes in a chat that has its counter."""
    return Repair(chat_id, counter, False, list(voids), await remains_of(store, chat_id))


async def may_raise(store: OpenStore) -> bool:
    async with store.operator() as operator:
        return operator.repairs.may_raise


# Looking


async def test_a_store_without_chats_lacks_no_counter(engine: Engine) -> None:
    """There is nothing to recover."""
    async with engine.opened() as store, store.operator() as operator:
        assert await operator.repairs.chats_without_counter() == []


async def test_every_chat_without_a_counter_is_found(engine: Engine, pages_of_two: None) -> None:
    """Those that lost it, over as many pages as it takes, and no others."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        groups = [await add_group(store, ann) for _ in range(5)]
        for group in (groups[0], groups[3], groups[4]):
            store.set_counter(group, None)
        async with store.operator() as operator:
            found = await operator.repairs.chats_without_counter()
        assert sorted(found) == sorted([groups[0], groups[3], groups[4]])


async def test_a_counter_that_fell_back_is_found_if_it_may_be_raised(engine: Engine) -> None:
    """A counter in the store's own tables needs a person first."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, ENTRIES - 1)
        async with store.operator() as operator:
            found = await operator.repairs.chats_without_counter()
            assert found == ([group] if operator.repairs.may_raise else [])


async def test_the_traces_of_a_whole_chat_agree(engine: Engine) -> None:
    """Counter, entries and keys know the same number, and positions theirs."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        found = await remains_of(store, group)
        assert (found.counter, found.entries, found.keys) == (ENTRIES, ENTRIES, ENTRIES)
        assert (found.device_cursors, found.delivery_state) == (2, 2)
        assert (found.voids, found.open_allocations, found.trimmed) == (0, 0, 0)


async def test_an_empty_chat_leaves_no_traces(engine: Engine) -> None:
    """Its counter is at 0, and nothing else knows a number."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        group = await add_group(store, ann)
        found = await remains_of(store, group)
        assert (found.counter, found.maximum) == (0, 0)


async def test_a_lost_counter_shows_in_the_traces(engine: Engine) -> None:
    """None is not 0."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, None)
        assert (await remains_of(store, group)).counter is None


KNOWING: dict[str, tuple[str, Callable[[OpenStore, str, str], None]]] = {
    "received": ("delivery_state", lambda s, ben, group: s.rows.set_delivered(ben, group, 8)),
    "read": ("delivery_state", lambda s, ben, group: s.rows.set_read(ben, group, 8)),
    "acknowledged": ("device_cursors", lambda s, ben, group: s.rows.set_acked(ben, "phone", group, 8)),
}


@pytest.mark.parametrize("has_left", [False, True])
@pytest.mark.parametrize("way", KNOWING)
async def test_every_position_that_knows_a_number_counts(engine: Engine, way: str, has_left: bool) -> None:
    """The counter becomes the highest number that anything knows of, people who left included."""
    async with engine.opened() as store:
        ann, ben, group = await written(store)
        if has_left:
            await stored(store, change(group, ann, Action.REMOVED, ben))
        source, know = KNOWING[way]
        know(store, ben, group)
        store.set_counter(group, None)
        recovery = await recovered(store, group, apply=False)
        assert (getattr(recovery.remains, source), recovery.counter) == (8, 8)


async def test_a_void_beyond_the_last_entry_counts(engine: Engine) -> None:
    """The log ends at a void: the counter goes on after it."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, ENTRIES + 2)
        await write(store, await sealing(store, group, ENTRIES + 2, (ENTRIES + 1, ENTRIES + 2)))
        store.set_counter(group, None)
        recovery = await recovered(store, group, apply=False)
        assert (recovery.remains.voids, recovery.counter) == (ENTRIES + 2, ENTRIES + 2)


async def test_a_number_that_is_known_to_be_open_counts(engine: Engine) -> None:
    """The counter goes on after it; on DynamoDB a number leaves no trace until it is written."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        await asyncio.to_thread(store.abandon, group, ENTRIES + 1, store.clock())
        store.set_counter(group, None)
        recovery = await recovered(store, group, apply=False)
        assert recovery.counter == (
            ENTRIES if isinstance(engine, DynamoEngine | CassandraEngine) else ENTRIES + 1
        )


async def test_a_whole_log_has_no_holes(engine: Engine) -> None:
    """Neither up to its end, nor in a range of no numbers."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        assert await holes_in(store, group, 1, ENTRIES) == []
        assert await holes_in(store, group, ENTRIES + 1, ENTRIES) == []


async def test_holes_are_ranges(engine: Engine, pages_of_two: None) -> None:
    """Numbers that miss side by side are one range, also those behind the end of the log."""
    async with engine.opened() as store:
        ann, _, group = await written(store)
        await said(store, group, ann, "5", "6", "7")
        for sequence in (1, 3, 4, 7):
            store.rows.delete_entry(group, sequence)
        assert await holes_in(store, group, 1, 9) == [(1, 1), (3, 4), (7, 9)]
        assert await holes_in(store, group, 4, 6) == [(4, 4)]


async def test_a_number_that_is_known_to_be_open_is_no_hole(engine: Engine) -> None:
    """An open number may still be written, so it is no hole, except on DynamoDB, which keeps none."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        await asyncio.to_thread(store.abandon, group, ENTRIES + 1, store.clock())
        expected = [(ENTRIES + 1, ENTRIES + 1)] if isinstance(engine, DynamoEngine | CassandraEngine) else []
        assert await holes_in(store, group, 1, ENTRIES + 1) == expected


@pytest.mark.parametrize("chat_id", UNKNOWN, ids=len)
async def test_an_unknown_chat_is_told(engine: Engine, chat_id: str) -> None:
    """There is nothing to look at or to repair where there is no chat."""
    async with engine.opened() as store, store.operator() as operator:
        repairs, remains = operator.repairs, Remains(chat_id=chat_id, counter=None, entries=0)
        for is_lost in (True, False):
            with pytest.raises(NoSuchChat):
                await repairs.write(Repair(chat_id, 1, is_lost, [], remains))
        with pytest.raises(NoSuchChat):
            await repairs.remains(chat_id)
        with pytest.raises(NoSuchChat):
            await repairs.holes(chat_id, 1, 2)


async def test_looking_writes_nothing(engine: Engine) -> None:
    """Everything in a broken store is as before."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, None)
        store.rows.delete_entry(group, 2)
        before = store.rows.everything()
        async with store.operator() as operator:
            await operator.repairs.chats_without_counter()
            await operator.repairs.remains(group)
            await operator.repairs.holes(group, 1, 9)
        assert store.rows.everything() == before


async def test_it_is_said_how_a_counter_is_deleted(engine: Engine) -> None:
    """What a person has to run names the chat."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        async with store.operator() as operator:
            assert group in operator.repairs.how_to_delete_counter(group)


# Writing


async def test_a_lost_counter_is_written(engine: Engine) -> None:
    """Its value is returned, and is there."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, None)
        assert await write(store, await lost(store, group, ENTRIES)) == ENTRIES
        assert store.counter(group) == ENTRIES


async def test_a_running_server_notices_the_counter(engine: Engine) -> None:
    """The next message takes the next number, though the server remembers the time without a counter."""
    async with engine.opened() as store:
        ann, ben, group = await written(store)
        store.set_counter(group, None)
        await store.log.append([message(group, ann, "refused")])
        await write(store, await lost(store, group, ENTRIES))
        assert (await stored(store, message(group, ben, "after"))).sequence == ENTRIES + 1


async def test_a_running_server_notices_voids(engine: Engine) -> None:
    """The next message comes after the numbers that became void, and readers pass over them."""
    async with engine.opened() as store:
        ann, _, group = await written(store)
        store.set_counter(group, None)
        await write(store, await lost(store, group, 7, (5, 7)))
        assert (await stored(store, message(group, ann))).sequence == 8
        page = await store.log.read(group, 0, 100)
        assert (page.voids, resolved(page)) == ([5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8])
        assert (await head_of(store, group), (await position_of(store, ann, group)).head) == (8, 8)


async def test_what_was_written_survives_a_restart(engine: Engine) -> None:
    """Counter and voids are durable."""
    async with engine.opened() as store:
        ann, _, group = await written(store)
        store.set_counter(group, None)
        await write(store, await lost(store, group, 6, (5, 6)))
        await store.reopen()
        assert (await store.log.read(group, 0, 100)).voids == [5, 6]
        assert (await stored(store, message(group, ann))).sequence == 7


@pytest.mark.parametrize("back_at", [ENTRIES, ENTRIES + 5])
async def test_a_counter_that_came_back_is_not_overwritten(engine: Engine, back_at: int) -> None:
    """The caller is told, unless the counter's service takes the higher of both numbers."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, None)
        repair = await lost(store, group, ENTRIES)
        store.set_counter(group, back_at)
        if await may_raise(store):
            assert await write(store, repair) == back_at
        else:
            with pytest.raises(CounterMissingError, match="meanwhile"):
                await write(store, repair)
        assert store.counter(group) == back_at


async def test_a_counter_that_was_lost_meanwhile_is_told(engine: Engine) -> None:
    """A repair of holes alone does not say that a chat has a counter which it has not."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.rows.delete_entry(group, 2)
        repair = await sealing(store, group, ENTRIES, (2, 2))
        store.set_counter(group, None)
        with pytest.raises(CounterMissingError, match="meanwhile"):
            await write(store, repair)
        assert store.counter(group) is None


async def test_a_repair_may_be_repeated(engine: Engine) -> None:
    """Holes that are voids already stay as they are."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        for sequence in (2, 3):
            store.rows.delete_entry(group, sequence)
        repair = await sealing(store, group, ENTRIES, (2, 3))
        assert [await write(store, repair) for _ in range(2)] == [ENTRIES, ENTRIES]
        assert (await store.log.read(group, 0, 100)).voids == [2, 3]


async def test_a_void_never_takes_the_place_of_an_entry(engine: Engine) -> None:
    """What was written at a number meanwhile stays there."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        await write(store, await sealing(store, group, ENTRIES, (1, ENTRIES)))
        assert contents(await read_all(store, group)) == ["1", "2", "3", "4"]


async def test_the_counter_as_it_is_now_is_returned(engine: Engine) -> None:
    """A server may have given numbers since the repair was decided."""
    async with engine.opened() as store:
        ann, _, group = await written(store)
        store.rows.delete_entry(group, 2)
        repair = await sealing(store, group, ENTRIES, (2, 2))
        await stored(store, message(group, ann, "meanwhile"))
        assert await write(store, repair) == ENTRIES + 1


# Recovering


async def test_a_dry_run_changes_nothing(engine: Engine) -> None:
    """Without `apply` it is told what would be written, and nothing is."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, None)
        before = store.rows.everything()
        recovery = await recovered(store, group, apply=False)
        assert (recovery.is_lost, recovery.counter, recovery.applied) == (True, ENTRIES, False)
        assert (store.rows.everything(), store.counter(group)) == (before, None)


async def test_a_lost_counter_is_recovered(engine: Engine) -> None:
    """It is the highest number, it is verified, and a check finds nothing any more."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, None)
        recovery = await recovered(store, group)
        assert (recovery.applied, recovery.breaches, store.counter(group)) == (True, [], ENTRIES)
        assert store.breaches() == []


async def test_all_lost_counters_are_recovered(engine: Engine) -> None:
    """One engine recovers every chat that it found."""
    async with engine.opened() as store:
        ann, _, group = await written(store)
        other = await add_group(store, ann)
        for chat_id in (group, other):
            store.set_counter(chat_id, None)
        async with store.operator() as operator:
            for chat_id in await operator.repairs.chats_without_counter():
                await recover(operator, chat_id, apply=True)
            assert await operator.repairs.chats_without_counter() == []
        assert (store.counter(group), store.counter(other)) == (ENTRIES, 0)


async def test_a_counter_behind_its_log_needs_a_person(engine: Engine) -> None:
    """It is refused in the sources' own words and stays, unless it may be raised."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, 2)
        if await may_raise(store):
            recovery = await recovered(store, group)
            assert (recovery.is_lost, store.counter(group)) == (True, ENTRIES)
        else:
            with pytest.raises(InconsistentCounterError, match=f"2 but max message sequence is {ENTRIES}"):
                await recovered(store, group)
            assert store.counter(group) == 2


async def test_a_counter_that_is_fine_is_left_alone(engine: Engine) -> None:
    """Recovering a healthy chat writes nothing."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        before = store.rows.everything()
        recovery = await recovered(store, group)
        assert (recovery.is_lost, recovery.counter, recovery.voids) == (False, ENTRIES, [])
        assert store.rows.everything() == before


async def test_a_counter_ahead_of_its_log_is_left_alone(engine: Engine) -> None:
    """Numbers that were taken and not written yet are not given again."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, ENTRIES + 3)
        assert not (await recovered(store, group)).is_lost
        assert store.counter(group) == ENTRIES + 3


async def test_a_cursor_beyond_the_log_counts(engine: Engine) -> None:
    """When entries are lost too, the chat goes on above what a device has seen, and the rest is void."""
    async with engine.opened() as store:
        _, ben, group = await written(store)
        store.rows.delete_keys(group)
        for sequence in (3, 4):
            store.rows.delete_entry(group, sequence)
        store.rows.set_acked(ben, "phone", group, 9)
        store.set_counter(group, None)
        recovery = await recovered(store, group)
        assert (recovery.counter, recovery.voids, recovery.breaches) == (9, [(3, 9)], [])
        await store.reopen()
        assert (await store.log.read(group, 0, 100)).voids == list(range(3, 10))


async def test_a_number_too_far_away_is_not_believed(engine: Engine) -> None:
    """A cursor millions beyond the log is told as a mistake, and nothing is written."""
    async with engine.opened() as store:
        _, ben, group = await written(store)
        store.rows.set_acked(ben, "phone", group, 5_000_000)
        store.set_counter(group, None)
        before = store.rows.everything()
        with pytest.raises(ImplausibleNumber, match="must be a mistake"):
            await recovered(store, group)
        assert (store.rows.everything(), store.counter(group)) == (before, None)


async def test_holes_are_given_up_only_when_asked(engine: Engine) -> None:
    """A lost entry stays a hole, which verification tells, until it is sealed."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.rows.delete_keys(group)
        for sequence in (2, 3):
            store.rows.delete_entry(group, sequence)
        told = (await recovered(store, group)).breaches
        assert {breach.sequence for breach in told if breach.invariant == "log_density"} == {2}
        sealed = await recovered(store, group, seal_holes=True)
        assert (sealed.voids, sealed.breaches) == ([(2, 3)], [])


async def test_numbers_that_a_counter_gave_away_are_sealed(engine: Engine) -> None:
    """A counter that a person moved ahead is whole again once its numbers are voids."""
    async with engine.opened() as store:
        _, _, group = await written(store)
        store.set_counter(group, 7)
        assert (await recovered(store, group, seal_holes=True)).voids == [(5, 7)]
        assert store.breaches() == []
