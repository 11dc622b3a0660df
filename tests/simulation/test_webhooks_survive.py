"""The server is killed under its deliveries: the receiver misses nothing, and knows what it gets again."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession, web

from tests.harness.clients import HttpClient, RawClient
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


class KillingReceiver(Receiver):
    """Getting one message kills the server, every time: as if its delivery crashed the process."""

    def __init__(self, server: ServerProcess, poison: str) -> None:
        super().__init__()
        self._server = server
        self._poison = poison
        self.is_armed = asyncio.Event()
        self.deaths = 0

    async def take(self, request: web.Request) -> web.Response:
        if msgspec.json.decode(await request.read())["data"]["content"] == self._poison:
            await self.is_armed.wait()
            self.deaths += 1
            await asyncio.to_thread(self._server.kill)
            return web.Response(status=500)
        return await super().take(request)


@pytest.mark.timeout(180)
async def test_a_poison_message_among_1000_999_delivered_in_order(tmp_path: Path) -> None:
    """It kills the whole server twice, is then a dead letter with what is known, and the rest goes on."""
    server = ServerProcess(tmp_path / "data", ALLOW)
    receiver = KillingReceiver(server, "500")
    async with receiving(receiver), ClientSession() as session:
        await asyncio.to_thread(server.start)
        try:
            http = HttpClient(session, server.url)
            ann, ben = await http.newcomer("ann"), await http.newcomer("ben")
            url = f"http://127.0.0.1:{receiver.port}/"
            added = await asyncio.to_thread(
                lambda: parley("webhook", "add", url, data=server.data, environment=ALLOW)
            )
            assert added.status == 0, added.stderr
            group = await http.of(ann).create_group(ben)
            for person, first in ((ann, 0), (ben, 500)):
                async with RawClient(session, server.url, person) as client:
                    for number in range(first, first + 500):
                        assert (await client.send_message(group, f"{number}"))["type"] == "ack"
            receiver.is_armed.set()
            for _ in range(2):
                await eventually(lambda: receiver.deaths > 0 and not server.is_running, 30)
                await asyncio.to_thread(server.start)
            await eventually(lambda: len(first_sights(receiver)) >= 999, 60)
            listed = await asyncio.to_thread(
                lambda: parley("dlq", "list", "--json", data=server.data, environment=ALLOW)
            )
        finally:
            await asyncio.to_thread(server.kill)
    assert receiver.deaths == 2
    assert first_sights(receiver) == [f"{number}" for number in range(1_000) if number != 500]
    (dead_letter,) = listed.json["records"]
    assert (dead_letter["error"], dead_letter["sequence"], dead_letter["status"]) == (
        "poison",
        501,
        "pending",
    )
    assert [event["action"] for event in dead_letter["history"]] == ["began", "dead_lettered"]
