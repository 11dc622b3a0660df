"""The `Inspection` port: the rows of a store as they are, and what `checks.check` finds in them.

Every test asks an engine that was never opened, beside the one that wrote the rows.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeVar

import pytest

from parley.checks.check import LATE_WRITE_MS_MAX, check
from parley.core.log_hash import StoredHash
from parley.model import Action, ChatType, Role, Session
from parley.store.cassandra import inspection as cassandra_inspection
from parley.store.dynamodb import scans
from parley.store.invariants import INVARIANTS, Findings, Progress
from parley.store.maintenance import Inspection
from parley.store.rows import ChatRow, CounterRow, EntryRow, LogChunk, MemberRow
from parley.store.rules import direct_key
from parley.store.tables import LOG_HASHES
from tests.contracts.acting import (
    add_contact,
    add_direct,
    add_group,
    add_people,
    block,
    change,
    message,
    new_id,
    rename,
    said,
    stored,
)
from tests.contracts.cassandra_engine import CassandraEngine
from tests.contracts.dynamodb_engine import DynamoEngine
from tests.contracts.engines import Engine, OpenStore

T = TypeVar("T")

UNKNOWN = ["", "chat_nowhere", "x" * 3000]
"""Ids that no chat has, some of which no key of a table could be."""
ENTRIES = 6
VOID_AT = 4


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(cassandra_inspection, "LOOK_AGAIN_SECONDS", (0.0,))


class Small(NamedTuple):
    """A group of Ann and Ben with messages 1, 2, 3, 5 and a void; Cas joined at 6. And a direct chat.

    Ben has a session, Ann has blocked him, and Cas is her contact.
    """

    ann: str
    ben: str
    cas: str
    group: str
    direct: str


async def small(store: OpenStore) -> Small:
    ann, ben, cas = await add_people(store, "ann", "ben", "cas")
    group, direct = await add_group(store, ann, ben), await add_direct(store, ann, ben)
    await said(store, group, ann, "one", "two", "three")
    await asyncio.to_thread(store.abandon, group, VOID_AT, store.clock())
    await said(store, group, ben, "five")
    await stored(store, change(group, ann, Action.JOINED, cas))
    await said(store, direct, ben, "psst")
    store.cursors.note_acked(ben, "phone", group, 3, store.clock())
    store.cursors.note_read(ben, group, 2, store.clock())
    await store.cursors.flush()
    session = Session("ses_ben", ben, "phone", "a phone", store.clock(), store.clock(), 2**52)
    await store.sessions.add(session, b"hash of a token")
    await block(store, ann, ben)
    await add_contact(store, ann, cas)
    return Small(ann, ben, cas, group, direct)


async def all_of(pages: AsyncIterator[list[T]]) -> list[T]:
    return [row async for page in pages for row in page]


async def chat_row(inspection: Inspection, chat_id: str) -> ChatRow:
    (chat,) = await all_of(inspection.chats([chat_id]))
    return chat


async def log_of(inspection: Inspection, chat_id: str) -> list[LogChunk]:
    return [chunk async for chunk in inspection.log(await chat_row(inspection, chat_id))]


async def entry_at(store: OpenStore, chat_id: str, sequence: int) -> EntryRow | None:
    async with store.operator() as operator:
        rows = [row for chunk in await log_of(operator.inspection, chat_id) for row in chunk.rows]
    return next((row for row in rows if row.sequence == sequence), None)


async def end_of(store: OpenStore, chat_id: str) -> CounterRow:
    async with store.operator() as operator:
        end = (await log_of(operator.inspection, chat_id))[-1].end
    assert end is not None
    return end


async def member_row(store: OpenStore, chat_id: str, user_id: str) -> MemberRow:
    async with store.operator() as operator:
        rows = await all_of(operator.inspection.members(await chat_row(operator.inspection, chat_id)))
    return next(row for row in rows if row.user_id == user_id)


async def checked(store: OpenStore, *chat_ids: str, whole: bool = True) -> Findings:
    """What a check finds."""
    async with store.operator() as operator:
        return await check(operator, list(chat_ids) or None, whole=whole)


# Chats


async def test_an_empty_store_has_no_rows(engine: Engine) -> None:
    """No chats, no positions and nothing broken."""
    async with engine.opened() as store, store.operator() as operator:
        inspection = operator.inspection
        assert await inspection.chat_count() in (0, None)
        assert await all_of(inspection.chats(None)) == []
        assert await all_of(inspection.positions(None)) == []
        assert [breach async for breach in inspection.own_breaches(None, whole=True)] == []


async def test_every_chat_comes_once(engine: Engine, pages_of_two: None) -> None:
    """All chats come, over as many pages as it takes, and as many as are counted."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        made = [await add_group(store, ann) for _ in range(5)]
        async with store.operator() as operator:
            found = [chat.chat_id for chat in await all_of(operator.inspection.chats(None))]
            assert (sorted(found), await operator.inspection.chat_count() in (5, None)) == (
                sorted(made),
                True,
            )


