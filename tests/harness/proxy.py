"""An unreliable network between a client and a server: delays, cuts, stalls, splits, drops and duplicates.

    async with ChaosProxy(server_port, Random(7), Chaos(cut_share=0.01)) as proxy:
        ...connect to proxy.url...
        proxy.chaos.delay_ms_max = 200
        proxy.cut_all()

`random` decides what happens. Memory is bounded: a pipe that cannot write stops reading, as a network does.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

from tests.harness.splitting import Piece, Splitter, TooLong

READ_BYTES_MAX = 64 * 1024
WRITE_BUFFER_BYTES_MAX = 64 * 1024
CONNECT_SECONDS_MAX = 5
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Chaos:
    """The faults of the network; a test may change them at any time. A share is a probability from 0 to 1.

    Drops and duplicates affect whole WebSocket messages of the kinds in `kinds_hit`; other faults affect the
    bytes of one read.
    """

    delay_ms_max: float = 0
    cut_share: float = 0
    reset_share: float = 0.5
    stall_share: float = 0
    stall_ms: float = 200
    split_bytes_max: int = 0
    drop_share: float = 0
    duplicate_share: float = 0
    kinds_hit: frozenset[str] = frozenset({"send_message", "ack", "messages"})
    refuse_connections: bool = False


class ProxiedConnection:
    """One client's connection and the one to the server behind it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.writers = (client, server)
        for writer in self.writers:
            writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def cut(self, reset: bool) -> None:
        """Break it at once in both directions, losing the bytes in flight."""
        for writer in self.writers:
            if reset:
                _reset_on_close(writer)
            writer.transport.abort()


class ChaosProxy:
    """Listens on a free local port and forwards bytes to and from a server, with the faults of `chaos`."""

    def __init__(
        self, server_port: int, random: Random, chaos: Chaos | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.chaos = chaos or Chaos()
        self.happened: Counter[str] = Counter()
        self.port = 0
        self._server_address = (host, server_port)
        self._random = random
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._links: set[ProxiedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://{self._server_address[0]}:{self.port}"

    @property
    def link_count(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, self._server_address[0], 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut_all()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_all(self, reset: bool = True) -> None:
        """Break every connection now."""
        for link in list(self._links):
            self.happened["cut"] += 1
            link.cut(reset)

    def stall(self) -> None:
        """Forward nothing until `resume`."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():  # perhaps before it began, or while it connected: close it here
                writer.transport.abort()

        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await self._connect()
        except (OSError, TimeoutError):
            _reset_on_close(writer)
            writer.transport.abort()
            return
        link = ProxiedConnection(writer, upstream[1])
        self._links.add(link)
        pipes = [
            asyncio.ensure_future(self._pipe(link, reader, upstream[1])),
            asyncio.ensure_future(self._pipe(link, upstream[0], writer)),
        ]
        try:
            await asyncio.wait(pipes)
        finally:
            self._links.discard(link)
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            link.cut(reset=False)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.chaos.refuse_connections:
            self.happened["refused"] += 1
            raise ConnectionRefusedError
        async with asyncio.timeout(CONNECT_SECONDS_MAX):  # wait_for may lose a connection
            return await asyncio.open_connection(*self._server_address)

    async def _pipe(
        self, link: ProxiedConnection, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        """Forward one direction until its end; the other may continue, as TCP allows."""
        splitter = Splitter()
        try:
            while data := await source.read(READ_BYTES_MAX):
                for raw in self._with_faults(splitter.feed(data)):
                    await self._forward(link, raw, sink)
            await self._forward(link, splitter.rest(), sink)
            if not sink.is_closing():
                sink.write_eof()
        except (OSError, TooLong):
            link.cut(reset=True)

    def _with_faults(self, pieces: Iterator[Piece]) -> Iterator[bytes]:
        """Forward, drop or duplicate each message."""
        for piece in pieces:
            hit = piece.kind is not None and piece.kind in self.chaos.kinds_hit
            if hit and self._chance("drop", self.chaos.drop_share):
                continue
            yield piece.raw
            if hit and self._chance("duplicate", self.chaos.duplicate_share):
                yield piece.raw

    async def _forward(self, link: ProxiedConnection, raw: bytes, sink: asyncio.StreamWriter) -> None:
        chaos = self.chaos
        if self._chance("cut", chaos.cut_share):
            link.cut(reset=self._random.random() < chaos.reset_share)
            raise ConnectionAbortedError
        if self._chance("stall", chaos.stall_share):
            await asyncio.sleep(chaos.stall_ms / 1000)
        if chaos.delay_ms_max > 0:
            await asyncio.sleep(self._random.uniform(0, chaos.delay_ms_max) / 1000)
        for part in self._parts(raw):
            await self._flowing.wait()
            sink.write(part)
            await sink.drain()

    def _parts(self, raw: bytes) -> Iterator[bytes]:
        if self.chaos.split_bytes_max <= 0:
            yield raw
            return
        self.happened["split"] += 1
        at = 0
        while at < len(raw):
            size = self._random.randint(1, self.chaos.split_bytes_max)
            yield raw[at : at + size]
            at += size

    def _chance(self, what: str, share: float) -> bool:
        """Whether it happens this time. Draws no random number if it cannot happen."""
        happens = share > 0 and self._random.random() < share
        self.happened[what] += happens
        return happens


class Balancer(ChaosProxy):
    """The same in front of several servers: each connection goes to the next server that accepts it."""

    def __init__(self, server_ports: Sequence[int], random: Random, chaos: Chaos | None = None) -> None:
        super().__init__(server_ports[0], random, chaos)
        self._ports = deque(server_ports)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in range(len(self._ports) - 1):
            try:
                return await self._connect_next()
            except OSError:
                self.happened["passed over"] += 1
        return await self._connect_next()

    async def _connect_next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._ports.rotate()
        self._server_address = self._server_address[0], self._ports[0]
        return await super()._connect()


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Make the kernel send RST instead of FIN on close."""
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
