"""A line to a service that can lose what it carries in one direction: requests, or their answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

READ_BYTES_MAX = 64 * 1024


class Line:
    """Passes bytes on, or silently loses them; `cut` breaks every connection."""

    def __init__(self) -> None:
        self.loses_requests = False
        self.loses_answers = False
        self.refuses = False
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def connect(self, service_port: int, here: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        if self.refuses:
            out.close()
            return
        there, into = await asyncio.open_connection("127.0.0.1", service_port)
        self._writers |= {out, into}
        pumps = [
            asyncio.create_task(self._pump(here, into, lambda: self.loses_requests)),
            asyncio.create_task(self._pump(there, out, lambda: self.loses_answers)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps)
        self._tasks.difference_update(pumps)
        self._writers -= {out, into}

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, loses: Callable[[], bool]
    ) -> None:
        try:
            while data := await source.read(READ_BYTES_MAX):
                if not loses():
                    target.write(data)
                    await target.drain()
        except ConnectionError:
            return  # cut
        finally:
            target.close()

    async def close(self) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def line_to(service_port: int) -> AsyncIterator[Line]:
    """A line on a port of its own to a service of this machine."""
    line = Line()
    server = await asyncio.start_server(lambda r, w: line.connect(service_port, r, w), "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        await line.close()
