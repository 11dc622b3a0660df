"""Hop 1: one WebSocket. Bytes come in, requests are performed in order, bytes go out.

Sends do not wait for each other; every other request waits until the sends before it are answered, so
an answer means that everything sent before it has taken effect or was refused. A heartbeat waits a moment
only. No request waits for the store for ever: it is refused in time. Frames are written straight to
the transport, which gathers them until the loop comes round: its buffer is the outbox, and it is
bounded (docs/decisions/0003-frames-straight-to-the-transport.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import structlog
from aiohttp import WSMsgType, web

from parley.chats.sending import SEND_SECONDS_MAX, WATCH_SECONDS
from parley.clock import iso
from parley.core.sending import check_send
from parley.core.session import Session, State
from parley.errors import (
    INTERNAL,
    NOT_A_MEMBER,
    OUTCOME_UNKNOWN,
    RATE_LIMITED,
    STORE_UNAVAILABLE,
    OutcomeUnknown,
    Refusal,
    Refused,
    StoreError,
)
from parley.gateway.framing import framed
from parley.gateway.outbox import Outbox
from parley.model import Draft, Outcome
from parley.wire import codes, frames, limits
from parley.wire.codec import Codec, Misread
from parley.wire.codes import Close
from parley.wire.frames import RequestId, ServerFrame, answer_to, refused

if TYPE_CHECKING:
    from parley.gateway.hub import LiveChat
    from parley.gateway.services import Services

REFUSED_FRAMES_MAX = 1_000
"""A client that goes on at full speed, so many more frames refused than taken, is not worth answering."""
ABORT_AFTER_SECONDS = 1.5
REQUEST_SECONDS_MAX = 4.5
"""A request that the store has not answered by then is refused."""
FLUSH_SECONDS_MAX = 1.25
"""How long a send waits for the positions that were noted before it."""
BARRIER_SECONDS_MAX = 1.0
"""How long a heartbeat waits for the sends before it: it says that the connection lives, whatever they do."""
assert REQUEST_SECONDS_MAX < limits.ANSWER_SECONDS_MAX
assert FLUSH_SECONDS_MAX + SEND_SECONDS_MAX + WATCH_SECONDS < limits.ANSWER_SECONDS_MAX
UNREAD_BYTES_MAX = limits.PAGE_BYTES_MAX
READ_LOOK_SECONDS = 0.005
assert limits.OUTBOX_BYTES_MAX > UNREAD_BYTES_MAX + 2 * limits.PAGE_BYTES_MAX, "a page fits beside it"
ANSWERED = frozenset(
    {
        frames.SyncRequest,
        frames.Sync,
        frames.SyncOverview,
        frames.PresenceSubscribe,
        frames.PresenceQuery,
        frames.Heartbeat,
    }
)
"""An answer to these means that what the connection noted before is durable."""

RELEASING = (codes.GOING_AWAY, codes.REVOKED)
"""Closed so, a device is gone at once, as if it had said so; else it may come back before anybody notices."""

PEOPLE_PER_FRAME = 10
"""Who asks for the presence of so many makes as much work as an ordinary frame does."""

log = structlog.get_logger("parley.connection")


class Connection:
    """One socket and whoever is behind it."""

    __slots__ = (
        "_closing",
        "_frame_count",
        "_hello_timer",
        "_in_flight",
        "_is_released",
        "_loop",
        "_noted",
        "_outbox",
        "_refused_frames",
        "_room",
        "_services",
        "_session",
        "_socket",
        "_told_heads",
        "_transport",
        "chats",
        "codec",
        "connection_id",
        "device_id",
        "last_heard",
        "last_verified",
        "limited",
        "live",
        "renewed_at",
        "session_id",
        "token",
        "user_id",
    )

    def __init__(
        self,
        services: Services,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport,
        codec: Codec,
        connection_id: str,
        limited: bool,
    ) -> None:
        self._services = services
        self._socket = socket
        self._transport = transport
        self._outbox = Outbox(transport, services.flusher)
        self._loop = asyncio.get_running_loop()
        self._session = Session(codec)
        self._in_flight = 0
        self._is_released = False
        self._noted = False
        self._hello_timer: asyncio.TimerHandle | None = None
        self._frame_count = 0
        self._refused_frames = 0
        self._room: asyncio.Future[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._told_heads: dict[str, int] | None = None
        self.codec = codec
        self.connection_id = connection_id
        self.limited = limited
        self.last_heard = self.last_verified = self.renewed_at = self._loop.time()
        self.live = True
        self.user_id = self.device_id = self.session_id = self.token = ""
        self.chats: dict[str, LiveChat] = {}

    # Bytes in

    async def run(self) -> None:
        """Serve until the peer or the server ends it."""
        self._hello_timer = self._loop.call_later(limits.HELLO_SECONDS_MAX, self._expect_hello)
        self._services.arrived(self)
        try:
            while not self._socket.closed:
                message = await self._socket.receive()
                if message.type is not WSMsgType.TEXT and message.type is not WSMsgType.BINARY:
                    self._is_released |= message.type is WSMsgType.CLOSE
                    break
                waiting = self._receive(message.data)
                if waiting is not None:
                    await waiting
        finally:
            self._forget_hello()
            self._session.close()
            self._services.hub.unsubscribe(self)
            self._services.presences.unsubscribe(self)
            if self.user_id:
                self._services.lobby.left(self.user_id, self.device_id, clean=self._is_released)
            self._services.left(self)
            if self._closing is not None:
                await self._closing

    def _forget_hello(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None

    def _expect_hello(self) -> None:
        self._hello_timer = None
        if self._session.state in (State.NEW, State.GREETED):
            self.close(codes.HELLO_TIMEOUT)

    def _receive(self, data: bytes) -> Coroutine[None, None, None] | None:
        """Do what a frame asks; what is returned must be awaited before the next one is read."""
        self.last_heard = self._loop.time()
        self._frame_count += 1
        request = self._session.receive(data)
        if self.limited and not self._within_rate(request):
            return None
        if type(request) is frames.SendMessage:
            if self._noted and not self._services.reading.rides_with_sends:
                return self._flush_and_send(request)
            self._send_message(request)
            if self._in_flight >= limits.IN_FLIGHT_MAX:
                return self._until(limits.IN_FLIGHT_MAX // 2)
        elif isinstance(request, Close):
            self.close(request)
        elif isinstance(request, Misread):
            self._refuse(request.refusal, request.request_id)
        elif type(request) is not frames.AckPosition or not self._ack_at_once(request):
            return self._perform(request)
        return None

    def _within_rate(self, request: frames.Request | Misread | Close) -> bool:
        wait_ms = self._services.frame_rate.take(
            self.connection_id, self._services.clock(), _frames_worth(request)
        )
        if not wait_ms:
            self._refused_frames -= self._refused_frames > 0
            return True
        if isinstance(request, Close):
            self.close(request)
        else:
            request_id = request.request_id if isinstance(request, Misread) else request.id
            self._refuse(RATE_LIMITED.after(wait_ms), request_id)
            self._refused_frames += 1
            if self._refused_frames > REFUSED_FRAMES_MAX:
                self.close(codes.TOO_FAST)
        return False

    def _send_message(self, request: frames.SendMessage) -> None:
        draft = check_send(request, self.user_id, f"{self.connection_id}.{self._frame_count}")
        if isinstance(draft, Refusal):
            self._refuse(draft, request.id)
            return
        if self.limited:
            wait_ms = self._services.message_rate.take(self.user_id, self._services.clock())
            if wait_ms:
                self._refuse(RATE_LIMITED.after(wait_ms), request.id)
                return
        self._in_flight += 1
        self._services.sending.submit(draft, request.id, self._sent)

    async def _flush_and_send(self, request: frames.SendMessage) -> None:
        """Its ack will say that the positions before it are durable: so they are made so."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await self._services.reading.flush(self.user_id)
        except (StoreError, TimeoutError):
            self._refuse(STORE_UNAVAILABLE, request.id)
            return
        self._noted = False
        self._send_message(request)
        if self._in_flight >= limits.IN_FLIGHT_MAX:
            await self._until(limits.IN_FLIGHT_MAX // 2)

    def _sent(self, draft: Draft, request_id: RequestId, outcome: Outcome) -> None:
        """The store has answered: durable, refused, or unknown."""
        self._in_flight -= 1
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if isinstance(outcome, Refusal):
            self._refuse(outcome, request_id)
            return
        self._write(
            frames.Ack(
                re=answer_to(request_id),
                chat_id=draft.chat_id,
                client_message_id=draft.client_message_id or "",
                message_id=outcome.message_id,
                sequence=outcome.sequence,
                epoch=outcome.epoch,
                created_at=outcome.created_at,
                deduplicated=outcome.deduplicated,
                conflict=outcome.conflict,
            )
        )

    async def _until(self, in_flight: int) -> None:
        """Stop reading until no more than so many sends are under way."""
        while self._in_flight > in_flight:
            self._room = self._loop.create_future()
            await self._room
        self._room = None

    async def _until_read(self, patience: asyncio.Timeout) -> None:
        """Who asks for much at once is answered as fast as it reads; live frames still find it too slow."""
        patience.reschedule(None)
        while self._closing is None and self._outbox.waiting_bytes > UNREAD_BYTES_MAX:  # noqa: ASYNC110
            await asyncio.sleep(READ_LOOK_SECONDS)
        patience.reschedule(self._loop.time() + REQUEST_SECONDS_MAX)

    async def _until_sent(self, request: frames.Request) -> None:
        """Sends before a request are answered before it; a heartbeat does not wait for slow ones."""
        if type(request) is not frames.Heartbeat:
            await self._until(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BARRIER_SECONDS_MAX):
                await self._until(0)

    async def _perform(self, request: frames.Request) -> None:
        """One request that is not a send; a refusal or a failure is an answer, never a crash."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX) as patience:
                if self._in_flight:
                    await self._until_sent(request)
                if self._outbox.waiting_bytes > UNREAD_BYTES_MAX:
                    await self._until_read(patience)
                if self._noted and type(request) in ANSWERED:
                    await self._services.reading.flush(self.user_id)
                    self._noted = False
                answer = await self._answer(request)
        except TimeoutError:  # nothing but reading and noting is done here: it may be asked again
            self._refuse(STORE_UNAVAILABLE, request.id)
        except Refused as error:
            self._refuse(error.refusal, request.id)
        except StoreError as error:
            self._refuse(
                OUTCOME_UNKNOWN if isinstance(error, OutcomeUnknown) else STORE_UNAVAILABLE, request.id
            )
        except Exception:
            log.exception("request failed", connection=self.connection_id, request=type(request).__name__)
            self._refuse(INTERNAL, request.id)
        else:
            if answer is not None:
                answer.re = answer_to(request.id)
                self._write(answer)
        if self._session.state is State.GREETED:
            self.close(codes.INTERNAL)  # no verdict on the token: the client comes again

    async def _answer(self, request: frames.Request) -> ServerFrame | None:
        """Each kind of request and what performs it."""
        match request:
            case frames.Hello():
                await self._hello(request)
            case frames.SyncRequest():
                return await self._sync_request(request)
            case frames.Sync():
                page = await self._services.reading.sync_after_message(
                    self.user_id, request.last_message_id, request.limit
                )
                return self._services.batch_frame(page, self.codec)
            case frames.SyncOverview():
                return await self._overview(request)
            case frames.AckPosition():
                await self._ack(request)
            case frames.DeliveryReceipt():
                self._check_chat(request.chat)
                await self._services.reading.acknowledge_message(
                    self.user_id, self.device_id, request.chat, request.message_id
                )
                self._noted = True
            case frames.ReadReceipt():
                self._check_chat(request.chat)
                await self._services.reading.mark_read(self.user_id, request.chat, request.read_up_to)
                self._noted = True
            case frames.TypingStart():
                self._check_chat(request.chat)
                await self._services.typings.start(self.user_id, request.chat)
            case frames.TypingStop():
                self._check_chat(request.chat)
                await self._services.typings.stop(self.user_id, request.chat)
            case frames.PresenceSubscribe():
                presences = await self._services.presences.subscribe(self, request.user_ids)
                return frames.PresenceState(presences=presences)
            case frames.PresenceQuery():
                presences = await self._services.presences.query(self.user_id, request.user_ids)
                return frames.PresenceState(presences=presences)
            case frames.Heartbeat():
                return await self._heartbeat()
        return None

    async def _hello(self, request: frames.Hello) -> None:
        services = self._services
        try:
            session = await services.people.authenticate(request.token)
            if session.device_id != request.device_id:
                raise Refused(services.wrong_device)
        except Refused as error:
            self._refuse(error.refusal, request.id)
            self.close(codes.UNAUTHENTICATED)
            raise
        self.user_id, self.device_id = session.user_id, session.device_id
        self.session_id, self.token, self.live = session.session_id, request.token, request.live
        services.lobby.arrived(self.user_id, self.device_id)
        services.note_arrival(self.user_id)
        self._outbox.hold()
        await services.hub.subscribe(self)
        if not self.live:
            self._told_heads = services.hub.heads_beyond(self, {})
        self._session.accept()
        self._forget_hello()
        welcome = frames.Welcome(
            re=answer_to(request.id),
            user_id=self.user_id,
            device_id=self.device_id,
            session_id=self.session_id,
            server_time=iso(services.clock()),
            heartbeat_seconds=limits.HEARTBEAT_SECONDS,
            limits=limits.WELCOME_LIMITS,
        )
        self._outbox.begin(self._framed(welcome))

    async def _sync_request(self, request: frames.SyncRequest) -> ServerFrame:
        page = await self._services.reading.sync(self.user_id, request)
        return self._services.batch_frame(page, self.codec)

    async def _overview(self, request: frames.SyncOverview) -> ServerFrame:
        listed = await self._services.listing.chats(
            self.user_id, self.device_id, request.changed_since, request.limit, request.brief
        )
        return frames.Overview(chats=listed.chats, token=listed.token, complete=listed.complete)

    def _check_chat(self, chat_id: str) -> int:
        """The head in memory of one of this person's chats."""
        head = self._services.hub.head_of(self, chat_id)
        if head is None:
            raise Refused(NOT_A_MEMBER)
        return head

    def _ack_at_once(self, request: frames.AckPosition) -> bool:
        """A position within the head in memory needs neither a read nor to wait for sends under way."""
        chat = self.chats.get(request.chat)
        if chat is None or request.last_acked_sequence > chat.sent_through:
            return False
        self._services.reading.note_position(
            self.user_id, self.device_id, request.chat, request.last_acked_sequence
        )
        self._noted = True
        return True

    async def _ack(self, request: frames.AckPosition) -> None:
        head = self._check_chat(request.chat)
        await self._services.reading.acknowledge(
            self.user_id, self.device_id, request.chat, request.last_acked_sequence, head
        )
        self._noted = True

    async def _heartbeat(self) -> ServerFrame:
        """Re-reads the session: a revocation that was missed ends the connection here."""
        services = self._services
        await self.verify()
        beyond = services.hub.heads_beyond(self, self._told_heads)
        if self._told_heads is not None:
            self._told_heads.update(beyond)
        answer = frames.HeartbeatAck(server_time=iso(services.clock()))
        if beyond:
            answer.heads = beyond
        return answer

    async def verify(self) -> None:
        """Read the session again; if it may not be used any more, Refused, and the connection ends."""
        self.last_verified = self._loop.time()
        try:
            await self._services.people.authenticate(self.token)
        except Refused:
            self.close(codes.REVOKED)
            raise

    # Bytes out

    def _refuse(self, refusal: Refusal, request_id: RequestId) -> None:
        self._services.metrics.refusals.labels(refusal.code).inc()
        self._write(refused(refusal, request_id))

    def _framed(self, frame: ServerFrame) -> bytes:
        return framed(self.codec.encode(frame), self.codec.binary)

    def _write(self, frame: ServerFrame) -> None:
        self.offer(self._framed(frame))

    def offer(self, data: bytes) -> None:
        """The one bounded doorway: over the limit the reader is closed, and finds it all in the log."""
        if self._closing is None and not self._outbox.offer(data):
            self.close(codes.TOO_SLOW)

    @property
    def outbox_bytes(self) -> int:
        return self._outbox.waiting_bytes

    @property
    def idle_seconds(self) -> float:
        return self._loop.time() - self.last_heard

    def close(self, close: Close) -> None:
        """End with a code; a peer that does not take it is cut off."""
        if self._closing is None:
            self._is_released |= close in RELEASING
            self._session.close()
            self._outbox.flush()
            self._services.metrics.closed.labels(str(close.code)).inc()
            self._closing = self._loop.create_task(self._close(close))

    async def _close(self, close: Close) -> None:
        try:
            await asyncio.wait_for(
                self._socket.close(code=close.code, message=close.reason.encode()), ABORT_AFTER_SECONDS
            )
        except (TimeoutError, ConnectionError, RuntimeError):
            pass  # it was told as well as it can be
        finally:
            self._transport.abort()


def _frames_worth(request: frames.Request | Misread | Close) -> int:
    """What a frame counts for in the rate of frames."""
    if isinstance(request, frames.PresenceQuery | frames.PresenceSubscribe):
        return 1 + len(request.user_ids) // PEOPLE_PER_FRAME
    return 1
