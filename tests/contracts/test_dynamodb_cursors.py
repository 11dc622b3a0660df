"""What is promised of positions on DynamoDB alone: several nodes and faults."""

import asyncio

import pytest

from parley.clock import iso
from parley.errors import OutcomeUnknown, StoreError
from parley.model import ReceiptKind
from parley.store import buffered_cursors as cursors
from parley.store.dynamodb.driver import Fault, Item, Request, Response, Send
from parley.testing.dynamodb_faults import (
    conflict,
    throttle,
    timeout_done,
    timeout_not_done,
    unprocessed,
)
from tests.contracts.acting import add_group, add_people, hearing, rises, said
from tests.contracts.dynamodb_engine import DynamoEngine, DynamoOpenStore
from tests.contracts.dynamodb_nodes import Counted, Later, On, item, nodes, refuse
from tests.contracts.test_cursors import written
from tests.harness.fault_plans import Planned
from tests.waiting import eventually

ATOMIC = DynamoEngine(None)


async def row(store: DynamoOpenStore, user: str, chat: str) -> tuple[object, ...]:
    """Received, read, and the revision of a person's row."""
    found = await item(store, "delivery_state", user_id=user, chat_id=chat)
    return found["last_acked_sequence"], found["read_up_to"], found["revision"]


async def test_two_nodes_raise_one_person_together() -> None:
    """Whatever the order of writes of two nodes, the highest positions stand in the end."""
    async with nodes(2) as (one, other):
        ann, chat = await written(one, 20)
        for high, low in ((18, 3), (19, 7), (20, 20)):
            one.cursors.note_acked(ann, "phone", chat, high, one.clock())
            other.cursors.note_acked(ann, "tablet", chat, low, one.clock())
            one.cursors.note_read(ann, chat, low, one.clock())
            other.cursors.note_read(ann, chat, low - 1, one.clock())
            await asyncio.gather(one.cursors.flush(), other.cursors.flush())
        assert (await row(one, ann, chat))[:2] == (20, 20)
        assert [await one.cursors.position(ann, device, chat) for device in ("phone", "tablet")] == [20, 20]


async def test_an_older_position_of_another_node_changes_nothing() -> None:
    """A node that is behind neither lowers a position nor makes the row look changed."""
    async with nodes(2) as (one, other):
        ann, chat = await written(one, 9)
        one.cursors.note_acked(ann, "phone", chat, 9, one.clock())
        one.cursors.note_read(ann, chat, 9, one.clock())
        await one.cursors.flush()
        before = await row(one, ann, chat)
        other.cursors.note_acked(ann, "phone", chat, 5, one.clock())
        other.cursors.note_read(ann, chat, 4, one.clock())
        await other.cursors.flush()
        assert await row(one, ann, chat) == before == (9, 9, 2)
        assert await other.cursors.position(ann, "phone", chat) == 9


async def test_a_node_that_is_ahead_in_one_position_does_not_lower_the_other() -> None:
    """What a person has received rises, and what they have read stays, although both are told at once."""
    async with nodes(2) as (one, other):
        ann, chat = await written(one, 9)
        one.cursors.note_read(ann, chat, 4, one.clock())
        await one.cursors.flush()
        other.cursors.note_acked(ann, "phone", chat, 9, one.clock())
        other.cursors.note_read(ann, chat, 2, one.clock())
        await other.cursors.flush()
        assert (await row(one, ann, chat))[:2] == (9, 4)


