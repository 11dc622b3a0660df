"""Unacknowledged messages: one queue per chat, in the order in which they were sent. Pure.

A chat's messages are in flight or waiting; those in flight are always the oldest, in order. Each one names
its unacknowledged predecessor, and the server stores it only after that one. After a loss or a refusal the
client resends from there on, with the same ids, so the order is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from parley.client.errors import OutboxFull, RequestRefused
from parley.client.storage import MessageKey, OutgoingMessage
from parley.client.timing import Fail, RateLimitPause, Timers, Timing, decide_resend, must_check_first
from parley.errors import TOO_LARGE, Refusal
from parley.model import Kind
from parley.wire import limits
from parley.wire.bodies import SendFound
from parley.wire.frames import Ack, DeleteMessage, EditMessage, Entry, React, SendMessage

OUTBOX_MESSAGES_MAX = 10_000
OUTBOX_BYTES_MAX = 64 * 1024 * 1024
WINDOW_START = 64
WINDOW_MAX = 256
"""Messages in flight: halved by every temporary refusal, increased by one with every ack."""
IN_FLIGHT_BYTES_MAX = 1024 * 1024
JSON_GROWTH_MAX = 6
FRAME_OVERHEAD_BYTES = 2_048
"""More than a send_message frame needs besides its content."""
CHECK_FAILED = Refusal("check_failed", "the client cannot find out whether it is stored", temporary=True)

assert WINDOW_START <= WINDOW_MAX


OutgoingFrame = SendMessage | EditMessage | DeleteMessage | React


class PendingMessage(Struct, eq=False):
    """An unacknowledged message and its attempts so far."""

    message: OutgoingMessage
    size: int
    saved: bool
    checked_at_ms: int
    """Wall time at which it was certainly not stored: when it was created, or not found in the log."""
    attempts: int = 0
    request_id: int | None = None


class ChatSendQueue:
    """One chat's messages: `sent` is in flight, `waiting` comes after it."""

    __slots__ = ("checking", "is_paused", "sent", "waiting")

    def __init__(self) -> None:
        self.sent: dict[MessageKey, PendingMessage] = {}
        self.waiting: deque[PendingMessage] = deque()
        self.is_paused = False
        self.checking: MessageKey | None = None
        """The message that the shell is looking for in the log before it is resent."""

    def head(self) -> PendingMessage | None:
        return next(iter(self.sent.values()), None)

    def take_back_from(self, first: PendingMessage) -> list[PendingMessage]:
        """Move `first` and all messages sent after it back to the front of `waiting`."""
        sent = list(self.sent.values())
        back = sent[sent.index(first) :]
        for pending in back:
            del self.sent[pending.message.key]
        self.waiting.extendleft(reversed(back))
        return back


