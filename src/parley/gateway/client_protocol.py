"""One TCP connection under aiohttp: incoming bytes are checked and timed, and a writer can wait for room.

aiohttp parses all frames of a WebSocket, also those that it never returns: empty fragments, and frames behind
a close. It accepts frames that are not masked. `FrameReader` in front of its parser handles both.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol, cast

from aiohttp import WSCloseCode, web
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.http import WebSocketReader, WebSocketWriter, WSMessageNoDecodeText

from parley.gateway.outbox import FIN_CLOSE, HEADER_16
from parley.gateway.turns import SLICE_SECONDS, LoopShare, LoopTurns
from parley.http_server import HttpProtocol

TIMED_BYTES_MIN = 1024
"""Smaller pieces are parsed too fast to be worth timing."""
PIECE_BYTES = 4 * 1024
"""Parsed between two looks at the clock: of frames without payload, less than a millisecond."""
WAITING_BYTES_MAX = 128 * 1024
"""A client with more in frames that wait behind a request is not read."""
FRAME_BYTES_BESIDE = 128
"""What a frame costs beside its payload."""
MASKED = 0x80
LENGTH_16_BITS = 126
MEDIUM = MASKED | LENGTH_16_BITS
"""The second byte of a masked frame of 126 bytes to 64 KiB."""
LENGTH_64_BITS = 127
MASK_BYTES = 4
unpack_header = HEADER_16.unpack_from
GO_ON = (False, b"")
"""The answer to aiohttp: no error, and no bytes left over."""


class FrameHeaders:
    """Follows the headers of frames. A client's must say that they are masked (RFC 6455 section 5.1)."""

    __slots__ = ("_head", "_left_bytes", "is_between", "is_closed")

    def __init__(self) -> None:
        self._head = b""
        """The first bytes of a header that is not complete yet."""
        self._left_bytes = 0
        """Bytes of the current frame that have not come yet."""
        self.is_between = True
        """Whether the next byte begins a frame."""
        self.is_closed = False
        """Whether one of the frames was a close."""

    def are_masked(self, data: bytes) -> bool:
        """Whether every frame that begins in these bytes is masked."""
        if self._head:
            data = self._head + data
            self._head = b""
        at, size = self._left_bytes, len(data)
        while at < size:
            if size - at >= 4:
                first, second, length = unpack_header(data, at)
                if second == MEDIUM and first != FIN_CLOSE:  # as most frames are
                    at += 4 + MASK_BYTES + length
                    continue
            if size - at < 2:
                return self._wait(data[at:])
            second = data[at + 1]
            if second < MASKED:
                return False
            if data[at] == FIN_CLOSE:
                self.is_closed = True
            length = second - MASKED
            if length < LENGTH_16_BITS:
                at += 2 + MASK_BYTES + length
            elif length == LENGTH_16_BITS and size - at >= 4:
                at += 4 + MASK_BYTES + (data[at + 2] << 8 | data[at + 3])
            elif length == LENGTH_64_BITS and size - at >= 10:
                at += 10 + MASK_BYTES + int.from_bytes(data[at + 2 : at + 10], "big")
            else:
                return self._wait(data[at:])
        self._left_bytes = at - size
        self.is_between = at == size
        return True

    def _wait(self, head: bytes) -> bool:
        self._head, self._left_bytes = head, 0
        self.is_between = False
        return True


def is_one_message(data: bytes) -> bool:
    """Whether these bytes are one masked frame, whole and shorter than 64 KiB, and no close."""
    size = len(data)
    if size < 2 + MASK_BYTES or data[0] == FIN_CLOSE:
        return False
    length = data[1] - MASKED
    if length == LENGTH_16_BITS and size > 4 + MASK_BYTES:
        return 4 + MASK_BYTES + (data[2] << 8 | data[3]) == size
    return 0 <= length < LENGTH_16_BITS and 2 + MASK_BYTES + length == size


