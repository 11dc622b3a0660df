"""The smallest WebSocket client that can send hello, so that its own cost is low."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

LENGTH_16_BITS = 126
LENGTH_64_BITS = 127
LENGTH_7_BITS = 0x7F

WELCOME = b'"type":"welcome"'


class NotWelcome(Exception):
    """The server did not accept a handshake or a hello."""


class Role(Protocol):
    """What a connection does after the welcome: the transport's protocol from then on."""

    def welcomed(self, transport: asyncio.Transport, rest: bytes) -> None:
        """The connection may send; `rest` arrived after the welcome."""
        ...


class Address:
    """Where the server listens, with the handshake that every connection sends."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.handshake = (
            f"GET /v1/ws HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: parley.v1\r\n\r\n"
        ).encode()


def frame_bounds(data: bytes | bytearray, start: int = 0) -> tuple[int, int] | None:
    """Where the payload of the frame at `start` begins and ends; None while its header is incomplete."""
    if len(data) < start + 2:
        return None
    length = data[start + 1] & LENGTH_7_BITS
    if length < LENGTH_16_BITS:
        return start + 2, start + 2 + length
    size = 2 if length == LENGTH_16_BITS else 8
    if len(data) < start + 2 + size:
        return None
    begin = start + 2 + size
    return begin, begin + int.from_bytes(data[start + 2 : begin], "big")


class Opening(asyncio.Protocol):
    """Handshake and hello; then the role takes over the transport."""

    def __init__(self, address: Address, hello: bytes, role: Role) -> None:
        self._address = address
        self._hello = hello
        self._role = role
        self._buffer = b""
        self._upgraded = False
        self._transport: asyncio.Transport
        self.welcome = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._address.handshake)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded:
            self._upgrade()
        if self._upgraded:
            self._greet()

    def _upgrade(self) -> None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        if not head.startswith(b"HTTP/1.1 101"):
            self._fail(self._buffer)
            return
        self._upgraded = True
        self._buffer = rest
        self._transport.write(self._hello)

    def _greet(self) -> None:
        bounds = frame_bounds(self._buffer)
        if bounds is None or len(self._buffer) < bounds[1]:
            return
        payload, rest = self._buffer[bounds[0] : bounds[1]], self._buffer[bounds[1] :]
        if WELCOME not in payload:
            self._fail(payload)
            return
        self._transport.set_protocol(cast(asyncio.BaseProtocol, self._role))
        self._role.welcomed(self._transport, rest)
        if not self.welcome.done():
            self.welcome.set_result(None)

    def _fail(self, answer: bytes) -> None:
        self._transport.abort()
        if not self.welcome.done():
            self.welcome.set_exception(NotWelcome(answer[:300].decode(errors="replace")))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(NotWelcome(f"the connection was lost before the welcome: {error}"))


async def connect(address: Address, hello: bytes, role: Role) -> asyncio.Transport:
    """A welcomed connection that its role controls. OSError or NotWelcome otherwise."""
    loop = asyncio.get_running_loop()
    transport, opening = await loop.create_connection(
        lambda: Opening(address, hello, role), address.host, address.port
    )
    try:
        await opening.welcome
    except BaseException:
        transport.abort()
        raise
    return transport


async def connect_all(
    address: Address, hellos_and_roles: list[tuple[bytes, Role]], at_once: int = 100
) -> list[asyncio.Transport]:
    """Many connections, opened in groups: opening them is not measured."""
    transports: list[asyncio.Transport] = []
    for start in range(0, len(hellos_and_roles), at_once):
        some = hellos_and_roles[start : start + at_once]
        transports += await asyncio.gather(*(connect(address, hello, role) for hello, role in some))
    return transports
