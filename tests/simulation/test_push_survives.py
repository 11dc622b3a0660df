"""The server is killed under its rings: every chat rings, and a repetition is known as one."""

import asyncio
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession

from tests.harness.clients import HttpClient
from tests.harness.server import ServerProcess
from tests.integration.gateway.serving import message
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.waiting import eventually

ALLOW = {"PARLEY_PUSH_ALLOWED_NETWORKS": "127.0.0.0/8"}
CHATS = 12
KILLS_AFTER = (3, 7)
"""How many rings the receiver has got, and the last of them not answered, when the server is killed."""


def rung(receiver: Receiver) -> Counter[str]:
    """How often each chat rang with the same id: a receiver shows one of them."""
    return Counter(msgspec.json.decode(body)["chat_id"] for _, body in receiver.got)


@pytest.mark.timeout(120)
async def test_killed_servers_ring_once_for_each_chat(tmp_path: Path) -> None:
    """What was answered is not repeated; what was not comes again with the same id; nothing is missing."""
    server = ServerProcess(tmp_path / "data", ALLOW)
    async with receiving() as receiver, ClientSession() as session:
        await asyncio.to_thread(server.start)
        try:
            http = HttpClient(session, server.url)
            ann, ben = await http.newcomer("ann"), await http.newcomer("ben")
            chats = [await http.of(ann).create_group(ben) for _ in range(CHATS)]
            url = f"http://127.0.0.1:{receiver.port}/"
            await http.of(ben).put("/v1/me/push/phone", {"provider": "webhook", "token": url})
            receiver.hold_at = KILLS_AFTER[0]
            for chat in chats:
                await http.of(ann).post(f"/v1/chats/{chat}/messages", message("hello"))
            answered = Counter[str]()
            for later in (*KILLS_AFTER[1:], 0):
                await eventually(lambda: len(receiver.got) >= receiver.hold_at)
                answered = rung(receiver)
                await asyncio.to_thread(server.kill)
                receiver.go.set()
                receiver.hold_at, receiver.go = later, asyncio.Event()
                await asyncio.to_thread(server.start)
            await eventually(lambda: set(rung(receiver)) == set(chats))
        finally:
            await asyncio.to_thread(server.kill)
        ids = {
            (event["chat_id"], event["event_id"])
            for event in (msgspec.json.decode(body) for _, body in receiver.got)
        }
        assert len(ids) == CHATS, "a repetition has the id of the first"
        assert len(answered) >= 3
        assert max(rung(receiver).values()) <= 1 + len(KILLS_AFTER)
