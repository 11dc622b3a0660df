"""The IO around the core: one WebSocket connection, and the loop that connects, reads, writes and saves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor

import aiohttp
from aiohttp import WSCloseCode, WSMsgType

from parley.client.api import unreachable
from parley.client.core import ClientCore
from parley.client.errors import BadToken, CannotConnect, ClientError, Closed
from parley.client.events import ClientEvent
from parley.client.storage import ClientStorage, StateChanges
from parley.client.timing import Timing, backoff_ms
from parley.clock import Clock
from parley.wire import codes, limits
from parley.wire.codec import ClientCodec, NotAFrame
from parley.wire.frames import Hello, RefusedFrame, Request, ServerFrames, Welcome

SERVER_FRAME_BYTES_MAX = limits.OUTBOX_BYTES_MAX
MUST_LOG_IN = (codes.UNAUTHENTICATED.code, codes.REVOKED.code, codes.TOKEN_EXPIRED.code)
ABNORMAL = 1006
CLOSE_SECONDS_MAX = 2.0

log = logging.getLogger("parley.client")


class ConnectionEnded(Exception):
    """The connection ended; `failure` is set when reconnecting with the same token cannot help."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code
        self.failure = failure_of(code, reason)


class WebSocketTransport:
    """An open WebSocket that carries frames."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, codec: ClientCodec, answer_ms: int) -> None:
        self._socket = socket
        self._codec = codec
        self._answer_seconds = answer_ms / 1000
        self._closing: asyncio.Future[None] | None = None

    async def receive(self) -> ServerFrames | None:
        """The next frame, None for one of an unknown type. ConnectionEnded when the connection has ended."""
        try:
            message = await self._socket.receive()
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                return self._codec.decode(message.data)
        except NotAFrame as error:
            await self.close(WSCloseCode.PROTOCOL_ERROR)
            raise ConnectionEnded(ABNORMAL, str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionEnded(ABNORMAL, f"the connection broke: {error}") from error
        raise ConnectionEnded(self._socket.close_code or ABNORMAL, _close_reason(message))

    async def send(self, frames: Iterable[Request]) -> bool:
        """Write them in order; False when the connection fails: `receive` then raises its end."""
        kind = WSMsgType.BINARY if self._codec.binary else WSMsgType.TEXT
        try:
            async with asyncio.timeout(self._answer_seconds):
                for frame in frames:
                    await self._socket.send_frame(self._codec.encode(frame), kind)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return True

    async def close(self, code: int = WSCloseCode.OK) -> None:
        """Close with a handshake; a server that does not answer is cut off."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._socket.close(code=code)
        except TimeoutError:
            log.info("the server did not answer the close")

    def close_soon(self) -> None:
        """Close without waiting; `receive` raises the end at once."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self.close())


async def connect_transport(
    http: aiohttp.ClientSession, url: str, codec: ClientCodec, hello: Hello, answer_ms: int
) -> tuple[WebSocketTransport, Welcome]:
    """A welcomed connection. CannotConnect if it may work later, BadToken or Closed if not."""
    try:
        async with asyncio.timeout(answer_ms / 1000):
            socket = await http.ws_connect(
                f"{url}/v1/ws",
                protocols=(codec.protocol,),
                max_msg_size=SERVER_FRAME_BYTES_MAX,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS_MAX),
            )
            transport = WebSocketTransport(socket, codec, answer_ms)
            try:
                return transport, await _handshake(transport, hello)
            except BaseException:
                await socket.close()
                raise
    except aiohttp.WSServerHandshakeError as error:
        raise _not_upgraded(url, error) from error
    except ConnectionEnded as ended:
        raise ended.failure or CannotConnect(f"{url} ended the connection: {ended}") from ended
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise unreachable(url, error) from error


async def _handshake(transport: WebSocketTransport, hello: Hello) -> Welcome:
    await transport.send([hello])
    while True:
        frame = await transport.receive()
        if isinstance(frame, Welcome):
            return frame
        if isinstance(frame, RefusedFrame):
            if frame.code == "unauthenticated":
                raise BadToken(frame.reason)
            if frame.temporary:
                raise CannotConnect(frame.reason)
            raise Closed(f"the server refused the connection: {frame.reason}")


def _not_upgraded(url: str, error: aiohttp.WSServerHandshakeError) -> CannotConnect:
    if error.status == 429 or error.status >= 500:
        return CannotConnect(f"{url} accepts no connections at the moment (HTTP status {error.status})")
    return CannotConnect(f"{url} is not a Parley server (HTTP status {error.status})")


def failure_of(code: int, reason: str) -> ClientError | None:
    """Why a client must not reconnect with the same token after this close code; None if it may."""
    if code in MUST_LOG_IN:
        return BadToken(reason or "the token is not valid; log in again")
    if codes.may_resume(code) or code == codes.HELLO_TIMEOUT.code:
        # This code asks for a changed request: a hello in time.
        return None
    return Closed(f"the server ended the connection for good: {reason or 'no reason given'} ({code})", code)


def _close_reason(message: aiohttp.WSMessage) -> str:
    if message.type is WSMsgType.CLOSE:
        return str(message.extra or "the server closed it")
    return "this client closed it" if message.type is WSMsgType.CLOSING else "it broke"


def loop_ms() -> int:
    """The event loop's time, which only rises."""
    return int(asyncio.get_running_loop().time() * 1000)


