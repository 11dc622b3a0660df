"""Webhooks over real sockets: what a receiver gets, and where the server never connects to."""

import asyncio
import hashlib
import hmac
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from parley.clock import iso
from parley.core.client_address import parse_networks
from parley.core.deliveries import Webhook
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.attempts import event_id_of
from parley.delivery.guarded_http import resolve_by_system
from parley.delivery.ports import Delivery, Recipient
from parley.delivery.webhooks import WebhookChannel
from parley.model import Persisted
from parley.wire.frames import Entry
from tests.harness.clock import START_MS, VirtualClock

LOOPBACK = parse_networks(("127.0.0.0/8",))
SECRET = "sh-5"
ENTRY = Entry(
    chat_id="chat_1",
    sequence=3,
    epoch=1,
    kind="message",
    message_id="msg_01JHV3Z8M4QK7N5X2R9T6WBCDG",
    sender_id="user_1",
    client_message_id=None,
    content="hello",
    content_type="text/plain",
    created_at=iso(START_MS),
    server_timestamp=iso(START_MS),
)
DELIVERY = Delivery("wh_1", ENTRY, msgspec.json.encode(ENTRY), event_id_of(ENTRY))


class Receiver:
    """A server of an integrator, which notes what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.location = ""
        self.port = 0
        self.hold_at = 0
        """After so many it answers nobody, until `go`."""
        self.go = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        if self.hold_at and len(self.got) >= self.hold_at:
            await self.go.wait()
        headers = {"Location": self.location} if self.location else None
        return web.Response(status=self.status, headers=headers)


@asynccontextmanager
async def receiving(receiver: Receiver | None = None) -> AsyncIterator[Receiver]:
    receiver = receiver or Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def channel_to(url: str, allowed: Any = LOOPBACK, resolve: Any = resolve_by_system, **hook: Any) -> Any:
    values: dict[str, Any] = {"events": ("message.created",), "secret": SECRET, "created_ms": START_MS} | hook

    async def all_hooks() -> list[Webhook]:
        return [Webhook(webhook_id="wh_1", url=url, **values)]

    webhooks: Any = SimpleNamespace(all=all_hooks)
    channel = WebhookChannel(webhooks, allowed, VirtualClock(), resolve)
    try:
        yield channel
    finally:
        await channel.close()


async def hook_of(channel: WebhookChannel, chat_id: str = "chat_1") -> Recipient:
    recipient = await channel.recipient("wh_1", chat_id)
    assert recipient is not None
    return recipient


async def attempt(channel: WebhookChannel) -> Any:
    return await (await hook_of(channel)).attempt(DELIVERY)


async def test_a_delivery_is_signed_and_carries_the_entry() -> None:
    """A receiver that knows the secret verifies it as the protocol says."""
    async with receiving() as receiver, channel_to(f"http://127.0.0.1:{receiver.port}/hook") as channel:
        assert await attempt(channel) is None
    ((headers, body),) = receiver.got
    stamp, _, signed = headers["Parley-Signature"].partition(",")
    assert stamp == f"t={START_MS // 1000}"
    expected = hmac.new(SECRET.encode(), stamp[2:].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert signed == f"v1={expected}"
    assert headers["Parley-Event-Id"] == "evt_01JHV3Z8M4QK7N5X2R9T6WBCDG"
    assert msgspec.json.decode(body) == {
        "event_id": "evt_01JHV3Z8M4QK7N5X2R9T6WBCDG",
        "type": "message.created",
        "created_at": iso(START_MS),
        "chat_id": "chat_1",
        "data": msgspec.to_builtins(ENTRY),
    }


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (200, None),
        (204, None),
        (301, Fault.REFUSED),
        (400, Fault.REFUSED),
        (404, Fault.REFUSED),
        (408, Fault.BUSY),
        (429, Fault.BUSY),
        (500, Fault.SERVER_ERROR),
        (503, Fault.SERVER_ERROR),
    ],
)
async def test_the_answer_decides(status: int, fault: Fault | None) -> None:
    """2xx is delivered; busy and broken may recover; the rest is refused."""
    async with receiving() as receiver, channel_to(f"http://127.0.0.1:{receiver.port}/") as channel:
        receiver.status = status
        failure = await attempt(channel)
        assert (failure and failure.fault) == fault


async def test_nobody_listens() -> None:
    """A temporary failure."""
    async with receiving() as receiver:
        port = receiver.port
    async with channel_to(f"http://127.0.0.1:{port}/") as channel:
        assert (await attempt(channel)).fault is Fault.UNREACHABLE


async def test_a_redirect_is_not_followed() -> None:
    """Not even to an address that is allowed: a redirect could lead anywhere."""
    async with receiving() as inside, receiving() as receiver:
        receiver.status, receiver.location = 307, f"http://127.0.0.1:{inside.port}/secret"
        async with channel_to(f"http://127.0.0.1:{receiver.port}/") as channel:
            failure = await attempt(channel)
        assert (len(receiver.got), inside.got) == (1, [])
        assert failure.fault is Fault.REFUSED


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1"]
)
async def test_the_own_machine_is_out_of_reach(scheme: str, host: str) -> None:
    """By address, by name, mapped, and in the spellings that a resolver understands."""
    async with receiving() as receiver:
        async with channel_to(f"{scheme}://{host}:{receiver.port}/", allowed=()) as channel:
            failure: DeliveryFailure = await attempt(channel)
        assert failure.fault in (Fault.FORBIDDEN_ADDRESS, Fault.MALFORMED)
        assert receiver.got == []


async def test_a_name_that_changes_its_answer() -> None:
    """Every lookup is checked: one that answers with another address later is refused then."""
    answers = itertools.chain(["93.184.216.34"], itertools.repeat("127.0.0.1"))
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(next(answers))
        return [asked[-1]]

    async with receiving() as receiver:
        url = f"https://rebind.example:{receiver.port}/"
        async with channel_to(url, allowed=(), resolve=resolve) as channel:
            connector = channel._http._session("https").connector
            found = await connector._resolver.resolve("rebind.example", receiver.port)
            assert [result["host"] for result in found] == ["93.184.216.34"]
            assert (await attempt(channel)).fault is Fault.FORBIDDEN_ADDRESS
        assert receiver.got == []


async def test_one_bad_address_among_good_ones() -> None:
    """The whole name is refused: nobody knows which one a connection would take."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    async with channel_to("https://mixed.example/", allowed=(), resolve=resolve) as channel:
        assert (await attempt(channel)).fault is Fault.FORBIDDEN_ADDRESS


async def test_a_webhook_wants_its_events_since_it_was_added() -> None:
    """Not other kinds, and nothing that was said before."""
    async with channel_to("https://a.example/", created_ms=START_MS + 1) as channel:
        assert not await (await hook_of(channel)).wants(ENTRY)
    async with channel_to("https://a.example/", events=("member.changed",)) as channel:
        assert not await (await hook_of(channel)).wants(ENTRY)
    async with channel_to("https://a.example/", chat_id="chat_2") as channel:
        assert await channel.owed(Persisted("chat_1", 1, [])) == []
        assert await channel.owed(Persisted("chat_2", 1, [])) == ["wh_1"]
        assert await channel.recipient("wh_1", "chat_1") is None
        assert await (await hook_of(channel, "chat_2")).wants(ENTRY)