async def test_a_chat_comes_with_its_facts(engine: Engine) -> None:
    """Type, epoch and the key of a direct chat are as stored."""
    async with engine.opened() as store:
        world = await small(store)
        async with store.operator() as operator:
            group = await chat_row(operator.inspection, world.group)
            direct = await chat_row(operator.inspection, world.direct)
        key = direct_key([world.ann, world.ben])
        assert (group.chat_type, group.epoch, group.direct_key) == (ChatType.GROUP.value, 1, None)
        assert (direct.chat_type, direct.direct_key) == (ChatType.DIRECT.value, key)
        assert (group.is_keyed or group.direct_key is None, direct.is_keyed) == (True, True)


async def test_only_chats_that_were_asked_for_and_exist_come(engine: Engine) -> None:
    """Unknown ids are left out, an id that is named twice comes once, and no ids are no chats."""
    async with engine.opened() as store:
        world = await small(store)
        async with store.operator() as operator:
            asked = [*UNKNOWN, world.direct, world.direct]
            found = await all_of(operator.inspection.chats(asked))
            assert [chat.chat_id for chat in found] == [world.direct]
            assert await all_of(operator.inspection.chats([])) == []


# Members


async def test_members_come_in_the_order_of_their_ids(engine: Engine, pages_of_two: None) -> None:
    """Each once, over as many pages as it takes."""
    async with engine.opened() as store:
        people = await add_people(store, "eva", "dan", "cas", "ben", "ann")
        group = await add_group(store, *people)
        async with store.operator() as operator:
            chat = await chat_row(operator.inspection, group)
            members = await all_of(operator.inspection.members(chat))
        assert [member.user_id for member in members] == sorted(people)


async def test_a_member_comes_with_facts(engine: Engine) -> None:
    """Role and place are as stored; the member has an account and finds the chat."""
    async with engine.opened() as store:
        world = await small(store)
        expected = MemberRow(world.cas, Role.MEMBER.value, ENTRIES, has_account=True, in_overview=True)
        assert await member_row(store, world.group, world.cas) == expected


async def test_a_member_without_an_account_comes_as_such(engine: Engine) -> None:
    """A lost account shows in the member's row."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_user(world.ben)
        row = await member_row(store, world.group, world.ben)
        assert (row.has_account, row.in_overview) == (False, True)


async def test_a_member_who_does_not_find_the_chat_comes_as_such(engine: Engine) -> None:
    """A lost place in the overview shows in the member's row."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_state(world.cas, world.group)
        row = await member_row(store, world.group, world.cas)
        assert (row.has_account, row.in_overview) == (True, False)


# The log


