"""Commands that write beside a busy server: nothing is lost, nothing is out of order, no check cries wolf."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.harness.clients import HttpClient, Person, RawClient
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley, succeed

SENDERS = 4
WINDOW = 8
NEWCOMERS = 3


class Load:
    """Senders that never pause, and what they were told."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.refused: list[str] = []
        self.stopping = False

    async def send(self, session: ClientSession, url: str, person: Person, chat_id: str) -> None:
        numbers = count()
        async with RawClient(session, url, person, live=False) as client:
            while not self.stopping:
                answers = [await client.post_message(chat_id, f"{next(numbers)}") for _ in range(WINDOW)]
                for answer in answers:
                    said = await client.answered(answer)
                    if said["type"] == "ack":
                        self.acked.append(said["sequence"])
                    else:
                        self.refused.append(said["code"])


@asynccontextmanager
async def under_load(session: ClientSession, url: str, person: Person, chat_id: str) -> AsyncIterator[Load]:
    load = Load()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(SENDERS):
            tasks.create_task(load.send(session, url, person, chat_id))
        yield load
        load.stopping = True


async def add_members(server: ServerProcess, chat_id: str, people: list[Person]) -> list[int]:
    """Add people one after the other with the command, and check the live store after each."""
    joined = []
    for person in people:
        command = ("chat", "add", chat_id, person.username, "--json")
        added = await asyncio.to_thread(parley, *command, data=server.data, environment=server.environment)
        assert added.status == 0, added.stderr
        joined.append(added.json["sequence"])
        checked = await asyncio.to_thread(parley, "check", "--json", data=server.data)
        assert checked.json["breaches"] == []
    return joined


@pytest.mark.parametrize("sequencing", ["atomic", "two_phase"])
async def test_members_are_added_beside_a_busy_server(sequencing: str, tmp_path: Path) -> None:
    """While messages pour in, `chat add` and `check` work beside them, and the log stays whole."""
    with ServerProcess(tmp_path / "data", {"PARLEY_STORE_SEQUENCING": sequencing}) as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            ann = await http.newcomer("ann")
            newcomers = [await http.newcomer(f"new{number}") for number in range(NEWCOMERS)]
            chat_id = await http.of(ann).create_group()
            async with RawClient(session, server.url, ann) as watcher:
                async with under_load(session, server.url, ann, chat_id) as load:
                    joined = await add_members(server, chat_id, newcomers)
                expected = sorted([*load.acked, *joined])
                await watcher.until(lambda w: len(w.live_entries(chat_id)) == len(expected))
                assert [entry["sequence"] for entry in watcher.live_entries(chat_id)] == expected
            assert load.refused == []
            async with RawClient(session, server.url, newcomers[-1], live=False) as reader:
                entries = await reader.sync_all(chat_id)
        assert [entry["sequence"] for entry in entries] == expected
        assert [entry["sequence"] for entry in entries if entry["kind"] == "member"] == joined
        await asyncio.to_thread(succeed, "check", data=server.data)


def was_told(client: RawClient, chat_id: str, change: str) -> bool:
    told = [frame for frame in client.unasked if frame["type"] == "chat_changed"]
    return any((frame["chat_id"], frame["change"]) == (chat_id, change) for frame in told)


async def test_a_member_who_was_added_beside_the_server_hears_the_chat_live(tmp_path: Path) -> None:
    """A connected person whom a command puts into a chat is told, hears it, and is told when it is over."""
    with ServerProcess(tmp_path / "data") as server:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            ann, ben = await http.newcomer("ann"), await http.newcomer("ben")
            chat_id = await http.of(ben).create_group()
            async with (
                RawClient(session, server.url, ann) as hers,
                RawClient(session, server.url, ben) as his,
            ):
                await asyncio.to_thread(parley, "chat", "add", chat_id, "ann", data=server.data)
                await hers.until(lambda client: was_told(client, chat_id, "joined"))
                ack = await his.send_message(chat_id, "welcome")
                entry = await hers.live_entry(chat_id, ack["sequence"])
                assert entry["content"] == "welcome"
                await asyncio.to_thread(parley, "chat", "remove", chat_id, "ann", data=server.data)
                await hers.until(lambda client: was_told(client, chat_id, "left"))