class FrameQueue(WebSocketDataQueue):
    """Frames that aiohttp has parsed and the connection has not taken yet.

    aiohttp's own queue wakes a task for every frame; from this one they are taken as soon as they are parsed.
    """

    __slots__ = ("error", "frames", "is_ended", "waiting_bytes")

    def __init__(self, protocol: ClientProtocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(protocol, 0, loop=loop)
        self.frames = cast("deque[WSMessageNoDecodeText]", self._buffer)
        """Those that wait, the oldest first."""
        self.waiting_bytes = 0
        """The size of those that came since none waited."""
        self.error: BaseException | None = None
        """What broke the rules of the protocol."""
        self.is_ended = False
        """Whether nothing more will come."""

    def feed_data(self, message: WSMessageNoDecodeText, size: int) -> None:
        """Called by aiohttp's parser."""
        self.frames.append(message)
        self.waiting_bytes += size + FRAME_BYTES_BESIDE

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """Called by aiohttp's parser."""
        self.error = exc
        self.is_ended = True

    def feed_eof(self) -> None:
        self.is_ended = True


class FrameReader:
    """Passes bytes to aiohttp's parser. After our own close it only waits for the peer's.

    A client that has used its slice of the loop is not read until its turn comes, and one whose frames wait
    behind a request not until they are taken.
    """

    __slots__ = (
        "_headers",
        "_is_broken",
        "_parser",
        "_protocol",
        "_turns",
        "_unread",
        "_waits_for_turn",
        "is_ignoring",
        "is_paused",
        "queue",
    )

    def __init__(
        self, queue: FrameQueue, parser: WebSocketReader, protocol: ClientProtocol, turns: LoopTurns
    ) -> None:
        self.queue = queue
        self._parser = parser
        self._protocol = protocol
        self._turns = turns
        self._headers = FrameHeaders()
        self._unread = b""
        self._is_broken = False
        self.is_ignoring = False
        """Whether our close is written: bytes that come now are ignored."""
        self.is_paused = False
        """Whether bytes wait: for its turn, or until the frames in the queue are taken."""
        self._waits_for_turn = False

    def feed_eof(self) -> None:
        """Called by aiohttp when nothing more will come."""
        self._parser.feed_eof()
        self._tell()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Called by aiohttp with the bytes that came in."""
        if self.is_paused:
            self._unread += data
            return GO_ON
        if len(data) >= TIMED_BYTES_MIN:
            return self._read_timed(data)
        if self._headers.is_between and not self.is_ignoring and not self._is_broken and is_one_message(data):
            result = self._parser.feed_data(data)  # as nearly always: there is nothing to follow
        else:
            result = self._read(data)
        self._tell()
        if self.queue.waiting_bytes > WAITING_BYTES_MAX:
            self._pause(b"")
        return result

    def _tell(self) -> None:
        if self._protocol.owner is not None:
            self._protocol.owner.frames_arrived()

    def _read(self, data: bytes) -> tuple[bool, bytes]:
        if self._is_broken:
            return GO_ON
        if not self._headers.are_masked(data):
            self._is_broken = True
            if self._protocol.owner is not None:
                self._protocol.owner.refuse_unmasked()
        elif not self.is_ignoring:
            return self._parser.feed_data(data)
        elif self._headers.is_closed:
            self._protocol.end()
        return GO_ON

    def _read_timed(self, data: bytes) -> tuple[bool, bytes]:
        """Parse piece by piece; the rest waits when the client has used its slice, or has frames waiting."""
        turns, share = self._turns, self._protocol.share
        turns.begin(share)
        for start in range(0, len(data), PIECE_BYTES):
            began = turns.now()
            has_failed, left = self._read(data[start : start + PIECE_BYTES])
            turns.charge(share, began)
            self._tell()
            if has_failed:
                return has_failed, left
            if self.queue.waiting_bytes > WAITING_BYTES_MAX:
                self._pause(data[start + PIECE_BYTES :])
                break
            if share.spent > SLICE_SECONDS:
                self._pause(data[start + PIECE_BYTES :])
                self._waits_for_turn = True
                turns.wait(share, self._take_turn)
                break
        return GO_ON

    def _pause(self, unread: bytes) -> None:
        self._unread = unread
        self.is_paused = True
        self._protocol.hold_reading()

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self.read_on()

    def read_on(self) -> bool:
        """Read what waits, unless it is for its turn. Whether there was anything."""
        if not self.is_paused or self._waits_for_turn:
            return False
        self.is_paused = False
        data, self._unread = self._unread, b""
        if data:
            has_failed, _ = self._read_timed(data)
            if has_failed:
                self._protocol.close()
        self._protocol.release_reading()
        return True


class ProtocolOwner(Protocol):
    def refuse_unmasked(self) -> None:
        """The client does not mask its frames."""
        ...

    def frames_arrived(self) -> None:
        """Frames wait in the queue, or nothing more will come."""
        ...


class ClientProtocol(HttpProtocol):
    """`lost` is called once, when the connection is."""

    __slots__ = (
        "_gone",
        "_lost",
        "_turns",
        "_until_lost",
        "_writable",
        "frames",
        "owner",
        "share",
    )

    def __init__(
        self,
        server: web.Server,
        headers: Mapping[str, str],
        turns: LoopTurns,
        lost: Callable[[], None],
        **options: Any,
    ) -> None:
        super().__init__(server, headers, **options)
        self._turns = turns
        self._lost = lost
        self.frames: FrameReader | None = None
        """Once it is a WebSocket, until it is lost."""
        self._writable: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._until_lost: asyncio.Future[None] | None = None
        self.share = LoopShare()
        """The account that parsing is charged to."""
        self.owner: ProtocolOwner | None = None
        """The connection above it, once there is one."""

    # Bytes in

    def read_frames(self, message_bytes_max: int) -> None:
        """From now on what comes in are frames of a WebSocket."""
        queue = FrameQueue(self, asyncio.get_running_loop())
        parser = WebSocketReader(queue, message_bytes_max, compress=False, decode_text=False)
        self.frames = FrameReader(queue, parser, self, self._turns)
        self.set_parser(self.frames)  # type: ignore[arg-type] # it is a parser as far as needed
        self._parser = None  # aiohttp would keep the request's headers as long as the connection lives

    def hold_reading(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def release_reading(self) -> None:
        """Resume reading, unless bytes wait."""
        if self.transport is not None and not (self.frames is not None and self.frames.is_paused):
            self.transport.resume_reading()

    def ignore(self) -> None:
        """Our close is written: ignore everything that comes in but the peer's close."""
        self.share = LoopShare()
        if self.frames is not None:
            self.frames.is_ignoring = True
            self.frames.queue.waiting_bytes = 0  # no more will wait, so the peer's close is not held back
            self.frames.read_on()

    def end(self) -> None:
        """Close when everything is written."""
        if self.transport is not None:
            self.transport.close()

    # Bytes out, and the end

    def resume_writing(self) -> None:
        super().resume_writing()
        _wake(self._writable)

    async def wait_writable(self) -> None:
        """Until the peer has read so much that the transport takes more, or is gone."""
        while self.writing_paused and self.transport is not None:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable

    async def wait_lost(self) -> None:
        """Until the connection is gone."""
        while self.transport is not None:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone

    async def unless_lost(self, work: Coroutine[None, None, None]) -> None:
        """Do it, or end it when the connection is gone."""
        task = self._until_lost = asyncio.ensure_future(work)
        if self.transport is None:
            task.cancel()
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._until_lost = None

    def connection_lost(self, error: BaseException | None) -> None:
        super().connection_lost(error)
        self.frames = None
        self.owner = None
        _wake(self._writable)
        _wake(self._gone)
        if self._until_lost is not None:
            self._until_lost.cancel()
        self._lost()


class ClientSocket(web.WebSocketResponse[Literal[False]]):
    """The upgrade of a request. What is read and written, and how it ends, is the affair of `Connection`.

    aiohttp would close the transport at once, and what the peer has not read would be lost.
    """

    def _post_start(self, request: web.BaseRequest, protocol: str | None, writer: WebSocketWriter) -> None:
        """As aiohttp's own, but for who reads the frames."""
        self._ws_protocol = protocol
        self._writer = writer
        assert isinstance(request.protocol, ClientProtocol)
        request.protocol.read_frames(self._max_msg_size)
        request.protocol.keep_alive(False)

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        return False

    async def write_eof(self) -> None:  # type: ignore[override] # as aiohttp's own
        return


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