async def test_a_log_comes_in_the_order_of_its_numbers(engine: Engine, pages_of_two: None) -> None:
    """Every position once, over several chunks, of which only the last has the counter."""
    async with engine.opened() as store:
        world = await small(store)
        async with store.operator() as operator:
            chunks = await log_of(operator.inspection, world.group)
        assert [row.sequence for chunk in chunks for row in chunk.rows] == list(range(1, ENTRIES + 1))
        assert len(chunks) > 1
        assert [chunk.end is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_an_entry_comes_with_what_its_row_says(engine: Engine) -> None:
    """The entry as a reader gets it, and the ids that the row has for it."""
    async with engine.opened() as store:
        world = await small(store)
        sent = await stored(store, message(world.group, world.ben, "hello"))
        row = await entry_at(store, world.group, sent.sequence)
        assert row is not None
        assert row.entry is not None
        assert (row.is_void, row.kind, row.damage) == (False, "message", None)
        assert (row.message_id, row.sender_id) == (sent.message_id, world.ben)
        assert (row.entry.content, row.entry.created_at) == ("hello", sent.created_at)


async def test_a_void_comes_without_contents(engine: Engine) -> None:
    """A number that was given up is neither an entry nor missing."""
    async with engine.opened() as store:
        world = await small(store)
        row = await entry_at(store, world.group, VOID_AT)
        assert row is not None
        assert (row.is_void, row.entry, row.has_content) == (True, None, False)


async def test_an_empty_log_is_one_chunk(engine: Engine) -> None:
    """A chat in which nothing was said has a counter, and that is all."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        group = await add_group(store, ann)
        async with store.operator() as operator:
            (chunk,) = await log_of(operator.inspection, group)
        assert chunk.end is not None
        assert (chunk.rows, chunk.open, chunk.end.counter) == ([], {}, 0)


async def test_the_counter_comes_with_the_end_of_the_log(engine: Engine) -> None:
    """It is the last number that was given."""
    async with engine.opened() as store:
        world = await small(store)
        assert (await end_of(store, world.group)).counter == ENTRIES


async def test_a_lost_counter_comes_as_such(engine: Engine) -> None:
    """The log of a chat without a counter comes as ever, and its end says that there is none."""
    async with engine.opened() as store:
        world = await small(store)
        store.set_counter(world.group, None)
        assert (await end_of(store, world.group)).counter is None
        assert await entry_at(store, world.group, ENTRIES) is not None


async def test_a_lost_entry_is_certainly_missing(engine: Engine) -> None:
    """Its number does not come, is not open, and lies where nothing may be missing."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_entry(world.group, 2)
        async with store.operator() as operator:
            chunks = await log_of(operator.inspection, world.group)
        assert 2 not in [row.sequence for chunk in chunks for row in chunk.rows]
        assert not any(2 in chunk.open for chunk in chunks)
        assert min(chunk.certain_through for chunk in chunks) >= 2


async def test_an_entry_without_its_body_comes_as_such(engine: Engine) -> None:
    """Its row is there, with nothing to give to a reader."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_body(world.group, 2)
        row = await entry_at(store, world.group, 2)
        assert row is not None
        assert (row.is_void, row.entry) == (False, None)


# Keys


async def test_keys_come_in_their_order(engine: Engine, pages_of_two: None) -> None:
    """Each once over several pages, and each leads to its message."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        group = await add_group(store, ann)
        names = [new_id() for _ in range(5)]
        for name in (names[place] for place in (3, 0, 4, 1, 2)):
            await stored(store, message(group, ann, client_id=name))
        await stored(store, rename(group, ann, "a change has no key"))
        async with store.operator() as operator:
            keys = await all_of(operator.inspection.keys(await chat_row(operator.inspection, group)))
        assert [key.sequence for key in sorted(keys, key=lambda key: key.sequence)] == [1, 2, 3, 4, 5]
        assert keys == sorted(keys, key=lambda key: key.key)
        assert all(key.agrees for key in keys)


async def test_a_chat_without_keys_has_none(engine: Engine) -> None:
    """Keys that have expired do not come."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_keys(world.group)
        async with store.operator() as operator:
            chat = await chat_row(operator.inspection, world.group)
            assert await all_of(operator.inspection.keys(chat)) == []


# Positions


async def positions(
    store: OpenStore, chat_ids: list[str] | None = None
) -> dict[tuple[str, str], tuple[int, int]]:
    """How far devices and people are, by table and chat; only those who are anywhere."""
    async with store.operator() as operator:
        rows = await all_of(operator.inspection.positions(chat_ids))
    return {(row.table, row.chat_id): (row.acked, row.read) for row in rows if row.acked or row.read}


async def test_positions_of_devices_and_people_come(engine: Engine, pages_of_two: None) -> None:
    """Those of devices and those of people, in every chat."""
    async with engine.opened() as store:
        world = await small(store)
        store.cursors.note_read(world.ann, world.direct, 1, store.clock())
        await store.cursors.flush()
        assert await positions(store) == {
            ("user_device_cursors", world.group): (3, 0),
            ("delivery_state", world.group): (3, 2),
            ("delivery_state", world.direct): (1, 1),
        }


async def test_positions_in_the_named_chats_come(engine: Engine, pages_of_two: None) -> None:
    """Only those of members of these chats; unknown chats have none."""
    async with engine.opened() as store:
        world = await small(store)
        store.cursors.note_read(world.ann, world.direct, 1, store.clock())
        await store.cursors.flush()
        assert await positions(store, [world.direct, *UNKNOWN]) == {("delivery_state", world.direct): (1, 1)}
        assert await positions(store, []) == {}


async def test_a_position_that_is_not_in_the_log_comes_as_such(engine: Engine) -> None:
    """What a device acknowledged and the log has lost is not stored; the end of the log comes with it."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.set_acked(world.ben, "phone", world.group, ENTRIES + 3)
        async with store.operator() as operator:
            rows = await all_of(operator.inspection.positions([world.group]))
        (row,) = [row for row in rows if row.table == "user_device_cursors"]
        assert (row.acked, row.is_stored, row.log_end) == (ENTRIES + 3, False, ENTRIES)


async def test_a_position_that_is_in_the_log_is_stored(engine: Engine) -> None:
    """An acknowledged void counts as stored, too."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.set_acked(world.ben, "phone", world.group, VOID_AT)
        async with store.operator() as operator:
            rows = await all_of(operator.inspection.positions(None))
        assert all(row.is_stored for row in rows)


# What a check makes of it


async def test_a_whole_store_keeps_every_invariant(engine: Engine) -> None:
    """Nothing is found in a store that only its own engine has written."""
    async with engine.opened() as store:
        await small(store)
        findings = await checked(store)
        assert findings.breaches == []
        assert (findings.chats, findings.entries, findings.voids) == (2, ENTRIES, 1)
        assert findings.open_allocations == 0


Breaking = Callable[[OpenStore, Small], None]
BREAKING: dict[str, tuple[str, Breaking]] = {
    "counter lost": ("counter_must_exist", lambda s, w: s.set_counter(w.group, None)),
    "counter behind": ("entries_within_counter", lambda s, w: s.set_counter(w.group, ENTRIES - 1)),
    "counter far behind": ("counter_lower_bound", lambda s, w: s.set_counter(w.group, 3)),
    "entry lost": ("log_density", lambda s, w: s.rows.delete_entry(w.group, 2)),
    "void lost": (
        "gap_is_allocation_without_persistence",
        lambda s, w: s.rows.delete_entry(w.group, VOID_AT),
    ),
    "first entry lost": ("sync_completeness", lambda s, w: s.rows.delete_entry(w.group, 1)),
    "acknowledged entry lost": ("ack_implies_persistence", lambda s, w: s.rows.delete_entry(w.group, 3)),
    "body lost": ("sync_completeness", lambda s, w: s.rows.delete_body(w.group, 2)),
    "hash of another log": (
        "log_hash_agreement",
        lambda s, w: s.load(LOG_HASHES, StoredHash(chat_id=w.group, epoch=1, sequence=3, value=bytes(32))),
    ),
    "account lost": ("membership", lambda s, w: s.rows.delete_user(w.cas)),
    "place in the overview lost": ("membership", lambda s, w: s.rows.delete_state(w.cas, w.group)),
    "no owner": ("membership", lambda s, w: s.rows.set_role(w.group, w.ann, Role.MEMBER)),
    "read too far": ("delivery_state_consistency", lambda s, w: s.rows.set_read(w.ben, w.group, 99)),
    "read before delivery": ("delivery_state_consistency", lambda s, w: s.rows.set_read(w.ben, w.group, 5)),
    "received too far": ("delivery_state_consistency", lambda s, w: s.rows.set_delivered(w.ben, w.group, 99)),
    "key of others": (
        "direct_uniqueness",
        lambda s, w: s.rows.set_direct_key(w.direct, direct_key([w.ann, w.cas])),
    ),
}
"""What each engine can be made to break, and the invariant that this is."""


@pytest.mark.parametrize("way", BREAKING)
async def test_a_broken_invariant_is_named(engine: Engine, way: str) -> None:
    """Whatever a person breaks is found under the invariant's own name, with what to do."""
    async with engine.opened() as store:
        world = await small(store)
        invariant, breaking = BREAKING[way]
        breaking(store, world)
        findings = await checked(store)
        found = [breach for breach in findings.breaches if breach.invariant == invariant]
        assert found, findings.breaches
        assert all(breach.says and breach.remedy for breach in found)


@pytest.mark.parametrize("sequence", range(1, ENTRIES + 1))
async def test_a_hole_is_found_wherever_a_page_ends(
    engine: Engine, sequence: int, pages_of_two: None
) -> None:
    """With chunks of two entries, a lost entry is found at every place."""
    # On DynamoDB alone, a lost last number of two_phase looks like one that is not written yet.
    async with engine.opened() as store:
        world = await small(store)
        assert (await checked(store)).is_clean
        store.rows.delete_entry(world.group, sequence)
        findings = await checked(store)
        holes = [breach.sequence for breach in findings.breaches if breach.invariant == "log_density"]
        is_open = (
            isinstance(engine, DynamoEngine | CassandraEngine)
            and engine.sequencing == "two_phase"
            and sequence == ENTRIES
        )
        assert (holes, findings.open_allocations) == (([], 1) if is_open else ([sequence], 0))


@pytest.mark.parametrize("sequence", [1, 2, 3, 5, 6])
async def test_a_lost_body_is_found_wherever_a_page_ends(
    engine: Engine, sequence: int, pages_of_two: None
) -> None:
    """With chunks of two entries, an emptied entry is found at every place."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_body(world.group, sequence)
        findings = await checked(store)
        assert [b.sequence for b in findings.breaches if b.invariant == "sync_completeness"] == [sequence]


async def test_what_an_engine_cannot_show_is_named(engine: Engine) -> None:
    """The invariants that are not shown are known ones, and most are shown."""
    async with engine.opened() as store, store.operator() as operator:
        not_shown = operator.inspection.not_shown
        assert not_shown < INVARIANTS.keys()
        assert not_shown.isdisjoint(invariant for invariant, _ in BREAKING.values())


async def test_an_open_number_is_no_breach(engine: Engine) -> None:
    """A number that was just taken and is not yet written is neither a hole nor lost."""
    if engine.sequencing == "atomic":
        pytest.skip("in atomic no number is ever open")
    async with engine.opened() as store:
        world = await small(store)
        await asyncio.to_thread(store.abandon, world.group, ENTRIES + 1, store.clock())
        findings = await checked(store)
        assert (findings.breaches, findings.open_allocations) == ([], 1)


async def test_an_expired_key_is_no_breach(engine: Engine) -> None:
    """A key that was let go after its days leaves its message whole."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_keys(world.group)
        assert (await checked(store)).breaches == []


async def test_only_the_named_chats_are_checked(engine: Engine) -> None:
    """A breach in one chat is not told when another one was asked for."""
    async with engine.opened() as store:
        world = await small(store)
        store.set_counter(world.group, None)
        store.rows.set_read(world.ben, world.group, 99)
        assert (await checked(store, world.direct)).breaches == []
        found = {breach.invariant for breach in (await checked(store, world.group)).breaches}
        assert found == {"counter_must_exist", "delivery_state_consistency"}


async def test_a_check_may_leave_out_what_takes_long(engine: Engine) -> None:
    """A check of the chats alone finds what is broken in them."""
    async with engine.opened() as store:
        world = await small(store)
        assert (await checked(store, whole=False)).breaches == []
        store.rows.delete_entry(world.group, 2)
        assert (await checked(store, whole=False)).counts["log_density"] == 1


async def test_a_check_tells_how_far_it_is(engine: Engine) -> None:
    """Progress rises to all chats and all entries."""
    async with engine.opened() as store:
        await small(store)
        told: list[Progress] = []
        async with store.operator() as operator:
            findings = await check(operator, on_progress=told.append)
        assert told == sorted(told, key=lambda progress: (progress.chats, progress.entries))
        assert told[-1] == Progress(2, 2, findings.entries)


async def test_a_check_writes_nothing(engine: Engine) -> None:
    """Everything in a broken store is as before, when all of it was looked at."""
    async with engine.opened() as store:
        world = await small(store)
        store.rows.delete_entry(world.group, 2)
        store.set_counter(world.direct, None)
        before = store.rows.everything()
        assert not (await checked(store)).is_clean
        assert store.rows.everything() == before


async def test_a_store_at_work_looks_whole(engine: Engine) -> None:
    """While people write and read, every check is clean."""
    async with engine.opened() as store:
        world = await small(store)
        work = asyncio.ensure_future(live(store, world))
        checks = 0
        while not work.done() or not checks:
            assert (await checked(store)).breaches == []
            checks += 1
            await asyncio.sleep(0)
        await work
        assert (await checked(store)).breaches == []


async def live(store: OpenStore, world: Small) -> None:
    for number in range(12):
        sent = await stored(store, message(world.group, world.ann, f"{number}"))
        await stored(store, rename(world.group, world.ann, f"{number}"))
        store.cursors.note_acked(world.ben, "phone", world.group, sent.sequence, store.clock())
        await store.cursors.flush()
        store.clock.advance(LATE_WRITE_MS_MAX // 10)
