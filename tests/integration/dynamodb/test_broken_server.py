"""What can go wrong between the client and DynamoDB, on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.store.dynamodb.driver import Dynamo, Item, Put, fixed_credentials
from tests.integration.dynamodb.broken_server import Act, answer, broken, hang_up, say_nothing
from tests.waiting import eventually

KEY: Item = {"chat_id": "c"}
HTML = b"<html>Bad Gateway</html>"
OPEN = {
    "hangs up": hang_up,
    "says nothing": say_nothing,
    "breaks off": answer(b'{"Item":', length=1000),
    "wrong checksum": answer(checksum=1),
    "not JSON": answer(b"hello"),
    "not UTF-8": answer(b'{"a":"\xff"}'),
    "bad gateway": answer(HTML, status=502),
    "internal error": answer(b'{"__type":"x#InternalServerError"}', status=500),
}

Write = Callable[[Dynamo], Awaitable[None]]
WRITES: dict[str, Write] = {
    "put": lambda dynamo: dynamo.put("chats", KEY),
    "transact": lambda dynamo: dynamo.transact([Put("chats", KEY)], "token"),
}


@pytest.mark.parametrize("act", OPEN.values(), ids=OPEN)
async def test_a_read_outlives_a_broken_answer(act: Act) -> None:
    """A read whose answer is broken is asked again and answered."""
    async with broken(act, act, answer()) as (dynamo, server):
        assert await dynamo.get("chats", KEY) == KEY
    assert len(server.heads) == 3


@pytest.mark.parametrize("act", OPEN.values(), ids=OPEN)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_is_open_after_a_broken_answer(act: Act, write: Write) -> None:
    """A write whose answer is broken is sent once, and its outcome is not known."""
    async with broken(act, answer()) as (dynamo, server):
        with pytest.raises(OutcomeUnknown):
            await write(dynamo)
    assert len(server.heads) == 1


async def test_a_write_that_could_not_be_sent_is_not_open() -> None:
    """Where no connection can be opened, nothing was written, and that is told at once."""
    dynamo = Dynamo("http://127.0.0.1:9", "us-east-1", credentials=fixed_credentials("key", "secret"))
    await dynamo.open()
    try:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await dynamo.put("chats", KEY)
        assert dynamo.capacity.requests["PutItem"] == 1
    finally:
        await dynamo.close()


async def test_requests_share_a_connection() -> None:
    """One after the other, requests use the same connection, and ask for nothing compressed."""
    async with broken(answer()) as (dynamo, server):
        for _ in range(5):
            await dynamo.get("chats", KEY)
    assert {head.fields["accept-encoding"] for head in server.heads} == {"identity"}
    assert server.connections == 1


async def test_a_cancelled_request_leaves_the_client_whole() -> None:
    """Who waits no longer for an answer does not disturb who asks next."""
    async with broken(say_nothing, answer()) as (dynamo, server):
        asking = asyncio.ensure_future(dynamo.get("chats", KEY))
        await eventually(lambda: len(server.heads) == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await dynamo.get("chats", KEY) == KEY