@pytest.mark.parametrize(
    ("acked", "read", "expected"),
    [(5, None, (5, 2)), (None, 6, (6, 6)), (3, 1, (4, 2)), (5, 1, (5, 2)), (1, 3, (4, 3)), (4, 2, (4, 2))],
)
async def test_each_position_rises_by_itself(
    acked: int | None, read: int | None, expected: tuple[int, int]
) -> None:
    """From received 4 and read 2, only what is higher moves; what is read counts as received."""
    async with ATOMIC.opened() as store:
        ann, chat = await written(store, 9)
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        if acked is not None:
            store.cursors.note_acked(ann, "phone", chat, acked, store.clock())
        if read is not None:
            store.cursors.note_read(ann, chat, read, store.clock())
        await store.cursors.flush()
        found = await row(store, ann, chat)
        assert found[:2] == expected
        assert found[2] == (2 if expected == (4, 2) else 3)


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done, conflict, throttle])
async def test_positions_get_through_faults(fault: Fault) -> None:
    """A lost answer, a conflict and throttling lose no position and count no change twice."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        faults.now = Planned(UpdateItem=[fault, None, fault])
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        assert await row(store, ann, chat) == (4, 2, 2)
        assert (await item(store, "user_device_cursors", user_id=ann, device_chat=f"phone\x1f{chat}"))[
            "last_acked_sequence"
        ] == 4


@pytest.mark.parametrize("table", ["delivery_state", "user_device_cursors"])
async def test_a_failed_write_keeps_its_note(table: str) -> None:
    """A flush that could not write says so; the next one writes what was noted."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        faults.now = On(refuse, "UpdateItem", table)
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        with pytest.raises(StoreError):
            await store.cursors.flush()
        assert await store.cursors.position(ann, "phone", chat) == 4
        faults.now = None
        await store.cursors.flush()
        assert await row(store, ann, chat) == (4, 0, 2)


async def test_one_failed_note_holds_up_no_other() -> None:
    """What can be written is written beside what cannot."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        other = await add_group(store, ann)
        await said(store, other, ann, "1")

        def refuse_one(operation: str, request: Request) -> Fault | None:
            return refuse if operation == "UpdateItem" and chat in str(request["Key"]) else None

        faults.now = refuse_one
        for at in (chat, other):
            store.cursors.note_acked(ann, "phone", at, 1, store.clock())
        with pytest.raises(StoreError):
            await store.cursors.flush()
        assert await row(store, ann, other) == (1, 0, 2)
        assert await row(store, ann, chat) == (0, 0, 1)


async def test_a_flush_that_is_cut_short_loses_nothing() -> None:
    """Whoever asked for the flush may go away in the middle of it."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        entered = asyncio.Event()

        async def hang(operation: str, request: Request, send: Send) -> Response:
            entered.set()
            await asyncio.Event().wait()
            return await send(operation, request)

        faults.now = On(hang, "UpdateItem")
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        flushing = asyncio.create_task(store.cursors.flush())
        await entered.wait()
        assert await store.cursors.position(ann, "phone", chat) == 4
        flushing.cancel()
        await asyncio.wait([flushing])
        faults.now = None
        assert await store.cursors.position(ann, "phone", chat) == 4
        await store.cursors.flush()
        assert await row(store, ann, chat) == (4, 0, 2)


async def test_who_waits_for_one_person_waits_for_nobody_else() -> None:
    """A flush of one person is done while another's write hangs, and says nothing of another's failure."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        (ben,) = await add_people(store, "ben")
        hanging = asyncio.Event()

        async def hang(operation: str, request: Request, send: Send) -> Response:
            hanging.set()
            await asyncio.Event().wait()
            return await send(operation, request)

        def hang_on_ben(operation: str, request: Request) -> Fault | None:
            return hang if operation == "UpdateItem" and ben in str(request["Key"]) else None

        faults.now = hang_on_ben
        store.cursors.note_acked(ben, "phone", chat, 1, store.clock())
        everybody = asyncio.create_task(store.cursors.flush())
        await hanging.wait()
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        await store.cursors.flush(ann)
        assert await row(store, ann, chat) == (4, 0, 2)
        everybody.cancel()
        await asyncio.wait([everybody])
        faults.now = None


async def test_a_failed_note_is_written_by_itself_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to ask again: what failed rides again after a while."""
    monkeypatch.setattr(cursors, "FLUSH_AFTER_SECONDS", 0.02)
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        faults.now = failing = On(refuse, "UpdateItem", "user_device_cursors")
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        await eventually(lambda: failing.met >= 2)
        faults.now = None

        async def is_there() -> bool:
            return (await row(store, ann, chat))[0] == 4

        await eventually(is_there)


