"""Clients that flood: threads on blocking sockets, which cost the test itself next to nothing."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from tests.harness.clients import Person
from tests.integration.gateway.bare import TEXT, handshake, masked

CONTINUATION, PING = 0, 9
DRAINED_BYTES = 1 << 20


def flood_socket(port: int, person: Person | None = None) -> socket.socket:
    """Connected, and greeted if it is somebody's."""
    wire = socket.create_connection(("127.0.0.1", port))
    wire.sendall(handshake("parley.v1", {}))
    answered = b""
    while b"\r\n\r\n" not in answered:
        answered += wire.recv(4_096)
    if person is not None:
        hello = {"type": "hello", "token": person.token, "device_id": person.device_id, "live": False}
        wire.sendall(masked(TEXT, msgspec.json.encode(hello)))
    return wire


@contextlib.contextmanager
def flooding(wire: socket.socket, data: bytes) -> Iterator[None]:
    """Write this again and again, and throw away whatever is answered, until the end of the block."""
    running = threading.Event()
    running.set()

    def write() -> None:
        with contextlib.suppress(OSError):
            while running.is_set():
                wire.sendall(data)

    def read() -> None:
        thrown_away = bytearray(DRAINED_BYTES)
        with contextlib.suppress(OSError):
            while running.is_set() and wire.recv_into(thrown_away):
                pass

    threads = [threading.Thread(target=write, daemon=True), threading.Thread(target=read, daemon=True)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        running.clear()
        with contextlib.suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)
        wire.close()
        for thread in threads:
            thread.join()


def unfinished(kind: int, payload: bytes = b"") -> bytes:
    """A fragment after which more is to come."""
    whole = bytearray(masked(kind, payload))
    whole[0] &= 0x7F
    return bytes(whole)


async def slowest_seconds(count: int, ask: Callable[[], Awaitable[object]]) -> float:
    """The longest of so many answers, one after the other."""
    loop, longest = asyncio.get_running_loop(), 0.0
    for _ in range(count):
        asked = loop.time()
        await ask()
        longest = max(longest, loop.time() - asked)
    return longest
