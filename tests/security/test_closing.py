"""Closing: a client learns why it was closed, and what became of what it had sent, whatever it is doing.

The promise: what the server had taken when it decided to close is answered before the close frame, if the
store answers within a second and the client reads. What it had not taken yet has no answer and is not stored.
"""

import socket
from concurrent.futures import ThreadPoolExecutor

import msgspec

from parley.gateway.outbox import closing
from parley.wire import codes
from tests.harness.server import ServerProcess
from tests.integration.gateway.bare import TEXT, BareSocket, masked
from tests.integration.gateway.serving import Place
from tests.integration.gateway.test_limits import held_lock, in_flight, only
from tests.integration.gateway.test_process import crowd_on, server
from tests.integration.gateway.test_socket_rules import send
from tests.security.flooding import DRAINED_BYTES, flood_socket
from tests.waiting import eventually

__all__ = ["server"]

CLIENTS = 10
GOING_AWAY = closing(codes.GOING_AWAY)
UNMASKED_HEARTBEAT = b'\x81\x14{"type":"heartbeat"}'


async def test_clients_that_keep_sending_see_why_they_are_closed(server: ServerProcess) -> None:
    """At SIGTERM each of many clients in the middle of sending reads 4000 before a write of it fails."""
    async with crowd_on(server) as crowd:
        wires = [flood_socket(server.port, crowd.ann) for _ in range(CLIENTS)]
        frames = b"".join(masked(TEXT, msgspec.json.encode(send(crowd.chat))) for _ in range(20))
        reads: list[int] = []
        with ThreadPoolExecutor(CLIENTS) as threads:
            codes_seen = [threads.submit(send_until_closed, wire, frames, reads) for wire in wires]
            await eventually(lambda: len(reads) > CLIENTS)
            await crowd.terminate()
    assert {seen.result() for seen in codes_seen} == {4000}


def send_until_closed(wire: socket.socket, frames: bytes, reads: list[int]) -> int:
    """Write and read in turn; the close code, or 1006 if a write fails before one was read."""
    last = b""
    with wire:
        while GOING_AWAY not in last:
            try:
                wire.sendall(frames)
                received = wire.recv(DRAINED_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                return 1006
            if not received:
                return 1006
            last = last[-len(GOING_AWAY) :] + received
            reads.append(len(received))
    return codes.GOING_AWAY.code


async def test_a_close_does_not_lose_the_acks_that_are_due(place: Place) -> None:
    """Sends that the store has not answered when their connection is closed are answered before the close."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        connection = only(served)
        with held_lock(served.sqlite.database.path):
            bare.send([send(chat, id=number) for number in range(10)])
            await eventually(lambda: in_flight(connection) == 10)
            connection.close(codes.IDLE)
        answers, code = await bare.until_closed()
        bare.close()
        stored = (await served.as_(ann).get(f"/v1/chats/{chat}/messages")).body["entries"]
    assert [(answer["type"], answer["re"]) for answer in answers] == [("ack", n) for n in range(10)]
    assert (code, len(stored)) == (codes.IDLE.code, 10)


async def test_a_client_that_leaves_gets_the_acks_that_are_due(place: Place) -> None:
    """A close frame behind sends is answered after them."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        sends = b"".join(masked(TEXT, msgspec.json.encode(send(chat))) for _ in range(10))
        bare.send_raw(sends + masked(8, (1000).to_bytes(2, "big")))
        answers, code = await bare.until_closed()
        bare.close()
    assert ([answer["type"] for answer in answers], code) == (["ack"] * 10, 1000)


async def test_nothing_that_comes_after_the_close_is_stored(place: Place) -> None:
    """What a client sends behind a close that it has not read yet is thrown away, without an answer."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        chat = await served.as_(ann).create_group()
        bare = BareSocket(served.port)
        await bare.open()
        await bare.hello(ann, live=False)
        connection = only(served)
        connection.close(codes.IDLE)
        bare.send([send(chat) for _ in range(10)])
        assert await bare.until_closed() == ([], codes.IDLE.code)
        bare.close()
        await eventually(lambda: connection not in served.app.gateway.connections)
        assert (await served.as_(ann).get(f"/v1/chats/{chat}/messages")).body["entries"] == []


async def test_a_frame_without_a_mask_is_refused(place: Place) -> None:
    """RFC 6455 section 5.1: the connection ends with 1002, also when frames before it were masked."""
    async with place.serving() as served:
        (ann,) = await served.people("ann")
        for greeted in (False, True):
            bare = BareSocket(served.port)
            await bare.open()
            if greeted:
                await bare.hello(ann, live=False)
            bare.send_raw(UNMASKED_HEARTBEAT)
            assert await bare.until_closed() == ([], 1002)
            bare.close()