class ClientOutbox:
    def __init__(
        self, timing: Timing, timers: Timers, next_id: Callable[[], int], chance: Callable[[], float]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._chance = chance
        self._pause = RateLimitPause("sends", timing, timers)
        self._queues: dict[str, ChatSendQueue] = {}
        self._pending: dict[MessageKey, PendingMessage] = {}
        self._by_request: dict[int, PendingMessage] = {}
        self._set_aside: dict[MessageKey, PendingMessage] = {}
        """Refused for good on this connection; the next one tries again."""
        self._sendable: dict[str, None] = {}
        """The chats that may have a message to send."""
        self._resends: list[OutgoingFrame] = []
        self._to_check: list[OutgoingMessage] = []
        self._window = WINDOW_START
        self._bytes = 0
        self._in_flight_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: MessageKey) -> bool:
        return key in self._pending

    def is_kept(self, key: MessageKey) -> bool:
        """Whether it was refused for good and is tried once more with the next connection."""
        return key in self._set_aside

    def is_queued(self, key: MessageKey) -> bool:
        """Whether it waits, rather than being in flight with quick retries left."""
        pending = self._pending.get(key)
        if pending is None:
            return False
        return pending.request_id is None or pending.attempts > self._timing.resends_max

    def add(self, message: OutgoingMessage, *, saved: bool) -> None:
        """Queue a message; it is sent once it is `saved`. OutboxFull if there is no room."""
        size = len(message.content.encode())
        if (
            len(self._pending) + len(self._set_aside) >= OUTBOX_MESSAGES_MAX
            or self._bytes + size > OUTBOX_BYTES_MAX
        ):
            raise OutboxFull(f"{len(self._pending)} messages are waiting to be sent; wait for some of them")
        self._queue(PendingMessage(message, size, saved, message.created_at_ms))

    def _queue(self, pending: PendingMessage) -> None:
        chat_id = pending.message.chat_id
        self._pending[pending.message.key] = pending
        self._bytes += pending.size
        self._queues.setdefault(chat_id, ChatSendQueue()).waiting.append(pending)
        self._sendable[chat_id] = None

    def saved(self, keys: Iterable[MessageKey]) -> None:
        """These are durable now and may be sent."""
        for key in keys:
            pending = self._pending.get(key)
            if pending is not None:
                pending.saved = True
                self._sendable[pending.message.chat_id] = None

    def disconnected(self) -> None:
        """Nothing in flight will be answered: every message waits again, with all its quick retries."""
        self._by_request.clear()
        self._resends.clear()
        self._pause.end()
        self._window = WINDOW_START
        set_aside, self._set_aside = self._set_aside, {}
        for pending in set_aside.values():
            self._queue(pending)
        for chat_id, queue in self._queues.items():
            head = queue.head()
            if head is not None:
                self._take_back(queue, head)
            for pending in queue.waiting:
                pending.attempts = 0
            self._timers.cancel(("ack", chat_id))
            self._resume(chat_id)

    def frames_to_send(self, now_ms: int, wall_ms: int) -> list[OutgoingFrame]:
        """The messages to send now: in order within a chat, chats in turn."""
        if self._pause.is_on:
            return []
        frames, self._resends = self._resends, []
        while (
            self._sendable
            and len(self._by_request) < self._window
            and self._in_flight_bytes < IN_FLIGHT_BYTES_MAX
        ):
            chat_id = next(iter(self._sendable))
            del self._sendable[chat_id]
            frame = self._next_frame(chat_id, now_ms, wall_ms)
            if frame is not None:
                frames.append(frame)
                self._sendable[chat_id] = None
        return frames

    def acknowledged(self, key: MessageKey, now_ms: int) -> PendingMessage | None:
        """It is stored: remove and return it. None if it is not in the outbox."""
        pending = self._pending.get(key)
        if pending is not None:
            self._window = min(self._window + 1, WINDOW_MAX)
            self._remove(pending, now_ms)
        return pending

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> PendingMessage | None:
        """Resend from this message on if that can help; otherwise remove it and return it.

        A refusal of a transmission that a newer one has replaced is ignored. A message that `is_kept` comes
        back with the next connection, behind those that wait then.
        """
        pending = self._by_request.get(request_id)
        if pending is None:
            return None
        chat_id = pending.message.chat_id
        decision = decide_resend(pending.attempts, refusal, self._timing, self._chance())
        self._take_back(self._queues[chat_id], pending)
        if isinstance(decision, Fail):
            self._remove(pending, now_ms)
            if decision.kept:
                self._set_aside[pending.message.key] = pending
            return pending
        self._window = max(1, self._window // 2)
        self._pause.refused(refusal, now_ms)
        self._pause_chat(chat_id, now_ms + decision.delay_ms)
        return None

    # Messages so old that their ids may have expired

    def to_check(self) -> list[OutgoingMessage]:
        """Messages to look for in the log before they are sent."""
        messages, self._to_check = self._to_check, []
        return messages

    def not_stored(self, key: MessageKey, wall_ms: int) -> None:
        """It is not in the log, so it may be sent."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.checked_at_ms = wall_ms
        self._end_check(key)

    def check_failed(self, key: MessageKey, now_ms: int) -> None:
        """The check failed; check again later."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.attempts += 1
            decision = decide_resend(pending.attempts, CHECK_FAILED, self._timing, self._chance())
            assert not isinstance(decision, Fail)
            self._pause_chat(key[0], now_ms + decision.delay_ms)
        self._end_check(key)

    def _end_check(self, key: MessageKey) -> None:
        queue = self._queues.get(key[0])
        if queue is not None and queue.checking == key:
            queue.checking = None
            self._sendable[key[0]] = None

    # One chat's queue

    def _next_frame(self, chat_id: str, now_ms: int, wall_ms: int) -> OutgoingFrame | None:
        queue = self._queues.get(chat_id)
        if queue is None or not queue.waiting or queue.is_paused or queue.checking is not None:
            return None
        pending = queue.waiting[0]
        if not pending.saved:
            return None
        if must_check_first(pending.checked_at_ms, wall_ms):
            queue.checking = pending.message.key
            self._to_check.append(pending.message)
            return None
        before = next(reversed(queue.sent.values()), None)
        if before is not None and pending.message.kind != Kind.MESSAGE.value:
            return None  # it names no predecessor, so what was sent before it must be stored first
        queue.waiting.popleft()
        queue.sent[pending.message.key] = pending
        self._in_flight_bytes += pending.size
        if before is None:
            self._watch_head(chat_id, now_ms)
        return self._frame(pending, before)

    def _frame(self, pending: PendingMessage, before: PendingMessage | None) -> OutgoingFrame:
        if pending.request_id is not None:
            self._by_request.pop(pending.request_id, None)
        pending.request_id = self._next_id()
        pending.attempts += 1
        self._by_request[pending.request_id] = pending
        message = pending.message
        if message.kind != Kind.MESSAGE.value:
            return _amendment(message, pending.request_id)
        return SendMessage(
            id=pending.request_id,
            chat_id=message.chat_id,
            client_message_id=message.client_message_id,
            content=message.content,
            content_type=message.content_type,
            display_time=message.display_time,
            after_client_message_id=None if before is None else before.message.client_message_id,
            mentions=list(message.mentions),
            reply_to=message.reply_to,
            attachments=list(message.attachments),
        )

    def _watch_head(self, chat_id: str, now_ms: int) -> None:
        """Start the ack timeout of the chat's oldest message in flight, if there is one."""
        at_ms = now_ms + self._timing.ack_ms
        self._timers.set(("ack", chat_id), at_ms, lambda now_ms: self._ack_timed_out(chat_id, now_ms))

    def _ack_timed_out(self, chat_id: str, now_ms: int) -> None:
        queue = self._queues.get(chat_id)
        head = queue.head() if queue is not None else None
        if queue is None or head is None:
            return
        decision = decide_resend(head.attempts, None, self._timing, self._chance())
        assert not isinstance(decision, Fail)
        if decision.delay_ms == 0:
            self._resends.append(self._frame(head, None))
            self._watch_head(chat_id, now_ms)
        else:
            self._take_back(queue, head)
            self._pause_chat(chat_id, now_ms + decision.delay_ms)

    def _take_back(self, queue: ChatSendQueue, first: PendingMessage) -> None:
        for pending in queue.take_back_from(first):
            self._in_flight_bytes -= pending.size
            if pending.request_id is not None:
                self._by_request.pop(pending.request_id, None)
                pending.request_id = None
        if not queue.sent:
            self._timers.cancel(("ack", first.message.chat_id))

    def _remove(self, pending: PendingMessage, now_ms: int) -> None:
        chat_id, key = pending.message.chat_id, pending.message.key
        queue = self._queues[chat_id]
        was_head = queue.head() is pending
        if queue.sent.pop(key, None) is not None:
            self._in_flight_bytes -= pending.size
            if pending.request_id is not None:
                self._by_request.pop(pending.request_id, None)
        else:
            queue.waiting.remove(pending)
        del self._pending[key]
        self._bytes -= pending.size
        if queue.checking == key:
            queue.checking = None
        if queue.sent or queue.waiting:
            self._sendable[chat_id] = None
            if was_head:
                self._watch_head(chat_id, now_ms)
            return
        del self._queues[chat_id]
        self._sendable.pop(chat_id, None)
        self._timers.cancel(("ack", chat_id))
        self._timers.cancel(("resume sends", chat_id))

    def _pause_chat(self, chat_id: str, until_ms: int) -> None:
        self._queues[chat_id].is_paused = True
        self._timers.set(("resume sends", chat_id), until_ms, lambda _: self._resume(chat_id))

    def _resume(self, chat_id: str) -> None:
        queue = self._queues.get(chat_id)
        if queue is not None:
            queue.is_paused = False
            self._timers.cancel(("resume sends", chat_id))
            self._sendable[chat_id] = None


def ack_for(key: MessageKey, stored: Entry | SendFound) -> Ack:
    """The ack of a stored message."""
    return Ack(
        chat_id=key[0],
        client_message_id=key[1],
        message_id=stored.message_id,
        sequence=stored.sequence,
        epoch=stored.epoch,
        created_at=stored.created_at,
        deduplicated=True,
        conflict=False,
    )


def _amendment(message: OutgoingMessage, request_id: int) -> OutgoingFrame:
    chat_id, client_id, target = message.chat_id, message.client_message_id, message.target_id
    match message.kind:
        case Kind.EDIT.value:
            return EditMessage(
                id=request_id,
                chat_id=chat_id,
                client_message_id=client_id,
                message_id=target,
                content=message.content,
            )
        case Kind.DELETE.value:
            return DeleteMessage(
                id=request_id, chat_id=chat_id, client_message_id=client_id, message_id=target
            )
        case _:
            return React(
                id=request_id,
                chat_id=chat_id,
                client_message_id=client_id,
                message_id=target,
                reaction=message.content,
                on=message.is_on,
            )


def check_size(message: OutgoingMessage) -> None:
    """Refuse a message whose JSON frame is above the limit: it would end every connection that sends it."""
    content_bytes = len(message.content.encode())
    frame_bytes = content_bytes + FRAME_OVERHEAD_BYTES
    if content_bytes > limits.MESSAGE_BYTES_MAX:
        raise RequestRefused(
            TOO_LARGE.because(f"a message can have at most {limits.MESSAGE_BYTES_MAX} bytes")
        )
    if content_bytes * JSON_GROWTH_MAX > limits.FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES:
        frame_bytes = len(msgspec.json.encode(message.content)) + FRAME_OVERHEAD_BYTES
    if frame_bytes > limits.FRAME_BYTES_MAX:
        raise RequestRefused(TOO_LARGE.because("too many characters of the message need escaping in JSON"))
