"""The SDK's shell over a real local socket: connecting, losing the connection, and coming back."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from parley.client import (
    BadToken,
    CannotConnect,
    Client,
    Closed,
    OutboxUnusable,
    RequestRefused,
    connect,
    login,
)
from parley.client.connection import failure_of
from parley.errors import BUSY, NOT_A_MEMBER
from parley.wire import codes
from tests.model_server.server import FORBIDDEN_CONTENT
from tests.unit.client.fake_server import CHAT, DEVICE, QUICK, TOKEN, FakeServer, fake_server


def to(server: FakeServer, outbox: Path | None = None, *, codec: str = "json") -> Client:
    path = None if outbox is None else str(outbox)
    return connect(server.url, TOKEN, device_id=DEVICE, outbox=path, codec=codec, timing=QUICK)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_a_message_is_sent_and_read(codec: str) -> None:
    """What one sends is acknowledged and then comes in its place, in either codec."""
    async with fake_server() as server, to(server, codec=codec) as me:
        chat = me.chat(CHAT)
        ack = await chat.send("hi")
        assert (ack.sequence, ack.deduplicated) == (1, False)
        async for entry in chat:
            assert (entry.content, entry.sequence) == ("hi", 1)
            break


async def test_pipelined_messages_keep_their_order() -> None:
    """Many sends without waiting are stored in the order of the calls."""
    async with fake_server() as server, to(server) as me:
        sendings = [me.chat(CHAT).send(str(number)) for number in range(500)]
        acks = [await sending for sending in sendings]
        assert [ack.sequence for ack in acks] == list(range(1, 501))


async def test_the_device_of_a_token_is_asked_for() -> None:
    """Whoever names no device gets that of the token."""
    async with fake_server() as server, connect(server.url, TOKEN, timing=QUICK) as me:
        assert me.device_id == DEVICE


async def test_a_lost_connection_resends_under_the_same_id() -> None:
    """What was not acknowledged goes out again after the reconnect, and is stored once."""
    async with fake_server() as server, to(server) as me:
        server.deaf = True
        sending = me.chat(CHAT).send("hi")
        await server.until(lambda: len(server.sends) == 1)
        server.deaf = False
        await server.close_all(codes.GOING_AWAY)
        ack = await sending
        assert {frame.client_message_id for frame in server.sends} == {ack.client_message_id}
        assert len(server.model.logs[CHAT]) == 1
        assert server.connections == 2


async def test_no_ack_is_resent_on_the_same_connection() -> None:
    """A server that lost a request gets it again without a reconnect."""
    async with fake_server() as server, to(server) as me:
        server.deaf = True
        sending = me.chat(CHAT).send("hi")
        await server.until(lambda: len(server.sends) == 1)
        server.deaf = False
        await sending
        assert server.connections == 1
        assert [frame.client_message_id for frame in server.sends[:2]] == [sending.client_message_id] * 2


async def test_reading_goes_on_across_reconnects() -> None:
    """A loop does not notice that the connection was cut: no entry is missing, none comes twice."""
    async with fake_server() as server, to(server) as me:
        chat = me.chat(CHAT)
        seen = []
        await chat.send("first")
        async for entry in chat:
            seen.append(entry.sequence)
            if len(seen) == 5:
                break
            await server.close_all(codes.TOO_SLOW)
            await chat.send("next")
        assert seen == [1, 2, 3, 4, 5]


async def test_a_permanent_refusal_fails_only_that_message() -> None:
    """The sender learns code and reason, and those after it are stored."""
    async with fake_server() as server, to(server) as me:
        chat = me.chat(CHAT)
        sendings = [chat.send("a"), chat.send(FORBIDDEN_CONTENT), chat.send("b")]
        await sendings[0]
        with pytest.raises(RequestRefused) as refusal:
            await sendings[1]
        assert (refusal.value.code, refusal.value.temporary) == ("not_a_member", False)
        assert (await sendings[2]).sequence == 2


async def test_nobody_answers() -> None:
    """The error names the address and asks the right question."""
    with pytest.raises(CannotConnect, match=r"cannot connect to http://127\.0\.0\.1:1: Connection refused"):
        async with connect("http://127.0.0.1:1", TOKEN, device_id=DEVICE):
            pass


async def test_an_address_that_is_none() -> None:
    """A forgotten scheme is told at once."""
    with pytest.raises(CannotConnect, match="an example is http://"):
        connect("127.0.0.1:8080", TOKEN)


async def test_another_kind_of_server() -> None:
    """What answers but does not speak the protocol is told as such."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        with pytest.raises(CannotConnect, match="not a Parley server"):
            async with connect(url, TOKEN, device_id=DEVICE, timing=QUICK):
                pass
        with pytest.raises(CannotConnect, match="not a Parley server"):
            await login(url, "ada", "secret")
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("device_id", [None, DEVICE])
async def test_a_bad_token(device_id: str | None) -> None:
    """A token that the server does not take is told as such, with or without a device."""
    async with fake_server() as server:
        with pytest.raises(BadToken):
            async with connect(server.url, "prl_bad", device_id=device_id, timing=QUICK):
                pass
        assert server.connections <= 1


