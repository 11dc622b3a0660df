"""A WebSocket without any visibility of its own: it sends what it is told, in the packets it is told to,
reads only when asked to, and never answers a close."""

import asyncio
import base64
import socket
import struct
from collections.abc import Iterable
from typing import Any

import msgspec

from tests.harness.clients import Person
from tests.waiting import deadline

TEXT, BINARY, CLOSE = 1, 2, 8
FRAME_SHORT, FRAME_16_BIT, FRAME_64_BIT = 125, 126, 127


class BareSocket:
    """One connection. `received_bytes` bounds what the system takes in for a reader that does not read."""

    def __init__(self, port: int, received_bytes: int = 0) -> None:
        self._port = port
        self._received_bytes = received_bytes
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self, protocol: str = "parley.v1", **headers: str) -> None:
        wire = socket.socket()
        if self._received_bytes:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._received_bytes)
        wire.setblocking(False)
        async with deadline():
            await asyncio.get_running_loop().sock_connect(wire, ("127.0.0.1", self._port))
            limit = self._received_bytes or 2**16
            self._reader, self._writer = await asyncio.open_connection(sock=wire, limit=limit)
            self._writer.write(handshake(protocol, headers))
            answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101"), answer

    async def hello(self, person: Person, **fields: Any) -> dict[str, Any]:
        self.send([{"type": "hello", "token": person.token, "device_id": person.device_id, **fields}])
        return await self.frame()

    def send(self, frames: Iterable[dict[str, Any]]) -> None:
        """All of them in one packet, as far as the system allows."""
        self._writer.write(b"".join(masked(TEXT, msgspec.json.encode(frame)) for frame in frames))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def send_eof(self) -> None:
        """Nothing more comes from this side; what the other side sends can still be read."""
        self._writer.write_eof()

    async def part(self) -> tuple[int, bytes]:
        """The next frame of the WebSocket itself."""
        async with deadline():
            first, size = await self._reader.readexactly(2)
            if size == FRAME_16_BIT:
                (size,) = struct.unpack(">H", await self._reader.readexactly(2))
            elif size == FRAME_64_BIT:
                (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
            return first & 15, await self._reader.readexactly(size)

    async def frame(self) -> dict[str, Any]:
        """The next frame of the contract."""
        kind, payload = await self.part()
        assert kind == TEXT, (kind, payload)
        found: dict[str, Any] = msgspec.json.decode(payload)
        return found

    async def frames(self, count: int) -> list[dict[str, Any]]:
        return [await self.frame() for _ in range(count)]

    async def until_closed(self) -> tuple[list[dict[str, Any]], int]:
        """Every frame up to the end, and the close code; 1006 when there was none."""
        frames: list[dict[str, Any]] = []
        while True:
            try:
                kind, payload = await self.part()
            except (asyncio.IncompleteReadError, ConnectionError):
                return frames, 1006
            if kind == CLOSE:
                return frames, int.from_bytes(payload[:2], "big")
            frames.append(msgspec.json.decode(payload))

    async def until_cut(self) -> None:
        """Wait until the server has ended the TCP connection; nothing is read for it."""
        async with deadline():
            await self._writer.wait_closed()

    def close(self) -> None:
        self._writer.transport.abort()


def handshake(protocol: str, headers: dict[str, str]) -> bytes:
    key = base64.b64encode(bytes(16)).decode()
    lines = [
        "GET /v1/ws HTTP/1.1",
        "Host: 127.0.0.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        f"Sec-WebSocket-Protocol: {protocol}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def masked(kind: int, payload: bytes) -> bytes:
    """A client's frame, masked with zeros: allowed, and plain to read in a dump."""
    size = len(payload)
    if size <= FRAME_SHORT:
        header = struct.pack(">BB", 0x80 | kind, 0x80 | size)
    elif size < 2**16:
        header = struct.pack(">BBH", 0x80 | kind, 0x80 | FRAME_16_BIT, size)
    else:
        header = struct.pack(">BBQ", 0x80 | kind, 0x80 | FRAME_64_BIT, size)
    return header + bytes(4) + payload
