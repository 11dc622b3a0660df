"""The server is killed between its log and its search index: it is caught up, not rebuilt."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest
from aiohttp import ClientError, ClientSession

from parley.search.indexer import INDEX_LABELS
from parley.store.folder import SEARCH_NAME
from tests.harness.clients import HttpClient, Person
from tests.harness.server import ServerProcess
from tests.integration.gateway.serving import message

BEFORE, LATER = 30, 20


def indexed_through(folder: Path) -> int:
    """How far the index is, by its own file."""
    connection = apsw.Connection(str(folder / SEARCH_NAME), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        rows: list[Any] = connection.execute("SELECT coalesce(max(through), 0) FROM chats").fetchall()
        return int(rows[0][0])
    finally:
        connection.close()


async def say(http: HttpClient, person: Person, chat: str, first: int, count: int) -> int:
    """Send numbered messages until the server dies; how many were acknowledged."""
    for number in range(first, first + count):
        try:
            answer = await http.of(person).post(f"/v1/chats/{chat}/messages", message(f"needle {number}"))
        except (ClientError, OSError):
            return number - first
        assert answer.status == 201
    return count


async def found(http: HttpClient, person: Person, chat: str) -> list[str]:
    answer = await http.of(person).get(f"/v1/chats/{chat}/search", q="needle", limit=100)
    assert answer.status == 200, answer
    return [hit["entry"]["content"] for hit in answer.body["hits"]]


async def stored(http: HttpClient, person: Person, chat: str) -> list[str]:
    answer = await http.of(person).get(f"/v1/chats/{chat}/messages", limit=200)
    return [one["content"] for one in reversed(answer.body["entries"]) if one["kind"] == "message"]


@pytest.mark.parametrize("label", INDEX_LABELS)
async def test_a_kill_between_log_and_index(tmp_path: Path, label: str) -> None:
    """Before a slice is written, or right after: every acknowledged message is found once, and only what was
    missing is read again."""
    data, armed = tmp_path / "data", tmp_path / "armed"
    with ServerProcess(data, {"PARLEY_TEST_CRASH": f"{label}:1:{armed}"}) as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            ann = await http.newcomer("ann")
            chat = await http.of(ann).create_group()
            assert await say(http, ann, chat, 0, BEFORE) == BEFORE
            assert len(await found(http, ann, chat)) == BEFORE
            at_first = indexed_through(data)
            armed.touch()
            acknowledged = await say(http, ann, chat, BEFORE, LATER)
            await asyncio.to_thread(server.wait)
        armed.unlink()
        at_death = indexed_through(data)
        assert at_first >= BEFORE
        await asyncio.to_thread(server.start)
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            told = await stored(http, ann, chat)
            assert len(told) >= BEFORE + acknowledged
            assert await found(http, ann, chat) == told
            async with session.get(f"{server.url}/metrics") as answer:
                lines = (await answer.text()).splitlines()
        read_again = [line for line in lines if line.startswith("parley_search_entries_indexed_total")]
        assert float(read_again[0].split()[1]) == indexed_through(data) - at_death
