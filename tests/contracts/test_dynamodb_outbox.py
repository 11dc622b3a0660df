"""The `Outbox` port on DynamoDB, in both modes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.errors import StoreError
from parley.store import published_marks
from parley.store.dynamodb.driver import Fault, Faults, Request, Response, Send
from parley.testing.dynamodb_faults import timeout_done, timeout_not_done
from tests.contracts.acting import add_group, add_people, message, said, stored
from tests.contracts.dynamodb_engine import DynamoEngine, DynamoOpenStore
from tests.contracts.dynamodb_nodes import Later, On, item, nodes, refuse
from tests.harness.fault_plans import Planned
from tests.waiting import eventually

MODES = [None, "dynamodb"]


@asynccontextmanager
async def spoken(
    mode: str | None, messages: int = 3, faults: Faults | None = None
) -> AsyncIterator[tuple[DynamoOpenStore, str, str]]:
    """A store that publishes, somebody, and their chat with so many messages."""
    async with DynamoEngine(mode).opened(publishes=True, faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, *(f"{number}" for number in range(messages)))
        yield store, ann, chat


def table_of(mode: str | None) -> str:
    return "chat_counters" if mode is None else "chats"


@pytest.mark.parametrize("mode", MODES)
async def test_an_append_lists_its_chat(mode: str | None) -> None:
    """From its first message on a chat is listed, with nothing published; an empty one is not."""
    async with spoken(mode) as (store, ann, chat):
        await add_group(store, ann)
        assert await store.store.outbox.unpublished() == {chat: 0}


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_published_is_no_longer_listed(mode: str | None) -> None:
    """A mark at the head counts at once, is durable after a flush, and takes the chat off the list."""
    async with spoken(mode) as (store, _, chat):
        store.store.outbox.note_published(chat, 3)
        assert await store.store.outbox.unpublished() == {}
        await store.store.outbox.flush()
        found = await item(store, table_of(mode), chat_id=chat)
        assert (found["published_through"], "unpublished" in found) == (3, False)
        await store.reopen()
        assert await store.store.outbox.unpublished() == {}


@pytest.mark.parametrize("mode", MODES)
async def test_a_mark_below_the_head_is_kept(mode: str | None) -> None:
    """What is half published is listed from its mark on, also by another node."""
    async with nodes(2, mode, publishes=True) as (one, other):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        await said(one, chat, ann, "1", "2", "3")
        one.store.outbox.note_published(chat, 2)
        await one.store.outbox.flush()
        assert await other.store.outbox.unpublished() == {chat: 2}


@pytest.mark.parametrize("mode", MODES)
async def test_the_next_append_carries_the_mark(mode: str | None) -> None:
    """A busy chat needs no write of its own for its mark."""
    async with spoken(mode) as (store, ann, chat):
        store.store.outbox.note_published(chat, 3)
        await said(store, chat, ann, "4")
        assert (await item(store, table_of(mode), chat_id=chat))["published_through"] == 3
        await store.reopen()
        assert await store.store.outbox.unpublished() == {chat: 3}


@pytest.mark.parametrize("mode", MODES)
async def test_a_mark_only_rises(mode: str | None) -> None:
    """A node that is behind does not bring back what another has published."""
    async with nodes(2, mode, publishes=True) as (one, other):
        (ann,) = await add_people(one, "ann")
        chat = await add_group(one, ann)
        await said(one, chat, ann, "1", "2", "3", "4")
        one.store.outbox.note_published(chat, 3)
        await one.store.outbox.flush()
        other.store.outbox.note_published(chat, 1)
        await other.store.outbox.flush()
        assert await one.store.outbox.unpublished() == {chat: 3}


@pytest.mark.parametrize("mode", MODES)
async def test_news_during_the_taking_off_stay_listed(mode: str | None) -> None:
    """An append that comes between the look and the last write of a flush is not forgotten."""
    faults = Later()
    async with nodes(1, mode, publishes=True, faults=faults) as (store,), nodes_on(store, mode) as writer:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1")
        store.store.outbox.note_published(chat, 1)
        removals = 0

        async def append_first(operation: str, request: Request, send: Send) -> Response:
            nonlocal removals
            removals += 1
            await stored(writer, message(chat, ann, f"meanwhile {removals}"))
            return await send(operation, request)

        def on_removal(operation: str, request: Request) -> Fault | None:
            return append_first if "REMOVE" in str(request.get("UpdateExpression")) else None

        faults.now = on_removal
        await store.store.outbox.flush()
        assert removals == 1
        assert await store.store.outbox.unpublished() == {chat: 1}


@asynccontextmanager
async def nodes_on(store: DynamoOpenStore, mode: str | None) -> AsyncIterator[DynamoOpenStore]:
    """Another node on the tables of this one, without its faults."""
    other = DynamoOpenStore(mode, {"publishes": True})
    other.prefix, other.clock = store.prefix, store.clock
    await other.open()
    try:
        yield other
    finally:
        await other.close()


async def test_an_unresolved_position_keeps_its_chat_listed() -> None:
    """In two_phase a message beyond a hole is not yet news, and must not be forgotten until it is."""
    async with spoken("dynamodb") as (store, _, chat):
        dynamo = store.store.dynamo
        await dynamo.batch_delete("messages", [{"chat_id": chat, "sequence": 2}])
        await dynamo.update("chats", {"chat_id": chat}, "SET resolved_through = :one", {":one": 1})
        await store.reopen()
        store.store.outbox.note_published(chat, 1)
        await store.store.outbox.flush()
        assert await store.store.outbox.unpublished() == {}
        assert "unpublished" in await item(store, "chats", chat_id=chat)
        await store.log.seal()
        assert await store.store.outbox.unpublished() == {chat: 1}


@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_listed_for_nothing_is_taken_off(mode: str | None) -> None:
    """A node died after the last mark and before the list was cleaned: the next look cleans it."""
    async with spoken(mode) as (store, _, chat):
        dynamo = store.store.dynamo
        await dynamo.update(table_of(mode), {"chat_id": chat}, "SET published_through = :all", {":all": 3})
        assert await store.store.outbox.unpublished() == {}
        await store.store.outbox.flush()
        assert "unpublished" not in await item(store, table_of(mode), chat_id=chat)


@pytest.mark.parametrize("mode", MODES)
async def test_a_quiet_chat_is_taken_off_by_itself(mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to flush."""
    monkeypatch.setattr(published_marks, "QUIET_SECONDS", 0.02)
    async with spoken(mode) as (store, _, chat):
        store.store.outbox.note_published(chat, 3)

        async def is_off() -> bool:
            return "unpublished" not in await item(store, table_of(mode), chat_id=chat)

        await eventually(is_off)


