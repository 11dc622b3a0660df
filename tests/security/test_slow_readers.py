"""Readers that stop reading: what they cost is bounded for each user, however many sockets they open."""

import asyncio

import pytest

from parley.gateway.connection import UNREAD_BYTES_MAX, Connection
from parley.wire.limits import OUTBOX_BYTES_MAX, USER_OUTBOX_BYTES_MAX
from tests.harness.clients import Person
from tests.integration.gateway.bare import BareSocket
from tests.integration.gateway.serving import Place, Served
from tests.integration.gateway.test_limits import LARGE
from tests.waiting import eventually

STUCK = 8
REAL_SLEEP = asyncio.sleep


async def test_stalled_sockets_of_one_user_share_their_memory(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight sockets that read nothing hold together no more than the user may, and the fullest are closed."""
    assert STUCK * OUTBOX_BYTES_MAX > USER_OUTBOX_BYTES_MAX
    async with place.serving() as served:
        ann, eve = await served.people("ann", "eve")
        chat = await served.as_(ann).create_group(eve)
        stuck = [BareSocket(served.port, received_bytes=8_192) for _ in range(STUCK)]
        for bare in stuck:
            await bare.open()
            await bare.hello(eve)
        most, offer = 0, Connection.offer

        def watched(connection: Connection, data: bytes) -> None:
            nonlocal most
            offer(connection, data)
            most = max(most, unread_bytes(served, eve))

        monkeypatch.setattr(Connection, "offer", watched)
        async with served.client(ann, live=False) as sender:
            while served.metric("parley_connections_closed_total", code="4001") < STUCK // 2:
                await sender.send_message(chat, LARGE)
        for bare in stuck:
            bare.close()
    assert most <= USER_OUTBOX_BYTES_MAX


async def test_a_socket_that_asks_and_never_reads_costs_no_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with a full outbox waits for its transport's callback: nothing looks at it again and again."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        await served.said(ann, chat, *[LARGE] * 17)
        stuck = BareSocket(served.port, received_bytes=8_192)
        await stuck.open()
        await stuck.hello(ann, live=False)
        sync = {"type": "sync_request", "chat_id": chat, "last_acked_sequence": 0, "limit": 1000}
        stuck.send([sync] * 10)
        await eventually(lambda: unread_bytes(served, ann) > UNREAD_BYTES_MAX)
        naps = watched_naps(monkeypatch)
        async with served.client(ann, live=False) as other:
            for _ in range(20):
                await other.heartbeat()
                await REAL_SLEEP(0.005)
        assert naps == []
        stuck.close()


def unread_bytes(served: Served, person: Person) -> int:
    """Of their own sockets: an ack that leaves with the next turn may wait for somebody else."""
    own = [one for one in served.app.gateway.connections if one.user_id == person.user_id]
    return sum(connection.outbox_bytes for connection in own)


def watched_naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every short sleep from now on."""
    naps: list[float] = []

    async def sleep(seconds: float, result: object = None) -> object:
        if 0 < seconds < 0.1:
            naps.append(seconds)
        return await REAL_SLEEP(seconds, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return naps
