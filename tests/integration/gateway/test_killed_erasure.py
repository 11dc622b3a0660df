"""An erasure whose server is killed in the middle: the report counts what both lives of it have removed."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession

from parley.testing.faults import CRASH
from tests.harness.clients import PASSWORD, HttpClient
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley
from tests.integration.gateway.serving import message
from tests.waiting import eventually

MESSAGES = 5


@pytest.mark.parametrize("label", ["erasure_after_count", "erasure_after_removal"])
async def test_a_killed_server_loses_no_count(tmp_path: Path, label: str) -> None:
    """SIGKILL before or after the bodies of a chat go, and a restart."""
    server = ServerProcess(tmp_path / "data", {CRASH: label})
    await asyncio.to_thread(server.start)
    try:
        async with ClientSession() as session:
            http = HttpClient(session, server.url)
            person = await http.newcomer("ann")
            ann = http.of(person)
            chat = await ann.create_group()
            for number in range(MESSAGES):
                assert (await ann.post(f"/v1/chats/{chat}/messages", message(str(number)))).status == 201
            with contextlib.suppress(ClientError):  # it may die before it has answered
                await ann.request("DELETE", "/v1/me?erase=bodies", {"password": PASSWORD})
        await asyncio.to_thread(server.wait)
        server.environment.pop(CRASH)
        await asyncio.to_thread(server.start)

        async def report_is_whole() -> bool:
            asked = "user", "erasure", person.user_id, "--json"
            told = (await asyncio.to_thread(parley, *asked, data=server.data)).json
            return bool(told.get("finished_at")) and told["hot"] == MESSAGES

        await eventually(report_is_whole, 20.0)
    finally:
        await asyncio.to_thread(server.kill)