class ConnectionLoop:
    """Keeps the core connected and drained until it is stopped or reconnecting cannot help. Decides nothing.

    The core sets `woken` after every input. `connect` opens a connection and waits for its welcome;
    `dispatch` gets the core's events. `renews`: `connect` gets a new token each time, so one that has expired
    ends nothing for good.
    """

    def __init__(
        self,
        *,
        core: ClientCore,
        woken: asyncio.Event,
        connect: Callable[[], Awaitable[tuple[WebSocketTransport, Welcome]]],
        storage: ClientStorage,
        executor: Executor,
        timing: Timing,
        clock: Clock,
        chance: Callable[[], float],
        dispatch: Callable[[list[ClientEvent]], None],
        renews: bool = False,
    ) -> None:
        self._core = core
        self._woken = woken
        self._connect = connect
        self._storage = storage
        self._executor = executor
        self._timing = timing
        self._clock = clock
        self._chance = chance
        self._dispatch = dispatch
        self._renews = renews
        self._transport: WebSocketTransport | None = None
        self._saving: asyncio.Task[None] | None = None
        self._pumping: asyncio.Task[None] | None = None
        self.welcomed = asyncio.Event()

    async def run(self, *, retry_first: bool) -> None:
        """Runs until an error ends it. Unless `retry_first`, the first attempt to connect must succeed."""
        async with asyncio.TaskGroup() as tasks:
            self._pumping = tasks.create_task(self._pump())
            tasks.create_task(self._stay_connected(retry_first))

    async def _stay_connected(self, retry_first: bool) -> None:
        attempt = 0
        while True:
            try:
                transport, welcome = await self._connect()
            except CannotConnect as error:
                if not retry_first and not self.welcomed.is_set():
                    raise
                log.info("cannot connect, trying again: %s", error)
            else:
                attempt = 0
                await self._receive_all(transport, welcome)
            await asyncio.sleep(backoff_ms(attempt, self._timing, self._chance()) / 1000)
            attempt += 1

    async def _receive_all(self, transport: WebSocketTransport, welcome: Welcome) -> None:
        """Read until the connection ends; raise if it ended for good."""
        self._transport = transport
        self._core.connected(welcome, loop_ms())
        self.welcomed.set()
        try:
            while True:
                frame = await transport.receive()
                if frame is not None:
                    self._core.receive(frame, loop_ms())
        except NotAFrame as error:
            log.warning("the server sent an invalid frame: %s", error)
            await transport.close(WSCloseCode.PROTOCOL_ERROR)
        except ConnectionEnded as ended:
            log.info("the connection ended: %s", ended)
            has_expired = ended.code == codes.TOKEN_EXPIRED.code
            if ended.failure is not None and not (self._renews and has_expired):
                raise ended.failure from ended
        finally:
            self._transport = None
            self._core.disconnected()

    async def _pump(self) -> None:
        """Drain the core after every input, and whenever something is due."""
        core = self._core
        while True:
            self._woken.clear()
            now_ms, transport = loop_ms(), self._transport
            core.tick(now_ms)
            self._save()
            frames = core.frames_to_send(now_ms, self._clock())
            self._dispatch(core.events())
            if transport is not None and (core.silent or (frames and not await transport.send(frames))):
                transport.close_soon()
            wake_ms = core.next_wake_ms()
            try:
                async with asyncio.timeout(None if wake_ms is None else max(0, wake_ms - loop_ms()) / 1000):
                    await self._woken.wait()
            except TimeoutError:
                pass  # It is time for `tick`.

    def _save(self) -> None:
        """Start a commit, unless one is under way. Storage in memory needs no thread."""
        if self._saving is not None:
            if not self._saving.done():
                return
            self._saving.result()
            self._saving = None
        changes = self._core.to_save()
        if not changes:
            return
        if self._storage.blocking:
            self._saving = asyncio.create_task(self._commit(changes))
            self._saving.add_done_callback(lambda _: self._woken.set())  # `_save` raises its failure.
        else:
            self._storage.commit(changes)
            self._core.saved(changes)

    async def _commit(self, changes: StateChanges) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._storage.commit, changes)
        self._core.saved(changes)

    async def finish(self) -> None:
        """Save and acknowledge what is processed, then close the connection."""
        if self._pumping is not None:
            self._pumping.cancel()
            await asyncio.wait([self._pumping])
        if self._saving is not None:
            await self._saving
        self._core.cursors.flush(loop_ms())
        await self._commit(self._core.to_save())
        transport = self._transport
        if transport is not None:  # It may end meanwhile.
            await self._send_last_acks(transport)
            await transport.close()

    async def _send_last_acks(self, transport: WebSocketTransport) -> None:
        """Send the last acks. A heartbeat after them confirms that they have taken effect."""
        acks, marks = self._core.cursors.last_acks(), self._core.read_marks
        if not acks:
            return
        last = marks.add(None)
        try:
            async with asyncio.timeout(self._timing.drain_ms / 1000):
                await transport.send([*acks, *marks.frames_to_send()])
                while last in marks and self._transport is transport:
                    self._woken.clear()
                    await self._woken.wait()
        except TimeoutError:
            log.info("the server did not confirm the last acks; the next run may see entries again")