async def test_who_is_in_no_chat_has_no_row() -> None:
    """Noting a position of a stranger makes no row that looks like a membership."""
    async with ATOMIC.opened() as store:
        _, chat = await written(store, 3)
        (ben,) = await add_people(store, "ben")
        store.cursors.note_acked(ben, "phone", chat, 2, store.clock())
        store.cursors.note_read(ben, chat, 2, store.clock())
        await store.cursors.flush()
        assert await store.store.dynamo.get("delivery_state", {"user_id": ben, "chat_id": chat}) is None
        assert await store.directory.chat_ids_of(ben) == []


async def test_a_flush_whose_outcome_stays_unknown_says_so() -> None:
    """Nobody is told that something is durable when nobody knows."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 3)
        store.cursors.note_acked(ann, "phone", chat, 2, store.clock())
        faults.now = On(timeout_not_done, "UpdateItem")
        with pytest.raises(OutcomeUnknown):
            await store.cursors.flush()
        faults.now = None


# Who hears of it


async def test_a_rise_is_told_although_its_answer_was_lost() -> None:
    """The second attempt finds it done by the first, and it is told once."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        heard = hearing(store)
        faults.now = Planned(UpdateItem=[None, timeout_done])
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        await store.cursors.flush()
        assert rises(heard) == [(ann, ReceiptKind.DELIVERED, 4), (ann, ReceiptKind.READ, 2)]


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
async def test_a_rise_in_doubt_is_told_when_it_is_known(fault: Fault) -> None:
    """Nothing is told while nobody knows; the next flush finds out, and tells it once."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        heard = hearing(store)
        faults.now = On(fault, "UpdateItem", "delivery_state")
        store.cursors.note_read(ann, chat, 4, store.clock())
        with pytest.raises(OutcomeUnknown):
            await store.cursors.flush()
        assert heard == []
        faults.now = None
        for _ in range(2):
            await store.cursors.flush()
            store.cursors.note_read(ann, chat, 4, store.clock())
        assert rises(heard) == [(ann, ReceiptKind.DELIVERED, 4), (ann, ReceiptKind.READ, 4)]


async def test_of_two_nodes_the_one_that_raised_a_position_tells_it() -> None:
    """Whoever comes second, or lower, has nothing to tell."""
    async with nodes(2) as (one, other):
        ann, chat = await written(one, 9)
        heard = hearing(one)
        also_heard = hearing(other)
        for node, sequence in ((one, 5), (other, 5), (other, 3), (other, 7)):
            node.cursors.note_acked(ann, "phone", chat, sequence, one.clock())
            await node.cursors.flush()
        assert (rises(heard), rises(also_heard)) == (
            [(ann, ReceiptKind.DELIVERED, 5)],
            [(ann, ReceiptKind.DELIVERED, 7)],
        )


async def test_what_fails_is_told_when_it_is_written() -> None:
    """A position of one chat is told although that of another could not be written."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        other = await add_group(store, ann)
        await said(store, other, ann, "1")
        heard = hearing(store)

        def refuse_one(operation: str, request: Request) -> Fault | None:
            return refuse if operation == "UpdateItem" and chat in str(request["Key"]) else None

        faults.now = refuse_one
        for at in (chat, other):
            store.cursors.note_read(ann, at, 1, store.clock())
        with pytest.raises(StoreError):
            await store.cursors.flush()
        assert {moved.chat_id for moved in heard} == {other}
        faults.now = None
        await store.cursors.flush()
        assert [moved.chat_id for moved in heard] == [other, other, chat, chat]


async def test_a_flush_that_is_cut_short_is_told_later() -> None:
    """What was written although nobody waited for it is told by the next flush."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        heard = hearing(store)
        done = asyncio.Event()

        async def hang(operation: str, request: Request, send: Send) -> Response:
            await send(operation, request)
            done.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody waits any more")

        faults.now = On(hang, "UpdateItem", "delivery_state")
        store.cursors.note_read(ann, chat, 4, store.clock())
        flushing = asyncio.create_task(store.cursors.flush())
        await done.wait()
        flushing.cancel()
        await asyncio.wait([flushing])
        faults.now = None
        assert heard == []
        await store.cursors.flush()
        assert rises(heard) == [(ann, ReceiptKind.DELIVERED, 4), (ann, ReceiptKind.READ, 4)]


async def test_what_receipts_cost() -> None:
    """An ack writes the device and the person, a read after it the person, and what does not rise nothing."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        faults.now = counted = Counted()
        store.cursors.note_acked(ann, "phone", chat, 5, store.clock())
        await store.cursors.flush()
        assert counted.met == {("UpdateItem", "user_device_cursors"): 1, ("UpdateItem", "delivery_state"): 1}
        counted.met.clear()
        store.cursors.note_read(ann, chat, 5, store.clock())
        await store.cursors.flush()
        assert counted.met == {("UpdateItem", "delivery_state"): 1}
        counted.met.clear()
        store.cursors.note_acked(ann, "tablet", chat, 4, store.clock())
        store.cursors.note_read(ann, chat, 3, store.clock())
        await store.cursors.flush()
        assert counted.met == {("UpdateItem", "user_device_cursors"): 1}
        assert await row(store, ann, chat) == (5, 5, 3)


