"""A server on a real socket that breaks the rules of HTTP and DynamoDB on purpose."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from parley.store.dynamodb.driver import Dynamo, fixed_credentials

ANSWER_SECONDS = 0.2
BODY = b'{"Item":{"chat_id":{"S":"c"}}}'

Act = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Head:
    """The headers of a request, as they arrived."""

    def __init__(self, text: str) -> None:
        lines = text.split("\r\n")
        self.line = lines[0]
        self.fields = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)
        }


class Server:
    """Does what each act says, one per request; the last one for ever."""

    def __init__(self, *acts: Act) -> None:
        self._acts = list(acts)
        self.heads: list[Head] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not writer.is_closing():
                await self._answer(reader, writer)
        except asyncio.IncompleteReadError:
            pass  # the client has closed its end
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = Head((await reader.readuntil(b"\r\n\r\n")).decode())
        await reader.readexactly(int(head.fields["content-length"]))
        self.heads.append(head)
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        await act(writer)


def answer(
    body: bytes = BODY, status: int = 200, checksum: int | None = None, length: int | None = None
) -> Act:
    """Answer with exactly this, whatever it is."""
    crc = zlib.crc32(body) if checksum is None else checksum
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {size}\r\nx-amz-crc32: {crc}\r\n\r\n"

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + body)
        await writer.drain()
        if size > len(body):
            writer.close()

    return act


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def say_nothing(writer: asyncio.StreamWriter) -> None:
    """Keep the connection, and never answer."""


@asynccontextmanager
async def broken(*acts: Act) -> AsyncIterator[tuple[Dynamo, Server]]:
    """A client of a server that acts like this."""
    server = Server(*acts)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    dynamo = Dynamo(
        f"http://127.0.0.1:{port}",
        "us-east-1",
        credentials=fixed_credentials("key", "secret"),
        random=lambda: 0.0,
        answer_seconds=ANSWER_SECONDS,
    )
    await dynamo.open()
    try:
        yield dynamo, server
    finally:
        await dynamo.close()
        listening.close()
        await listening.wait_closed()