async def test_a_welcome_that_is_refused() -> None:
    """A refusal of the hello for good is not tried again; a temporary one says that later may work."""
    async with fake_server() as server:
        server.welcome_refusal = NOT_A_MEMBER
        with pytest.raises(Closed, match="not a member"):
            async with to(server):
                pass
        server.welcome_refusal = BUSY
        with pytest.raises(CannotConnect, match="waiting"):
            async with to(server):
                pass


async def test_a_revoked_session_ends_everything_that_waits() -> None:
    """Loops, sends and later calls all say that a new login is needed."""
    async with fake_server() as server, to(server) as me:
        server.deaf = True
        sending = me.chat(CHAT).send("hi")
        reading = asyncio.ensure_future(anext(aiter(me.chat(CHAT))))
        await server.until(lambda: len(server.sends) == 1)
        await server.close_all(codes.REVOKED)
        with pytest.raises(BadToken, match="log in again"):
            await sending
        with pytest.raises(BadToken):
            await reading
        with pytest.raises(BadToken):
            me.chat(CHAT).send("more")
        assert server.connections == 1


async def test_a_server_that_says_never_again() -> None:
    """A close code of 4200 and above is respected and told with its code."""
    async with fake_server() as server, to(server) as me:
        await server.close_all(codes.NOT_A_FRAME)
        with pytest.raises(Closed) as closed:
            await anext(aiter(me.chat(CHAT)))
        assert closed.value.code == codes.NOT_A_FRAME.code
        assert server.connections == 1


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (1000, None),
        (1001, None),
        (1006, None),
        (1009, Closed),
        (4000, None),
        (4001, None),
        (4099, None),
        (4100, None),
        (4101, BadToken),
        (4102, BadToken),
        (4103, Closed),
        (4200, Closed),
    ],
)
def test_close_codes_say_whether_to_come_back(code: int, failure: type[Exception] | None) -> None:
    """The ranges of the contract decide; a late hello may be said again in time."""
    found = failure_of(code, "")
    assert (found is None) if failure is None else isinstance(found, failure)


async def test_a_closed_client_says_so() -> None:
    """What still waits when the client is left is told, and what comes later is refused."""
    async with fake_server() as server:
        async with to(server) as me:
            reading = asyncio.ensure_future(anext(aiter(me.chat(CHAT))))
            await server.until(lambda: server.connections == 1)
        with pytest.raises(Closed):
            await reading
        with pytest.raises(Closed):
            me.chat(CHAT).send("too late")


async def test_leaving_waits_for_messages_on_their_way() -> None:
    """Whoever sends and leaves without waiting has still sent."""
    async with fake_server() as server:
        async with to(server) as me:
            me.chat(CHAT).send("bye")
        assert len(server.model.logs[CHAT]) == 1


async def test_starting_offline_queues_until_the_server_is_there(tmp_path: Path) -> None:
    """A message that was sent while nobody answered goes out by itself later."""
    async with fake_server() as server:
        address = server.url
    async with connect(
        address, TOKEN, device_id=DEVICE, outbox=str(tmp_path / "o.db"), start_offline=True, timing=QUICK
    ) as me:
        sending = me.chat(CHAT).send("hi")
        await sending.kept()
        assert sending.queued
        assert not me.is_online
    async with fake_server() as server, to(server, tmp_path / "o.db") as me:
        await server.until(lambda: len(server.sends) == 1)
        assert server.sends[0].client_message_id == sending.client_message_id


async def test_an_outbox_of_somebody_else_is_not_sent(tmp_path: Path) -> None:
    """The file is bound to its first person and device."""
    path = tmp_path / "o.db"
    async with fake_server() as server:
        async with to(server, path):
            pass
        server.user_id = "user_you"
        with pytest.raises(OutboxUnusable, match="user_me"):
            async with to(server, path):
                pass


async def test_a_client_that_was_not_entered_says_so() -> None:
    """It sends nothing before `async with`, and is entered once; its chats can be named before."""
    async with fake_server() as server:
        me = connect(server.url, TOKEN, device_id=DEVICE, timing=QUICK)
        chat = me.chat("chat_1")
        with pytest.raises(Closed, match="async with"):
            chat.send("too early")
        async with me:
            await chat.send("in time")
            with pytest.raises(Closed, match="entered once"):
                await me.__aenter__()