async def test_what_is_known_of_people_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was forgotten is raised all the same, and never lowered."""
    monkeypatch.setattr(cursors, "POSITIONS_REMEMBERED_MAX", 2)
    async with ATOMIC.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(4)]
        for chat in chats:
            await said(store, chat, ann, "1", "2", "3")
        for sequence in (2, 1, 3):
            for chat in chats:
                store.cursors.note_read(ann, chat, sequence, store.clock())
            await store.cursors.flush()
        assert [await row(store, ann, chat) for chat in chats] == [(3, 3, 3)] * 4


async def test_a_row_that_parley_did_not_write_stops_nobody() -> None:
    """A position that is no number cannot be compared: it stays, and the flush ends."""
    async with ATOMIC.opened() as store:
        ann, chat = await written(store, 3)
        key: Item = {"user_id": ann, "chat_id": chat}
        await store.store.dynamo.update("delivery_state", key, "SET read_up_to = :odd", {":odd": "three"})
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        assert (await row(store, ann, chat))[1] == "three"


# Being seen, and devices that are no more


@pytest.mark.parametrize("fault", [None, timeout_done, timeout_not_done, conflict])
async def test_two_nodes_agree_on_when_somebody_was_seen(fault: Fault | None) -> None:
    """The later of two times stands, whichever node writes last, through faults as well."""
    faults = Later()
    async with nodes(2, faults=faults) as (one, other):
        (ann,) = await add_people(one, "ann")
        faults.now = Planned(UpdateItem=[fault, None, fault])
        for node, later_ms in ((one, 9), (other, 4)):
            node.accounts.note_seen(ann, one.clock() + later_ms)
            await node.kinds.raised.flush()
        found = await one.accounts.user(ann)
        assert found is not None
        assert found.last_seen == iso(one.clock() + 9)


async def test_nobody_is_seen_twice_for_nothing() -> None:
    """Of all that was noted of a person between two rides, one write is made."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        faults.now = counted = Counted()
        for later_ms in range(50):
            store.accounts.note_seen(ann, store.clock() + later_ms)
        await store.kinds.raised.flush()
        assert counted.met == {("UpdateItem", "records_people"): 1}


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done, throttle, unprocessed])
async def test_a_device_is_forgotten_through_faults(fault: Fault) -> None:
    """A lost answer, throttling and a half-done batch leave no position behind."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 3)
        chats = [chat, *[await add_group(store, ann) for _ in range(30)]]
        for at in chats:
            store.cursors.note_acked(ann, "phone", at, 0, store.clock())
        faults.now = Planned(BatchWriteItem=[fault])
        await store.cursors.forget_device(ann, "phone")
        assert (await store.store.dynamo.scan("user_device_cursors")).items == []


async def test_a_device_whose_positions_cannot_be_written_is_not_forgotten_yet() -> None:
    """What it had received counts for the person, so that is written first; whoever asked asks again."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 3)
        store.cursors.note_acked(ann, "phone", chat, 2, store.clock())
        faults.now = On(refuse, "UpdateItem")
        with pytest.raises(StoreError):
            await store.cursors.forget_device(ann, "phone")
        faults.now = None
        await store.cursors.forget_device(ann, "phone")
        assert await store.cursors.position(ann, "phone", chat) == 0
        assert (await row(store, ann, chat))[0] == 2
