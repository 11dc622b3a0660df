"""The places where a batch can be written and committed; `bench.commit_strategies` compares them."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

import msgspec

from bench import raw_log
from bench.raw_log import Batch

LENGTH_BYTES = 4
DONE = b"."


class Place(Protocol):
    """Takes one batch at a time."""

    async def commit(self, batch: Batch) -> None:
        """The batch is on disk when it returns."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class OnLoop:
    """Everything on the loop, which blocks during the sync."""

    def __init__(self, path: Path) -> None:
        self._connection = raw_log.open_log(path)

    async def commit(self, batch: Batch) -> None:
        raw_log.write(self._connection, batch)
        raw_log.commit(self._connection)

    def close(self) -> None:
        self._connection.close()


class Hands:
    """One worker thread: leaner than an executor, one wake-up each way."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> asyncio.Future[None]:
        done = self._loop.create_future()
        self._jobs.put((job, done))
        return done

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            job()
            self._loop.call_soon_threadsafe(done.set_result, None)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()


class InThread:
    """The whole batch in a thread: each statement releases the GIL and must acquire it again."""

    def __init__(self, path: Path) -> None:
        self._connection = raw_log.open_log(path)
        self._hands = Hands()

    async def commit(self, batch: Batch) -> None:
        await self._hands.do(lambda: self._write(batch))

    def _write(self, batch: Batch) -> None:
        raw_log.write(self._connection, batch)
        raw_log.commit(self._connection)

    def close(self) -> None:
        self._hands.close()
        self._connection.close()


class CommitInThread:
    """Statements on the loop, only COMMIT in a thread: the GIL changes hands once for a batch."""

    def __init__(self, path: Path) -> None:
        self._connection = raw_log.open_log(path)
        self._hands = Hands()

    async def commit(self, batch: Batch) -> None:
        raw_log.write(self._connection, batch)
        await self._hands.do(self._commit)

    def _commit(self) -> None:
        raw_log.commit(self._connection)

    def close(self) -> None:
        self._hands.close()
        self._connection.close()


class InProcess:
    """A process that owns the log; it gets batches as MessagePack."""

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._encoder = msgspec.msgpack.Encoder()
        self._here, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self._here.close()
            _serve_log(there, path)
        there.close()
        self._here.setblocking(False)

    async def commit(self, batch: Batch) -> None:
        payload = self._encoder.encode(batch)
        await self._loop.sock_sendall(self._here, len(payload).to_bytes(LENGTH_BYTES, "big") + payload)
        await self._loop.sock_recv(self._here, len(DONE))

    def close(self) -> None:
        self._here.close()
        os.waitpid(self.pid, 0)


def _serve_log(there: socket.socket, path: Path) -> None:
    """Write batches until the other end is closed; never returns into the parent's code."""
    connection = raw_log.open_log(path)
    decoder = msgspec.msgpack.Decoder(Batch)
    stream = there.makefile("rb")
    while length := stream.read(LENGTH_BYTES):
        raw_log.write(connection, decoder.decode(stream.read(int.from_bytes(length, "big"))))
        raw_log.commit(connection)
        there.sendall(DONE)
    os._exit(0)


PLACES: dict[str, Callable[[Path], Place]] = {
    "thread": InThread,
    "commit_thread": CommitInThread,
    "process": InProcess,
    "loop": OnLoop,
}
