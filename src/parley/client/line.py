"""One open connection: frames in, frames out, and what its end means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from parley.client.api import unreachable
from parley.client.errors import BadToken, CannotConnect, ClientError, Closed
from parley.wire import codes, limits
from parley.wire.client_codec import ClientCodec
from parley.wire.codec import NotAFrame
from parley.wire.frames import Hello, RefusedFrame, Request, ServerFrames, Welcome

SERVER_FRAME_BYTES_MAX = limits.OUTBOX_BYTES_MAX
MUST_LOG_IN = (codes.UNAUTHENTICATED.code, codes.REVOKED.code)
ABNORMAL = 1006
CLOSE_SECONDS_MAX = 2.0

log = logging.getLogger("parley.client")


class Ended(Exception):
    """The connection is over; `failure` is set when reconnecting as one is cannot help."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.failure = failure_of(code, reason)


class Line:
    """A connection that has been welcomed."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, codec: ClientCodec, answer_ms: int) -> None:
        self._socket = socket
        self._codec = codec
        self._answer_seconds = answer_ms / 1000
        self._hanging_up: asyncio.Future[None] | None = None

    async def receive(self) -> ServerFrames | None:
        """The next frame, None for one to pass over. Ended when there is none."""
        try:
            message = await self._socket.receive()
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                return self._codec.decode(message.data)
        except NotAFrame as error:
            await self.close(WSCloseCode.PROTOCOL_ERROR)
            raise Ended(ABNORMAL, str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Ended(ABNORMAL, f"the connection broke: {error}") from error
        raise Ended(self._socket.close_code or ABNORMAL, _reason(message))

    async def send(self, frames: Iterable[Request]) -> bool:
        """Write them in order; False when the connection does not take them: `receive` tells its end."""
        kind = WSMsgType.BINARY if self._codec.binary else WSMsgType.TEXT
        try:
            async with asyncio.timeout(self._answer_seconds):
                for frame in frames:
                    await self._socket.send_frame(self._codec.encode(frame), kind)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return True

    async def close(self, code: int = WSCloseCode.OK) -> None:
        """Say goodbye; a peer that does not answer is cut off."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._socket.close(code=code)
        except TimeoutError:
            log.info("the server did not answer the goodbye")

    def hang_up(self) -> None:
        """End it without waiting; `receive` tells the end at once."""
        if self._hanging_up is None:
            self._hanging_up = asyncio.ensure_future(self.close())


async def dial(
    http: aiohttp.ClientSession, url: str, codec: ClientCodec, hello: Hello, answer_ms: int
) -> tuple[Line, Welcome]:
    """A welcomed connection. CannotConnect if it may work later, BadToken or Closed if not."""
    seconds = answer_ms / 1000
    try:
        async with asyncio.timeout(seconds):
            socket = await http.ws_connect(
                f"{url}/v1/ws",
                protocols=(codec.protocol,),
                max_msg_size=SERVER_FRAME_BYTES_MAX,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS_MAX),
            )
            line = Line(socket, codec, answer_ms)
            try:
                return line, await _greet(line, hello)
            except BaseException:
                await socket.close()
                raise
    except aiohttp.WSServerHandshakeError as error:
        raise _not_upgraded(url, error) from error
    except Ended as ended:
        raise ended.failure or CannotConnect(f"{url} ended the connection: {ended}") from ended
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise unreachable(url, error) from error


async def _greet(line: Line, hello: Hello) -> Welcome:
    await line.send([hello])
    while True:
        frame = await line.receive()
        if isinstance(frame, Welcome):
            return frame
        if isinstance(frame, RefusedFrame):
            raise _not_welcome(frame)


def _not_welcome(frame: RefusedFrame) -> ClientError:
    if frame.code == "unauthenticated":
        return BadToken(frame.reason)
    if frame.temporary:
        return CannotConnect(frame.reason)
    return Closed(f"the server refused the connection: {frame.reason}")


def _not_upgraded(url: str, error: aiohttp.WSServerHandshakeError) -> CannotConnect:
    if error.status == 429 or error.status >= 500:
        return CannotConnect(f"{url} takes no connections at the moment (HTTP status {error.status})")
    return CannotConnect(f"what answers at {url} is no Parley server (HTTP status {error.status})")


def failure_of(code: int, reason: str) -> ClientError | None:
    """What a close code means for somebody who would come back as he is; None when he may."""
    if code in MUST_LOG_IN:
        return BadToken(reason or "the token is not valid; log in again")
    if codes.may_resume(code) or code == codes.HELLO_TIMEOUT.code:
        # Saying hello in time is the changed request that this code asks for.
        return None
    return Closed(f"the server ended the connection for good: {reason or 'no reason given'} ({code})", code)


def _reason(message: aiohttp.WSMessage) -> str:
    if message.type is WSMsgType.CLOSE:
        return str(message.extra or "the server closed it")
    return "it was closed here" if message.type is WSMsgType.CLOSING else "it broke"
