"""The server is killed under its deliveries: the receiver misses nothing, and knows what it gets again."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession

from tests.harness.clients import HttpClient
from tests.harness.server import ServerProcess
from tests.integration.cli.running import parley
from tests.integration.gateway.serving import message
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.waiting import eventually

ALLOW = {"PARLEY_WEBHOOKS_ALLOWED_NETWORKS": "127.0.0.0/8"}
MESSAGES = 60
KILLS_AFTER = (5, 17, 40)
"""How many events the receiver has got, and the last of them not answered, when the server is killed."""


def first_sights(receiver: Receiver) -> list[str]:
    """What each event says, in the order in which the receiver first saw it."""
    seen: dict[str, str] = {}
    for headers, body in receiver.got:
        seen.setdefault(headers["Parley-Event-Id"], msgspec.json.decode(body)["data"]["content"])
    return list(seen.values())


@pytest.mark.timeout(120)
async def test_killed_servers_deliver_everything_in_order(tmp_path: Path) -> None:
    """By first sight of their ids, the events are exactly the messages, in the order of the chat."""
    server = ServerProcess(tmp_path / "data", ALLOW)
    async with receiving() as receiver, ClientSession() as session:
        await asyncio.to_thread(server.start)
        try:
            http = HttpClient(session, server.url)
            ann = await http.newcomer("ann")
            url = f"http://127.0.0.1:{receiver.port}/"
            added = await asyncio.to_thread(
                lambda: parley("webhook", "add", url, data=server.data, environment=ALLOW)
            )
            assert added.status == 0, added.stderr
            group = await http.of(ann).create_group()
            receiver.hold_at = KILLS_AFTER[0]
            for number in range(MESSAGES):
                await http.of(ann).post(f"/v1/chats/{group}/messages", message(f"{number}"))
            for later in (*KILLS_AFTER[1:], 0):
                await eventually(lambda: len(receiver.got) >= receiver.hold_at)
                await asyncio.to_thread(server.kill)
                receiver.go.set()
                receiver.hold_at, receiver.go = later, asyncio.Event()
                await asyncio.to_thread(server.start)
            await eventually(lambda: len(first_sights(receiver)) >= MESSAGES)
        finally:
            await asyncio.to_thread(server.kill)
        assert len(receiver.got) > MESSAGES, "what was not answered came again"
        assert first_sights(receiver) == [f"{number}" for number in range(MESSAGES)]
