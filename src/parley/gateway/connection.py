"""Hop 1: one WebSocket. Bytes come in, requests are performed in order, bytes go out.

Sends do not wait for each other; every other request waits until the sends before it are answered, so
an answer means that everything sent before it has taken effect or was refused. A heartbeat waits a moment
only. No request waits for the store for ever: it is refused in time. A frame is performed as soon as it is
parsed; the connection's task goes on only where one must be awaited. Frames are written straight to
the transport, which gathers them until the loop comes round: its buffer is the outbox, and it is
bounded (docs/decisions/0003-frames-straight-to-the-transport.md).

What the loop does for a connection is on its user's account: see `turns` and docs/fairness.md.

A connection ends in three steps: the sends that were taken are answered, the close frame is written and our
half ends, and what still comes is thrown away until the client ends its half. Closing at once would make the
kernel reset the connection, and the client would lose what it has not read, the close code included.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import get_args

import structlog
from aiohttp import WebSocketError, WSCloseCode, WSMsgType

from parley.accounts.access import Access
from parley.accounts.accounts import check_device
from parley.clock import MS_PER_SECOND, iso
from parley.core.jwt_claims import EXPIRED
from parley.core.rates import work_of
from parley.core.session import ConnectionProtocol, Drafted, State, check_draft
from parley.errors import (
    FORBIDDEN,
    INTERNAL,
    NOT_A_MEMBER,
    OUTCOME_UNKNOWN,
    RATE_LIMITED,
    STORE_DAMAGED,
    STORE_UNAVAILABLE,
    TOO_MANY_CONNECTIONS,
    UNAUTHENTICATED,
    Refusal,
    Refused,
    StoreDamaged,
    StoreError,
)
from parley.gateway.answers import ack_of, batch_of, work_in
from parley.gateway.client_protocol import ClientProtocol, FrameReader
from parley.gateway.outbox import ConnectionOutbox, closing, framed, pong
from parley.gateway.scopes import HEADS, ONLINE, REQUESTS, allows, check_frame, is_foreign
from parley.gateway.services import ConnectionServices
from parley.gateway.subscribers import LiveChat
from parley.gateway.turns import CONNECT_SECONDS, SLICE_SECONDS, LoopShare
from parley.model import Draft, Outcome, Scope
from parley.sending.answers import DEADLINE_CHECK_SECONDS, SEND_SECONDS_MAX
from parley.store.damage import FAILURES, refusal_for
from parley.wire import codes, frames, limits
from parley.wire.codec import Codec, InvalidFrame
from parley.wire.codes import Close
from parley.wire.frames import RequestId, ServerFrame, answer_to, refused

IN_FLIGHT_CHARS_MAX = 256 * 1024
"""The size of the unanswered sends of a connection. All chats share one queue to the log, so large messages
of one client would delay the others."""
assert IN_FLIGHT_CHARS_MAX > 2 * limits.MESSAGE_BYTES_MAX
REFUSED_FRAMES_MAX = 1_000
"""A client with so many more refused frames than accepted ones is closed."""
ACKS_SECONDS_MAX = 1.0
"""How long a close waits for the answers to sends that were taken."""
ABORT_AFTER_SECONDS = 1.5
"""How long a client that was told of the close has to end its half."""
REQUEST_SECONDS_MAX = 4.5
"""A request that the store has not answered by then is refused."""
FLUSH_SECONDS_MAX = 1.25
"""How long a send waits for the positions that were noted before it."""
BARRIER_SECONDS_MAX = 1.0
"""How long a heartbeat waits for the sends before it: it says that the connection lives, whatever they do."""
assert REQUEST_SECONDS_MAX < limits.ANSWER_SECONDS_MAX
assert FLUSH_SECONDS_MAX + SEND_SECONDS_MAX + DEADLINE_CHECK_SECONDS < limits.ANSWER_SECONDS_MAX
UNREAD_BYTES_MAX = limits.PAGE_BYTES_MAX
UNREAD_BYTES_LOW = UNREAD_BYTES_MAX // 2
"""A client that had more than the one unread is answered again when it has no more than the other."""
assert limits.OUTBOX_BYTES_MAX > UNREAD_BYTES_MAX + 2 * limits.PAGE_BYTES_MAX, "a page fits beside it"
ANSWERED = frozenset(
    {
        frames.SyncRequest,
        frames.Sync,
        frames.SyncOverview,
        frames.PresenceSubscribe,
        frames.PresenceQuery,
        frames.Heartbeat,
        *get_args(Drafted),
    }
)
"""An answer to these means that what the connection noted before is durable."""

EXPIRY_WAIT_SECONDS_MAX = 3_600.0
"""A token that ends later is looked at again by then."""
UNMASKED = Close(WSCloseCode.PROTOCOL_ERROR, "a client masks its frames")

RELEASING = (codes.GOING_AWAY, codes.REVOKED)
"""Closed with these, a device is offline at once, as if it had said so; else its lease runs out first."""

OTHER_PERSON = UNAUTHENTICATED.because("this token is for another person than the connection")
BOUND_TO_CHAT = FORBIDDEN.because("a token that is bound to a chat is for HTTP alone")
WRONG_DEVICE = UNAUTHENTICATED.because("this token belongs to another device_id")

log = structlog.get_logger("parley.connection")


class Connection:
    """One socket and the client behind it."""

    __slots__ = (
        "_closing", "_expiry", "_frame_count", "_idle", "_in_flight", "_in_flight_chars",
        "_is_ended", "_is_foreign_device", "_is_released", "_loop", "_noted", "_outbox",
        "_peer_close", "_protocol", "_rate_key", "_reader", "_refused_frames", "_room", "_services",
        "_session", "_share", "_timer", "_told_heads", "_transport", "_work", "address", "chats",
        "codec", "connection_id", "device_id", "heard_from_ms", "is_listed", "last_heard",
        "last_verified", "limited", "live", "opened_ms", "renewed_at", "scopes", "session_id",
        "token", "user_id",
    )  # fmt: skip

    def __init__(
        self,
        services: ConnectionServices,
        protocol: ClientProtocol,
        reader: FrameReader,
        transport: asyncio.Transport,
        codec: Codec,
        connection_id: str,
        *,
        address: str,
        limited: bool,
    ) -> None:
        self._services = services
        self._protocol = protocol
        self._reader = reader
        self._transport = transport
        transport.set_write_buffer_limits(high=UNREAD_BYTES_MAX, low=UNREAD_BYTES_LOW)
        self._share = protocol.share
        protocol.owner = self
        self._outbox = ConnectionOutbox(transport, services.flusher)
        self._loop = asyncio.get_running_loop()
        self._session = ConnectionProtocol(codec)
        self._in_flight = self._in_flight_chars = 0
        self._is_released = False
        self.is_listed = False
        """Whether the device counts as connected."""
        self._noted = False
        """Whether positions were noted that may not be durable yet."""
        self._idle: asyncio.Future[None] | None = None
        """What the task waits for while no frame must be awaited."""
        self._work: Coroutine[None, None, None] | None = None
        """What the task must await before the next frame is taken."""
        self._peer_close: Close | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Until hello comes; later, until a close goes on without waiting any longer."""
        self._expiry: asyncio.TimerHandle | None = None
        """Until the token ends, if it ends at a fixed time."""
        self.scopes: frozenset[Scope] | None = None
        """Those of an API token; None for all that the person may do."""
        self._is_foreign_device = False
        """Whether a program names a device that the person is logged in on."""
        self._rate_key = address if limited else ""
        """What its frames are counted by: all that come from an address, until it is known who speaks."""
        self._frame_count = 0
        self._refused_frames = 0
        self._room: asyncio.Future[None] | None = None
        self._closing: Close | None = None
        self._is_ended = False
        """Whether the close frame was written, and nothing can be written any more."""
        self._told_heads: dict[str, int] | None = None
        self.codec = codec
        self.connection_id = connection_id
        self.limited = limited
        self.last_heard = self.last_verified = self.renewed_at = self._loop.time()
        self.live = True
        self.user_id = self.device_id = self.session_id = self.token = ""
        self.address = address
        """The client's, as known proxies name it."""
        self.opened_ms = services.clock()
        self.heard_from_ms = 0
        self.chats: dict[str, LiveChat] = {}

    # Bytes in

    async def run(self) -> None:
        """Serve until the peer or the server ends it. After our close only wait for the peer's.

        Frames are performed as soon as they are parsed. This task goes on where one of them must be awaited.
        """
        self._timer = self._loop.call_later(limits.HELLO_SECONDS_MAX, self._expect_hello)
        reader, turns = self._reader, self._services.turns
        try:
            while self._peer_close is None:
                if self._take_frames():
                    if reader.read_on():
                        continue
                    if reader.queue.is_ended:
                        break
                    self._idle = self._loop.create_future()
                    await self._idle
                    self._idle = None
                share = self._share  # a hello changes it
                if self._work is not None:
                    work, self._work = self._work, None
                    await turns.metered(share, work)
                    del work  # an idle connection holds nothing of its last frame
                if share.spent > SLICE_SECONDS and self._protocol.transport is not None:
                    await turns.give_way(share)
            await self._end_with_peer(reader.queue.error)
        finally:
            if self._work is not None:
                self._work.close()
            self._leave()
            self._services.users.leave(self.user_id, self)
            if self._protocol.transport is None:
                self._forget_timer()

    def frames_arrived(self) -> None:
        """Perform them at once, unless one before them is still awaited; then the task comes to them."""
        idle = self._idle
        if idle is None or idle.done():
            return
        try:
            if not self._take_frames() or self._reader.queue.is_ended:
                idle.set_result(None)
        except Exception as error:
            idle.set_exception(error)

    def _take_frames(self) -> bool:
        """Perform the frames that wait. False when the task must go on: for `_work`, for a client that has
        used its slice, or because the peer has closed.
        """
        turns, queue = self._services.turns, self._reader.queue
        began = 0.0
        while queue.frames:
            message, share = queue.frames.popleft(), self._share
            kind = message.type
            if share.turn != turns.number:
                turns.begin(share)
                began = 0.0  # the first frame of a turn is not worth timing
            elif not began:
                began = turns.now()
            if kind is WSMsgType.TEXT or kind is WSMsgType.BINARY:
                if self._closing is None:
                    self._work = self._receive(message.data)
            elif kind is WSMsgType.PING or kind is WSMsgType.PONG:
                self._receive_control(kind, message.data)
            else:
                self._peer_close = Close(message.data, "")
                return False
            if began:
                began = turns.charge(share, began)
            if self._work is not None or share.spent > SLICE_SECONDS:
                return False
        queue.waiting_bytes = 0
        return True

    async def _end_with_peer(self, error: BaseException | None) -> None:
        """The peer has ended its half, has broken the rules of the protocol, or is gone."""
        if self._peer_close is not None:
            self._is_released = True
            self._begin_close(self._peer_close)
            if not self._is_ended:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ACKS_SECONDS_MAX):
                        await self._wait_for_outcomes()
                self._end()
        elif isinstance(error, WebSocketError):
            self.close(Close(error.code, str(error)))
            await self._protocol.wait_lost()

    def _leave(self) -> None:
        """It hears nothing any more, and its device is no longer here.

        A user with many chats who connects again and again pays for it at the next hello.
        """
        services = self._services
        began = services.turns.now()
        self._session.close()
        self._forget_expiry()
        services.hub.unsubscribe(self)
        services.presence.unsubscribe(self)
        if self.is_listed:
            self.is_listed = False
            services.devices.attention(self.connection_id, self.user_id, self.device_id, is_looking=True)
            services.devices.left(self.user_id, self.device_id, clean=self._is_released)
        services.turns.owe(self._share, began)

    def charge(self, share: LoopShare) -> None:
        """What the loop does for this connection is on this account from now on."""
        self._share = self._protocol.share = share

    def _forget_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire_at(self, ends_at_ms: int | None) -> None:
        """Close when the token ends. The clock decides, the loop only wakes."""
        self._forget_expiry()
        if ends_at_ms is None:
            return
        left_ms = ends_at_ms - self._services.clock()
        if left_ms <= 0:
            self.close(codes.TOKEN_EXPIRED)
            return
        wait_seconds = min(left_ms / MS_PER_SECOND, EXPIRY_WAIT_SECONDS_MAX)
        self._expiry = self._loop.call_later(wait_seconds, self._expire_at, ends_at_ms)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expect_hello(self) -> None:
        self._timer = None
        if self._session.state in (State.NEW, State.GREETED):
            self.close(codes.HELLO_TIMEOUT)

    def refuse_unmasked(self) -> None:
        self.close(UNMASKED)

    def _receive_control(self, kind: WSMsgType, payload: bytes) -> None:
        """Pings and pongs count like any frame; what is too fast is not answered."""
        if self._closing is None and (not self.limited or self._is_within_rate(None)):
            self.last_heard = self._loop.time()
            if kind is WSMsgType.PING:
                self.offer(pong(payload))

    def _receive(self, data: bytes) -> Coroutine[None, None, None] | None:
        """Do what a frame asks; what is returned must be awaited before the next one is read."""
        self.last_heard = self._loop.time()
        self._frame_count += 1
        request = self._session.receive(data)
        if self.limited and not self._is_within_rate(request):
            return None
        if self.scopes is not None and not self._is_in_scope(request):
            return None
        if isinstance(request, Drafted):
            return self._send_message(request)
        if isinstance(request, Close):
            self.close(request)
        elif isinstance(request, InvalidFrame):
            self._refuse(request.refusal, request.request_id)
        elif type(request) is not frames.AckPosition or not self._ack_at_once(request):
            return self._perform(request)
        return None

    def _is_within_rate(self, request: frames.Request | InvalidFrame | Close | None) -> bool:
        """A frame that is too fast is refused; a client that goes on like that is closed. None: a ping."""
        services, now_ms = self._services, self._services.clock()
        wait_ms = services.frame_rate.take(self._rate_key, now_ms)
        if not wait_ms and self.user_id:
            wait_ms = services.work_rate.take(self.user_id, now_ms)
        if not wait_ms:
            self._refused_frames -= self._refused_frames > 0
            return True
        if isinstance(request, Close):
            self.close(request)
            return False
        if request is not None:
            request_id = request.request_id if isinstance(request, InvalidFrame) else request.id
            self._refuse(RATE_LIMITED.after(wait_ms), request_id)
        self._refused_frames += 1
        if self._refused_frames > REFUSED_FRAMES_MAX:
            self.close(codes.TOO_FAST)
        return False

    def _is_in_scope(self, request: frames.Request | InvalidFrame | Close) -> bool:
        """Whether an API token allows this frame; one that it does not allow is refused."""
        if isinstance(request, InvalidFrame | Close) or self.scopes is None:
            return True
        refusal = check_frame(self.scopes, request, self._is_foreign_device)
        if refusal is not None:
            self._refuse(refusal, request.id)
        return refusal is None

    # Sends

    def _send_message(self, request: Drafted) -> Coroutine[None, None, None] | None:
        draft = check_draft(request, self.user_id, f"{self.connection_id}.{self._frame_count}")
        if type(draft) is Refusal:
            self._refuse(draft, request.id)
            return None
        if not draft.is_plain:
            return self._perform(request, draft)
        if self._noted and not self._services.reader.rides_with_sends:
            return self._flush_and_submit(draft, request.id)
        self._submit(draft, request.id)
        if self._in_flight >= limits.IN_FLIGHT_MAX or self._in_flight_chars >= IN_FLIGHT_CHARS_MAX:
            return self._wait_for_room()
        return None

    def _submit(self, draft: Draft, request_id: RequestId) -> None:
        if self.limited:
            wait_ms = self._services.message_rate.take(self.user_id, self._services.clock())
            if wait_ms:
                self._refuse(RATE_LIMITED.after(wait_ms), request_id)
                return
        self._in_flight += 1
        self._in_flight_chars += draft.chars
        self._services.sending.submit(draft, request_id, self._sent)

    async def _flush_and_submit(self, draft: Draft, request_id: RequestId) -> None:
        """Its ack will say that the positions before it are durable: so they are made so."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await self._services.reader.flush(self.user_id)
        except (StoreError, TimeoutError) as error:  # what is sent did not reach the store
            is_damaged = isinstance(error, StoreDamaged)
            self._refuse(STORE_DAMAGED if is_damaged else STORE_UNAVAILABLE, request_id)
            return
        self._noted = False
        self._submit(draft, request_id)
        await self._wait_for_room()

    def _sent(self, draft: Draft, request_id: RequestId, outcome: Outcome) -> None:
        """The store has answered: durable, refused, or unknown."""
        self._in_flight -= 1
        self._in_flight_chars -= draft.chars
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if type(outcome) is Refusal:
            self._refuse(outcome, request_id)
        else:
            self._write(ack_of(draft, request_id, outcome))
        if self._closing is not None and not self._in_flight:
            self._end()

    async def _wait_for_room(self) -> None:
        """Stop reading until half of what may be under way is answered."""
        while self._in_flight > limits.IN_FLIGHT_MAX // 2 or self._in_flight_chars > IN_FLIGHT_CHARS_MAX // 2:
            await self._wait_for_outcome()

    async def _wait_for_outcomes(self) -> None:
        """Stop reading until every send is answered."""
        while self._in_flight:
            await self._wait_for_outcome()

    async def _wait_for_outcome(self) -> None:
        self._room = self._loop.create_future()
        await self._room
        self._room = None

    # Other requests

    async def _perform(self, request: frames.Request, draft: Draft | None = None) -> None:
        """One request, and the draft that it sends; a refusal or a failure is an answer, never a crash."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX) as patience:
                if self._in_flight:
                    await self._wait_for_sends_before(request)
                if self._outbox.waiting_bytes > UNREAD_BYTES_MAX:
                    await self._wait_for_reader(patience)
                if self._noted and type(request) in ANSWERED:
                    await self._services.reader.flush(self.user_id)
                    self._noted = False
                answer = await (self._answer(request) if draft is None else self._append(draft, request.id))
        except TimeoutError:  # all else only reads and notes: it may be asked again
            self._refuse(STORE_UNAVAILABLE if draft is None else OUTCOME_UNKNOWN, request.id)
        except Refused as error:
            self._refuse(error.refusal, request.id)
        except FAILURES as error:
            kind, metrics = type(request), self._services.metrics
            self._refuse(refusal_for(error, metrics, kind.__name__, by_write=draft is not None), request.id)
        except Exception:
            log.exception("request failed", connection=self.connection_id, request=type(request).__name__)
            self._refuse(INTERNAL, request.id)
        else:
            if answer is not None:
                answer.re = answer_to(request.id)
                data = framed(self.codec.encode(answer), self.codec.binary)
                self.offer(data)
                if self.limited:
                    self._spend(work_in(answer, len(data), len(self.chats)))
        if self._session.state is State.GREETED:
            self.close(codes.INTERNAL)  # no verdict on the token: the client comes again

    async def _wait_for_sends_before(self, request: frames.Request) -> None:
        """Sends before a request are answered before it; a heartbeat does not wait for slow ones."""
        if type(request) is not frames.Heartbeat:
            await self._wait_for_outcomes()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BARRIER_SECONDS_MAX):
                await self._wait_for_outcomes()

    async def _wait_for_reader(self, patience: asyncio.Timeout) -> None:
        """A client that asks for much is answered as fast as it reads; live frames still find it too slow."""
        patience.reschedule(None)
        self._outbox.flush()
        await self._protocol.wait_writable()
        patience.reschedule(self._loop.time() + REQUEST_SECONDS_MAX)

    def _spend(self, work: float) -> None:
        """Overdrawn is overdrawn: the next request is refused until it is made up for."""
        if work:
            self._services.work_rate.spend(self.user_id, self._services.clock(), work)

    async def _answer(self, request: frames.Request) -> ServerFrame | None:
        """Each kind of request and what performs it."""
        services = self._services
        match request:
            case frames.Hello():
                await self._hello(request)
            case frames.SyncRequest():
                return batch_of(await services.reader.sync(self.user_id, request), self.codec)
            case frames.Sync():
                page = await services.reader.sync_after_message(
                    self.user_id, request.last_message_id, request.limit
                )
                return batch_of(page, self.codec)
            case frames.SyncOverview():
                listed = await services.chat_list.chats(
                    self.user_id, self.device_id, request.changed_since, request.limit, request.brief
                )
                return frames.Overview(chats=listed.chats, token=listed.token, complete=listed.complete)
            case frames.AckPosition():
                head, sequence = self._head_of(request.chat), request.last_acked_sequence
                await services.reader.acknowledge(self.user_id, self.device_id, request.chat, sequence, head)
                self._noted = True
            case frames.DeliveryReceipt():
                self._head_of(request.chat)
                rows = await services.reader.acknowledge_message(
                    self.user_id, self.device_id, request.chat, request.message_id
                )
                self._noted = True
                if self.limited:
                    self._spend(work_of(rows=rows))
            case frames.ReadReceipt():
                self._head_of(request.chat)
                await services.reader.mark_read(self.user_id, request.chat, request.read_up_to)
                self._noted = True
            case frames.TypingStart():
                self._head_of(request.chat)
                await services.typing.start(self.user_id, request.chat)
            case frames.TypingStop():
                self._head_of(request.chat)
                await services.typing.stop(self.user_id, request.chat)
            case frames.Attention() if self.is_listed:
                services.devices.attention(
                    self.connection_id, self.user_id, self.device_id, is_looking=request.looking
                )
            case frames.PresenceSubscribe():
                presences = await services.presence.subscribe(self, request.user_ids)
                return frames.PresenceState(presences=presences)
            case frames.PresenceQuery():
                presences = await services.presence.query(self.user_id, request.user_ids)
                return frames.PresenceState(presences=presences)
            case frames.Refresh():
                return await self._refresh(request)
            case frames.Heartbeat():
                return await self._heartbeat()
        return None

    async def _append(self, draft: Draft, request_id: RequestId) -> ServerFrame | None:
        """Something that follows from it takes time. Its ack goes before its entry, which waits for it."""
        if self.limited:
            wait_ms = self._services.message_rate.take(self.user_id, self._services.clock())
            if wait_ms:
                raise Refused(RATE_LIMITED.after(wait_ms))
        self._outbox.hold()
        try:
            appended = await self._services.sending.send(draft)
        except BaseException:
            self._outbox.release()
            raise
        ack = ack_of(draft, request_id, appended)
        self._outbox.begin(framed(self.codec.encode(ack), self.codec.binary))
        return None

    async def _hello(self, request: frames.Hello) -> None:
        services = self._services
        try:
            access, is_foreign_device = await self._access(request.token, request.device_id)
        except Refused as error:
            self._refuse(error.refusal, request.id)
            self.close(codes.INTERNAL if error.refusal.temporary else codes.UNAUTHENTICATED)
            raise
        session = access.session
        if self.limited and services.users.count(session.user_id) >= services.connections_per_user:
            services.metrics.connections_refused.labels("user").inc()
            self._refuse(TOO_MANY_CONNECTIONS, request.id)
            self.close(codes.TOO_MANY_CONNECTIONS)
            return
        self.user_id, self.device_id, self.live = session.user_id, request.device_id, request.live
        self._take(access, request.token, is_foreign_device)
        self._rate_key = self.connection_id
        group = self._outbox.group = services.users.join(self.user_id, self)
        self.charge(group.share)
        self._show_presence()
        self._outbox.hold()
        if not services.turns.enters_now(group.share, CONNECT_SECONDS):
            await self._protocol.unless_lost(services.turns.give_way(group.share))
        if self._protocol.transport is None:
            group.share.spent -= CONNECT_SECONDS
            return  # it is gone already
        await services.turns.metered(group.share, services.hub.subscribe(self))
        if self._closing is not None:
            return
        if not self.live:
            self._told_heads = services.hub.heads_beyond(self, {})
        self._session.accept()
        self._forget_timer()
        welcome = self._welcome()
        welcome.re = answer_to(request.id)
        self._outbox.begin(framed(self.codec.encode(welcome), self.codec.binary))
        self._expire_at(access.ends_at_ms)

    async def _access(self, token: str, device_id: str) -> tuple[Access, bool]:
        """What a token allows on this device, and whether that is a foreign one; Refused if nothing."""
        access = await self._services.sign_in.authenticate(token)
        if access.chat_id:
            raise Refused(BOUND_TO_CHAT)
        if not access.is_device_bound:
            check_device(device_id)
        elif access.session.device_id != device_id:
            raise Refused(WRONG_DEVICE)
        return access, await is_foreign(self._services.sign_in, access, device_id)

    def _take(self, access: Access, token: str, is_foreign_device: bool) -> None:
        self.token, self.session_id, self.scopes = token, access.session.session_id, access.scopes
        self._is_foreign_device = is_foreign_device

    def _show_presence(self) -> None:
        """The person is online while a token lets somebody read and answer here."""
        services, is_shown = self._services, allows(self.scopes, ONLINE)
        if is_shown and not self.is_listed:
            services.devices.arrived(self.user_id, self.device_id)
            services.known_devices.arrived(self.user_id, self.device_id)
            services.arrived(self.user_id)
        elif self.is_listed and not is_shown:
            services.devices.left(self.user_id, self.device_id, clean=True)
        self.is_listed = is_shown

    def _welcome(self) -> frames.Welcome:
        return frames.Welcome(
            user_id=self.user_id,
            device_id=self.device_id,
            session_id=self.session_id,
            server_time=iso(self._services.clock()),
            heartbeat_seconds=limits.HEARTBEAT_SECONDS,
            limits=limits.WELCOME_LIMITS,
        )

    async def _refresh(self, request: frames.Refresh) -> ServerFrame:
        """Go on with another token of the same person. A token that is refused changes nothing."""
        access, is_foreign_device = await self._access(request.token, self.device_id)
        if access.session.user_id != self.user_id:
            raise Refused(OTHER_PERSON)
        self.last_verified = self._loop.time()
        self._take(access, request.token, is_foreign_device)
        self._services.hub.change_scopes(self, access.scopes)
        if not allows(self.scopes, REQUESTS[frames.PresenceSubscribe]):
            self._services.presence.unsubscribe(self)
        if self._closing is None:
            self._show_presence()
        self._expire_at(access.ends_at_ms)
        return self._welcome()

    def _head_of(self, chat_id: str) -> int:
        """The head in memory of one of this user's chats; Refused for any other chat."""
        chat = self.chats.get(chat_id)
        if chat is None:
            raise Refused(NOT_A_MEMBER)
        return chat.sent_through

    def _ack_at_once(self, request: frames.AckPosition) -> bool:
        """A position within the head in memory needs neither a read nor to wait for sends under way."""
        chat = self.chats.get(request.chat)
        if chat is None or request.last_acked_sequence > chat.sent_through:
            return False
        self._services.reader.note_position(
            self.user_id, self.device_id, request.chat, request.last_acked_sequence
        )
        self._noted = True
        return True

    async def _heartbeat(self) -> ServerFrame:
        """Re-reads the session: a revocation that was missed ends the connection here."""
        await self.verify()
        beyond = self._services.hub.heads_beyond(self, self._told_heads) if allows(self.scopes, HEADS) else {}
        if self._told_heads is not None:
            self._told_heads.update(beyond)
        answer = frames.HeartbeatAck(server_time=iso(self._services.clock()))
        if beyond:
            answer.heads = beyond
        return answer

    async def verify(self) -> None:
        """Read the session again; if it may not be used any more, Refused, and the connection ends."""
        self.last_verified = self._loop.time()
        try:
            await self._services.sign_in.authenticate(self.token, is_recheck=True)
        except Refused as error:
            if not error.refusal.temporary:
                self.close(codes.TOKEN_EXPIRED if error.refusal is EXPIRED else codes.REVOKED)
            raise

    # Bytes out

    def _refuse(self, refusal: Refusal, request_id: RequestId) -> None:
        self._services.metrics.refusals.labels(refusal.code).inc()
        self._write(refused(refusal, request_id))

    def _write(self, frame: ServerFrame) -> None:
        self.offer(framed(self.codec.encode(frame), self.codec.binary))

    def offer(self, data: bytes) -> None:
        """The one bounded way to the socket: over the limit the client is closed and resumes from the log."""
        if not self._is_ended and not self._outbox.offer(data):
            self._offer_more(data)

    def _offer_more(self, data: bytes) -> None:
        """It has its part of what its user may leave unread; it may have more while the others need less."""
        if self._outbox.waiting_bytes + len(data) > limits.OUTBOX_BYTES_MAX:
            self.close(codes.TOO_SLOW)
            return
        while (slowest := self._outbox.group.slowest(len(data))) is not None:
            slowest.close(codes.TOO_SLOW)  # if its memory is needed at once, it is cut off
        if not self._is_ended:
            self._outbox.add(data)

    @property
    def outbox_bytes(self) -> int:
        return self._outbox.waiting_bytes

    @property
    def idle_seconds(self) -> float:
        return self._loop.time() - self.last_heard

    @property
    def waiting_bytes(self) -> int:
        return self._outbox.waiting_bytes

    def close(self, close: Close) -> None:
        """End with a code: after the answers to what was sent before, if the store gives them in time."""
        if self._closing is None:
            self._is_released |= close in RELEASING
            self._services.metrics.closed.labels(str(close.code)).inc()
            self._begin_close(close)
            if close is codes.TOO_SLOW:
                self._end()  # it would not read the answers either
        elif close is codes.TOO_SLOW:
            self._transport.abort()

    def _begin_close(self, close: Close) -> None:
        if self._closing is not None:
            return
        self._closing = close
        self._leave()
        self._forget_timer()
        if self._in_flight:
            self._timer = self._loop.call_later(ACKS_SECONDS_MAX, self._end)
        else:
            self._end()

    def _end(self) -> None:
        """Write the close frame and end our half; a peer that does not end its own in time is cut off."""
        if self._is_ended or self._closing is None:
            return
        self._is_ended = True
        self._forget_timer()
        self._outbox.end(closing(self._closing))
        self._protocol.ignore()
        self._timer = self._loop.call_later(ABORT_AFTER_SECONDS, self._transport.abort)
