"""`parley tail` on a terminal and for programs: what happens beside the log."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.client import Client, connect
from tests.harness.server import ServerProcess
from tests.integration.cli.ptys import window
from tests.integration.cli.running import parley, succeed
from tests.integration.cli.test_talk import LINE_SECONDS_MAX, following
from tests.integration.small_world import GROUP_ENTRIES

GROUP = "chat_group"
FIRST_NEW = str(GROUP_ENTRIES + 1)
TYPE_AGAIN_SECONDS = 0.1
BOTH_TYPE = ("ben and cas are typing…", "cas and ben are typing…")
READ = "\x1b[36m✓✓".encode()


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data) as running:
        yield running


def person(server: ServerProcess, name: str) -> Client:
    token = succeed("token", name, "--device", "phone", data=server.data).stdout.strip()
    return connect(server.url, token, device_id="phone")


async def unread(server: ServerProcess, name: str) -> int:
    """What the chat list says of the group."""
    async with person(server, name) as me:
        return {chat.chat_id: chat.unread for chat in await me.chats()}[GROUP]


async def test_ticks_change_where_they_stand(server: ServerProcess) -> None:
    """A message is stored, then read by one and by all; the line is the same."""
    with window(server, "tail", "Tea", "--as", "ann", "-n", "1") as screen:
        await screen.shows("ann added cas")
        async with person(server, "ben") as ben, person(server, "cas") as cas:
            succeed("send", "Tea", "cake?", "--as", "ann", data=server.data)
            await screen.shows("ann: cake?  ✓")
            await ben.chat(GROUP).mark_read(GROUP_ENTRIES + 1)
            await screen.shows("ann: cake?  ✓ read by 1 of 2")
            await cas.chat(GROUP).mark_read(GROUP_ENTRIES + 1)
            await screen.shows("ann: cake?  ✓✓")
        assert READ in screen.written
        assert sum("cake?" in line for line in screen.lines) == 1


@asynccontextmanager
async def typing(client: Client) -> AsyncIterator[None]:
    """Somebody types on and on: on a busy machine once is over before it is seen."""

    async def type_on() -> None:
        while True:
            client.chat(GROUP).type()
            await asyncio.sleep(TYPE_AGAIN_SECONDS)

    fingers = asyncio.create_task(type_on())
    try:
        yield
    finally:
        fingers.cancel()


async def test_who_types_is_said_under_the_chat(server: ServerProcess) -> None:
    """Until they have said it; after Ctrl-C nothing of it is left."""
    with window(server, "tail", "Tea", "--as", "ann", "-n", "1") as screen:
        await screen.shows("ann added cas")
        async with person(server, "ben") as ben, person(server, "cas") as cas, typing(cas):
            await screen.ends_with("cas is typing…")
            async with typing(ben):
                await screen.until(lambda lines: lines[-1] in BOTH_TYPE)
            await ben.chat(GROUP).send("tea")
            await screen.shows("ben: tea")
            await screen.ends_with("cas is typing…")
        assert screen.interrupt() == 0


async def test_a_direct_chat_says_whether_the_other_is_there(server: ServerProcess) -> None:
    """And when they last were."""
    with window(server, "tail", "ben", "--as", "ann") as screen:
        await screen.ends_with("ben is offline")
        async with person(server, "ben"):
            await screen.ends_with("ben is online")
        await screen.ends_with("ben, last seen: ")


async def test_a_lost_server_is_said_and_comes_back(server: ServerProcess) -> None:
    """One line tells it, and what is said afterwards is shown as ever."""
    with window(server, "tail", "Tea", "--as", "ann", "-n", "1") as screen:
        await screen.shows("ann added cas")
        server.kill()
        await screen.ends_with("not connected, reconnecting…")
        server.start()
        await screen.until(lambda lines: lines[-1] == "")
        succeed("send", "Tea", "back", "--as", "ben", data=server.data)
        await screen.shows("ben: back")


def test_a_program_may_have_events(server: ServerProcess) -> None:
    """With --events there is a line for each change of receipts; without it only entries."""
    with following(server, "Tea", "--as", "ann", "--json", "--events", "--from", FIRST_NEW) as lines:
        succeed("send", "Tea", "hi", "--as", "ann", data=server.data)
        succeed("tail", "Tea", "--as", "ben", "--once", "--read", data=server.data)
        said = lines.wait_for(lambda line: '"read":[{' in line, LINE_SECONDS_MAX)
    assert said is not None
    event: dict[str, Any] = json.loads(said)
    assert (event["event"], event["sequence"], event["status"]) == ("receipts", GROUP_ENTRIES + 1, "sent")
    assert [seen["user_id"] for seen in event["read"]] == ["user_ben"]
    quiet = succeed("tail", "Tea", "--as", "ann", "--once", "--json", data=server.data)
    assert not any("event" in json.loads(line) for line in quiet.lines)


async def test_a_tail_reads_only_when_told_so(server: ServerProcess) -> None:
    """Looking changes nothing; --read marks what was shown."""
    succeed("tail", "Tea", "--as", "ben", "--once", data=server.data)
    before = await unread(server, "ben")
    succeed("tail", "Tea", "--as", "ben", "--once", "--read", data=server.data)
    assert (before, await unread(server, "ben")) == (2, 0)


def test_events_go_with_json(server: ServerProcess) -> None:
    """A person's tail shows them anyway."""
    run = parley("tail", "Tea", "--as", "ann", "--events", data=server.data)
    assert run.status == 2
    assert "--json" in run.stderr
