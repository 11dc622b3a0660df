"""What is promised of positions and overviews on DynamoDB alone: several nodes, faults, tokens."""

import asyncio
from collections.abc import Sequence

import pytest

from parley.errors import OutcomeUnknown, StoreError
from parley.model import Action, Head
from parley.store.dynamodb import cursors, overview, overview_positions
from parley.store.dynamodb.answers import Answer
from parley.store.dynamodb.calling import Fault, Request, Send
from parley.store.dynamodb.overview_token import unpack
from parley.testing.dynamodb_faults import Planned, conflict, throttle, timeout_done, timeout_not_done
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    listed,
    message,
    position_of,
    said,
    stored,
)
from tests.contracts.dynamodb_engine import DynamoEngine, DynamoOpenStore
from tests.contracts.dynamodb_nodes import Later, On, item, nodes, refuse
from tests.contracts.test_cursors import written
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


@pytest.mark.parametrize("table", ["delivery_state", "user_device_cursors", "sessions"])
async def test_a_failed_write_keeps_its_note(table: str) -> None:
    """A flush that could not write says so; the next one writes what was noted."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 9)
        faults.now = On(refuse, "UpdateItem", table)
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        store.cursors.note_used(b"token", store.clock())
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

        async def hang(operation: str, request: Request, send: Send) -> Answer:
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

        async def hang(operation: str, request: Request, send: Send) -> Answer:
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
    monkeypatch.setattr(cursors, "RIDE_AFTER_SECONDS", 0.02)
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


# Overviews


async def test_a_page_of_a_first_overview_reads_its_own_heads_only() -> None:
    """However many chats a person has, a first page costs the heads of that page."""
    async with ATOMIC.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(9)]
        asked: list[str] = []
        heads = store.store.log.heads

        async def counting(chat_ids: Sequence[str]) -> dict[str, Head]:
            asked.extend(chat_ids)
            return await heads(chat_ids)

        pages = overview.Overviews(store.store.dynamo, counting, store.store.cursors)
        page = await pages.changed(ann, "phone", None, 3)
        assert ([at.chat_id for at in page.positions], page.complete) == (chats[:3], False)
        assert asked == chats[:4]


async def test_pages_end_while_chats_keep_changing() -> None:
    """A chat that changes before each page is told often, and every other chat is still reached."""
    async with ATOMIC.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(5)]
        _, token = await listed(store, ann, None)
        for chat in chats:
            await said(store, chat, ann, "news")
        seen = set[str]()
        for _ in chats:
            await said(store, chats[0], ann, "more")
            page = await store.cursors.changed(ann, "phone", token, 1)
            token = page.token
            seen |= {at.chat_id for at in page.positions}
        assert seen == set(chats)


async def test_a_chat_joined_and_left_between_two_overviews_is_told() -> None:
    """A device that heard of it live learns that it is over."""
    async with ATOMIC.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        _, token = await listed(store, ben, None)
        await stored(store, change(chat, ann, Action.JOINED, ben))
        await stored(store, change(chat, ann, Action.REMOVED, ben))
        page = await store.cursors.changed(ben, "phone", token, 10)
        assert [(at.chat_id, at.left) for at in page.positions] == [(chat, True)]
        assert (await listed(store, ben, page.token))[0] == []


async def test_what_was_left_before_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """More chats than the token remembers, all left before the first overview, are not told by later ones."""
    monkeypatch.setattr(overview, "LEFT_REMEMBERED_MAX", 2)
    async with ATOMIC.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chats = [await add_group(store, ann, ben) for _ in range(5)]
        for chat in chats[:4]:
            await stored(store, change(chat, ben, Action.LEFT, ben))
        _, token = await listed(store, ben, None)
        assert len(unpack(token)) == 3
        assert (await listed(store, ben, token))[0] == []
        await stored(store, change(chats[4], ben, Action.LEFT, ben))
        gone, token = await listed(store, ben, token)
        assert (gone, len(unpack(token))) == ([chats[4]], 2)
        assert (await listed(store, ben, token))[0] == []


async def test_another_epoch_is_a_change() -> None:
    """A log that was lost and rebuilt to the same length is told."""
    async with ATOMIC.opened() as store:
        ann, chat = await written(store, 3)
        _, token = await listed(store, ann, None)
        for table in ("chats", "chat_counters"):
            await store.store.dynamo.update(table, {"chat_id": chat}, "SET epoch = :two", {":two": 2})
        await store.reopen()
        page = await store.cursors.changed(ann, "phone", token, 10)
        assert [(at.chat_id, at.epoch, at.head) for at in page.positions] == [(chat, 2, 3)]


async def test_unread_is_counted_among_the_last_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only writes into a chat is not made to pay for all that they ever wrote."""
    monkeypatch.setattr(overview_positions, "UNREAD_LOOKED_AT_MAX", 5)
    async with ATOMIC.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append([message(chat, who) for who in [ben, ben, ann, ann, ben, ann, ann]])
        assert (await position_of(store, ann, chat)).unread == 1
        assert (await position_of(store, ben, chat)).unread == 4