@pytest.mark.parametrize("mode", MODES)
async def test_a_mark_that_is_noted_again_and_again_is_written(
    mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper notes the mark of what is listed for nothing at each look, and the chat is quiet even so."""
    monkeypatch.setattr(published_marks, "QUIET_SECONDS", 0.5)
    async with spoken(mode) as (store, _, chat):

        async def is_off() -> bool:
            store.store.outbox.note_published(chat, 3)
            return "unpublished" not in await item(store, table_of(mode), chat_id=chat)

        await eventually(is_off, 5.0)


@pytest.mark.parametrize("mode", MODES)
async def test_marks_get_through_lost_answers(mode: str | None) -> None:
    """A lost answer leaves no mark behind."""
    faults = Later()
    async with spoken(mode, faults=faults) as (store, _, chat):
        faults.now = Planned(UpdateItem=[timeout_done, timeout_not_done])
        store.store.outbox.note_published(chat, 3)
        await store.store.outbox.flush()
        found = await item(store, table_of(mode), chat_id=chat)
        assert (found["published_through"], "unpublished" in found) == (3, False)


async def test_a_mark_that_was_not_written_stays_noted() -> None:
    """A flush that fails says so, and the next one writes it."""
    faults = Later()
    async with spoken(None, faults=faults) as (store, _, chat):
        faults.now = On(refuse, "UpdateItem")
        store.store.outbox.note_published(chat, 3)
        with pytest.raises(StoreError):
            await store.store.outbox.flush()
        assert store.store.outbox.take_mark(chat) == 3
        faults.now = None
        await store.store.outbox.flush()
        assert store.store.outbox.take_mark(chat) is None
        assert (await item(store, "chat_counters", chat_id=chat))["published_through"] == 3


async def test_marks_of_many_chats_are_flushed_together() -> None:
    """Each chat of a crowd gets its own mark."""
    async with DynamoEngine(None).opened(publishes=True) as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(12)]
        await asyncio.gather(*(store.log.append([message(chat, ann)]) for chat in chats))
        assert await store.store.outbox.unpublished() == dict.fromkeys(chats, 0)
        for chat in chats[:8]:
            store.store.outbox.note_published(chat, 1)
        await store.store.outbox.flush()
        assert await store.store.outbox.unpublished() == dict.fromkeys(chats[8:], 0)
