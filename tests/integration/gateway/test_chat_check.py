"""What a running server tells an operator of the invariants of a chat."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from parley.gateway import chat_check
from parley.store.folder import DATABASE_NAME
from tests.harness.clients import Answer, Person
from tests.integration.gateway.serving import Place, Served, assert_refused


async def checked(served: Served, root: Person, chat: str) -> Answer:
    return await served.as_(root).get(f"/v1/admin/chats/{chat}/check")


async def test_a_sound_chat_is_said_to_be_sound(place: Place) -> None:
    """Beside the server that is writing it."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        await served.said(ann, chat, "one", "two", "three")
        answer = await checked(served, root, chat)
        assert answer.status == 200, answer
        assert (answer.body["chat_id"], answer.body["ok"], answer.body["entries"]) == (chat, True, 3)
        assert answer.body["breaches"] == []
        assert set(answer.body["invariants"].values()) == {0}


async def test_a_hole_in_the_log_is_named(place: Place) -> None:
    """With its position, and what to do about it."""
    async with place.serving() as served:
        root, (ann, ben) = await served.operator(), await served.people("ann", "ben")
        chat, other = [await served.as_(ann).create_group(ben) for _ in range(2)]
        await served.said(ann, other, "one", "two")
        await served.said(ann, chat, "one", "two", "three")
        with closing(sqlite3.connect(place.folder / DATABASE_NAME)) as connection, connection:
            number = "SELECT chat_no FROM chats WHERE chat_id = ?"
            connection.execute(f"DELETE FROM entries WHERE chat_no = ({number}) AND sequence = 2", (chat,))
        answer = await checked(served, root, chat)
        assert not answer.body["ok"]
        assert answer.body["invariants"]["log_density"] == 1
        (hole,) = [one for one in answer.body["breaches"] if one["invariant"] == "log_density"]
        assert hole["sequence"] == 2
        assert "parley recover" in hole["remedy"]
        assert (await checked(served, root, other)).body["ok"], "another chat is another matter"


async def test_there_must_be_such_a_chat(place: Place) -> None:
    """An unknown chat is not found, rather than sound."""
    async with place.serving() as served:
        root = await served.operator()
        assert_refused(await checked(served, root, "chat_01JHV3Z8M4QK7N5X2R9T6WBCDQ"), 404, "not_found")


async def test_one_check_at_a_time(place: Place) -> None:
    """Of several at once, those that find another one at work are told to come again."""
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        answers = await asyncio.gather(*(checked(served, root, chat) for _ in range(5)))
        codes = [answer.body.get("code", "ok") for answer in answers]
        assert "ok" in codes
        assert set(codes) <= {"ok", "busy"}
        assert (await checked(served, root, chat)).status == 200


async def test_a_check_that_takes_long_is_left_to_the_command(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused for good, with the command that can do it."""
    monkeypatch.setattr(chat_check, "CHECK_SECONDS_MAX", -1.0)
    async with place.serving() as served:
        root, (ann,) = await served.operator(), await served.people("ann")
        chat = await served.as_(ann).create_group()
        answer = await checked(served, root, chat)
        assert_refused(answer, 413, "too_large")
        assert "parley check" in answer.body["reason"]
