"""What is promised of overviews on DynamoDB alone: their tokens, and what they cost."""

from collections.abc import Sequence

import pytest

from parley.model import Action, Head
from parley.store import compared_overviews
from parley.store.compared_overviews import decode_token
from parley.store.dynamodb import overview
from parley.store.dynamodb.driver import Request, Response, Send
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    decode_entry,
    listed,
    message,
    position_of,
    said,
    stored,
)
from tests.contracts.dynamodb_engine import DynamoEngine
from tests.contracts.dynamodb_nodes import Counted, Later, On
from tests.contracts.test_cursors import written

ATOMIC = DynamoEngine(None)


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

        pages = overview.DynamoOverviews(store.store.dynamo, counting, store.store.cursors)
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
            page = await store.overviews.changed(ann, "phone", token, 1)
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
        page = await store.overviews.changed(ben, "phone", token, 10)
        assert [(at.chat_id, at.left) for at in page.positions] == [(chat, True)]
        assert (await listed(store, ben, page.token))[0] == []


async def test_what_was_left_before_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """More chats than the token remembers, all left before the first overview, are not told by later ones."""
    monkeypatch.setattr(compared_overviews, "LEFT_REMEMBERED_MAX", 2)
    async with ATOMIC.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chats = [await add_group(store, ann, ben) for _ in range(5)]
        for chat in chats[:4]:
            await stored(store, change(chat, ben, Action.LEFT, ben))
        _, token = await listed(store, ben, None)
        assert len(decode_token(token)) == 3
        assert (await listed(store, ben, token))[0] == []
        await stored(store, change(chats[4], ben, Action.LEFT, ben))
        gone, token = await listed(store, ben, token)
        assert (gone, len(decode_token(token))) == ([chats[4]], 2)
        assert (await listed(store, ben, token))[0] == []


async def test_another_epoch_is_a_change() -> None:
    """A log that was lost and rebuilt to the same length is told."""
    async with ATOMIC.opened() as store:
        ann, chat = await written(store, 3)
        _, token = await listed(store, ann, None)
        for table in ("chats", "chat_counters"):
            await store.store.dynamo.update(table, {"chat_id": chat}, "SET epoch = :two", {":two": 2})
        await store.reopen()
        page = await store.overviews.changed(ann, "phone", token, 10)
        assert [(at.chat_id, at.epoch, at.head) for at in page.positions] == [(chat, 2, 3)]


async def test_every_chat_that_was_left_is_told_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a token does not remember for good stay in it until they were told."""
    monkeypatch.setattr(compared_overviews, "LEFT_REMEMBERED_MAX", 2)
    async with ATOMIC.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chats = [await add_group(store, ann, ben) for _ in range(5)]
        _, token = await listed(store, ben, None)
        for chat in chats:
            await stored(store, change(chat, ben, Action.LEFT, ben))
        seen, completes = list[str](), list[bool]()
        for _ in chats:
            page = await store.overviews.changed(ben, "phone", token, 1)
            seen, token = seen + [at.chat_id for at in page.positions], page.token
            completes.append(page.complete)
        assert (sorted(seen), completes) == (sorted(chats), [False] * 4 + [True])
        assert len(decode_token(token)) == 2
        assert (await listed(store, ben, token))[0] == []


# Last entries


async def miss(operation: str, request: Request, send: Send) -> Response:
    """A batch that finds nothing: everything in it was being committed."""
    answer = await send(operation, request)
    return Response(200, {**answer.body, "Responses": {}})


async def test_an_entry_that_a_batch_misses_is_found() -> None:
    """What the head says is there is told, although the first look did not show it."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, chat = await written(store, 2)
        await said(store, chat, ann, "last")
        missing = On(miss, "BatchGetItem")
        faults.now = lambda operation, request: (
            missing(operation, request) if "-messages" in str(request) else None
        )
        entry = (await position_of(store, ann, chat)).last_entry
        assert (decode_entry(entry or b"").content, missing.met) == ("last", 1)


async def test_the_last_entry_is_found_behind_many_voids(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many numbers were given up at the end, the newest entry is told."""
    monkeypatch.setattr(overview, "VOIDS_PER_QUERY", 2)
    monkeypatch.setattr(overview, "VOIDS_PER_QUERY_MAX", 4)
    async with ATOMIC.opened() as store:
        ann, chat = await written(store, 3)
        store.abandon(chat, 30, 0)
        at = await position_of(store, ann, chat)
        assert (at.head, decode_entry(at.last_entry or b"").sequence) == (30, 3)


async def test_what_a_page_of_an_overview_asks() -> None:
    """A page of chats in which everything is read costs five requests, however many chats it has."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(20)]
        await store.log.append([message(chat, ann) for chat in chats])
        for chat in chats:
            store.cursors.note_read(ann, chat, 1, store.clock())
        await store.cursors.flush()
        faults.now = counted = Counted()
        await store.overviews.changed(ann, "phone", None, 100)
        assert counted.met == {
            ("Query", "delivery_state"): 1,
            ("BatchGetItem", "chat_counters"): 1,
            ("BatchGetItem", "messages"): 1,
            ("BatchGetItem", "user_device_cursors"): 1,
            ("BatchGetItem", "chats"): 1,
        }
