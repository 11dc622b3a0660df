"""What is on its way out: one lane per chat, in the order in which the messages were sent.

A lane's messages are in flight or waiting; those in flight are always the oldest, in order. Each one names
its unacknowledged predecessor, so that the server stores it only after that one: order survives
every loss, refusal and reconnect because whatever went wrong is resent from there on, under the same ids.
Pure: time, chance and request ids are passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from parley.client.errors import OutboxFull
from parley.client.keeping import MessageKey, Outgoing
from parley.client.pace import Rest
from parley.client.timers import Timers
from parley.client.timing import Fail, Timing, decide_resend, must_check_first
from parley.errors import Refusal
from parley.wire.frames import SendMessage

OUTBOX_MESSAGES_MAX = 10_000
OUTBOX_BYTES_MAX = 64 * 1024 * 1024
WINDOW_START = 64
WINDOW_MAX = 256
"""Messages in flight: halved by every temporary refusal, one more with every ack."""
IN_FLIGHT_BYTES_MAX = 1024 * 1024

ACK_TIMER = "ack"
RESUME_TIMER = "resume"

assert WINDOW_START <= WINDOW_MAX


class Pending(Struct, eq=False):
    """An unacknowledged message and what was tried so far."""

    message: Outgoing
    size: int
    kept: bool
    proven_at_ms: int
    """Wall time until which its id was surely unknown to the server, or is surely remembered since."""
    attempts: int = 0
    request_id: int | None = None


class Lane:
    """One chat's messages: `sent` is in flight, `waiting` comes after it."""

    __slots__ = ("checking", "resting", "sent", "waiting")

    def __init__(self) -> None:
        self.sent: dict[MessageKey, Pending] = {}
        self.waiting: deque[Pending] = deque()
        self.resting = False
        self.checking: MessageKey | None = None

    def head(self) -> Pending | None:
        return next(iter(self.sent.values()), None)

    def last_sent(self) -> Pending | None:
        return next(reversed(self.sent.values()), None)

    def take_back_from(self, first: Pending) -> list[Pending]:
        """Move `first` and all that was sent after it back to the front of what waits."""
        sent = list(self.sent.values())
        back = sent[sent.index(first) :]
        for pending in back:
            del self.sent[pending.message.key]
        self.waiting.extendleft(reversed(back))
        return back


class Outbox:
    def __init__(
        self, timing: Timing, timers: Timers, next_id: Callable[[], int], chance: Callable[[], float]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._chance = chance
        self._rest_of_all = Rest("sends", timing, timers)
        self._lanes: dict[str, Lane] = {}
        self._pending: dict[MessageKey, Pending] = {}
        self._by_request: dict[int, Pending] = {}
        self._willing: dict[str, None] = {}
        self._resends: list[SendMessage] = []
        self._to_check: list[Outgoing] = []
        self._window = WINDOW_START
        self._bytes = 0
        self._in_flight_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: MessageKey) -> bool:
        return key in self._pending

    def is_queued(self, key: MessageKey) -> bool:
        """Whether it is waiting here rather than on its way with quick retries left."""
        pending = self._pending.get(key)
        if pending is None:
            return False
        return pending.request_id is None or pending.attempts > self._timing.resends_max

    def add(self, message: Outgoing, *, kept: bool) -> None:
        """Queue a message; it goes out once it is `kept`. OutboxFull if there is no room."""
        size = len(message.content.encode())
        if len(self._pending) >= OUTBOX_MESSAGES_MAX or self._bytes + size > OUTBOX_BYTES_MAX:
            raise OutboxFull(f"{len(self._pending)} messages are waiting to be sent; wait for some of them")
        pending = Pending(message, size, kept, message.created_at_ms)
        self._pending[message.key] = pending
        self._bytes += size
        self._lanes.setdefault(message.chat_id, Lane()).waiting.append(pending)
        self._willing[message.chat_id] = None

    def kept(self, keys: Iterable[MessageKey]) -> None:
        """These are durable now and may go out."""
        for key in keys:
            pending = self._pending.get(key)
            if pending is not None:
                pending.kept = True
                self._willing[pending.message.chat_id] = None

    def disconnected(self) -> None:
        """Nothing in flight will be answered: everything waits again, and resends are not counted on."""
        self._by_request.clear()
        self._resends.clear()
        self._rest_of_all.disconnected()
        self._window = WINDOW_START
        for chat_id, lane in self._lanes.items():
            head = lane.head()
            if head is not None:
                self._take_back(lane, head)
            for pending in lane.waiting:
                pending.attempts = 0
            self._timers.cancel((ACK_TIMER, chat_id))
            self._wake(chat_id)

    def transmit(self, now_ms: int, wall_ms: int) -> list[SendMessage]:
        """The frames that may go out now, each lane in its order, lanes taking turns."""
        if self._rest_of_all.is_on:
            return []
        frames, self._resends = self._resends, []
        while self._willing and self._has_room():
            chat_id = next(iter(self._willing))
            del self._willing[chat_id]
            frame = self._next_of(chat_id, now_ms, wall_ms)
            if frame is not None:
                frames.append(frame)
                self._willing[chat_id] = None
        return frames

    def acknowledged(self, key: MessageKey, now_ms: int) -> Pending | None:
        """It is stored: forget it. None if it was not waiting for that."""
        pending = self._pending.get(key)
        if pending is not None:
            self._window = min(self._window + 1, WINDOW_MAX)
            self._remove(pending, now_ms)
        return pending

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> Pending | None:
        """Resend from there on if that helps; else the message is out and returned, and the rest goes on.

        The refusal of a transmission that was replaced by a newer one says nothing.
        """
        pending = self._by_request.get(request_id)
        if pending is None:
            return None
        lane = self._lanes[pending.message.chat_id]
        decision = decide_resend(pending.attempts, refusal, self._timing, self._chance())
        self._take_back(lane, pending)
        if isinstance(decision, Fail):
            self._remove(pending, now_ms)
            return pending
        self._window = max(1, self._window // 2)
        self._rest_of_all.refused(refusal, now_ms)
        self._rest(pending.message.chat_id, now_ms + decision.delay_ms)
        return None

    def unanswered(self, chat_id: str, now_ms: int) -> None:
        """The oldest message in flight got no ack in time."""
        lane = self._lanes.get(chat_id)
        head = lane.head() if lane is not None else None
        if lane is None or head is None:
            return
        decision = decide_resend(head.attempts, None, self._timing, self._chance())
        assert not isinstance(decision, Fail)
        if decision.delay_ms == 0:
            self._resends.append(self._frame(head, None))
            self._watch(chat_id, now_ms)
        else:
            self._take_back(lane, head)
            self._rest(chat_id, now_ms + decision.delay_ms)

    def resume(self, chat_id: str) -> None:
        """The lane's rest is over."""
        self._wake(chat_id)

    def to_check(self) -> list[Outgoing]:
        """Messages so old that the server may have forgotten their ids: look for them before they go out."""
        messages, self._to_check = self._to_check, []
        return messages

    def not_stored(self, key: MessageKey, wall_ms: int) -> None:
        """It was looked for and is not there, so it may go out."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.proven_at_ms = wall_ms
        self._end_check(key)

    def check_failed(self, key: MessageKey, now_ms: int) -> None:
        """Nobody could tell; ask again later."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.attempts += 1
            decision = decide_resend(pending.attempts, CHECK_FAILED, self._timing, self._chance())
            assert not isinstance(decision, Fail)
            self._rest(key[0], now_ms + decision.delay_ms)
        self._end_check(key)

    def _has_room(self) -> bool:
        return len(self._by_request) < self._window and self._in_flight_bytes < IN_FLIGHT_BYTES_MAX

    def _next_of(self, chat_id: str, now_ms: int, wall_ms: int) -> SendMessage | None:
        lane = self._lanes.get(chat_id)
        if lane is None or not lane.waiting or lane.resting or lane.checking is not None:
            return None
        pending = lane.waiting[0]
        if not pending.kept:
            return None
        if must_check_first(pending.proven_at_ms, wall_ms):
            lane.checking = pending.message.key
            self._to_check.append(pending.message)
            return None
        return self._launch(lane, pending, now_ms)

    def _launch(self, lane: Lane, pending: Pending, now_ms: int) -> SendMessage:
        before = lane.last_sent()
        lane.waiting.popleft()
        lane.sent[pending.message.key] = pending
        self._in_flight_bytes += pending.size
        if before is None:
            self._watch(pending.message.chat_id, now_ms)
        return self._frame(pending, before)

    def _frame(self, pending: Pending, before: Pending | None) -> SendMessage:
        if pending.request_id is not None:
            self._by_request.pop(pending.request_id, None)
        pending.request_id = self._next_id()
        pending.attempts += 1
        self._by_request[pending.request_id] = pending
        message = pending.message
        return SendMessage(
            id=pending.request_id,
            chat_id=message.chat_id,
            client_message_id=message.client_message_id,
            content=message.content,
            content_type=message.content_type,
            display_time=message.display_time,
            after_client_message_id=None if before is None else before.message.client_message_id,
        )

    def _take_back(self, lane: Lane, first: Pending) -> None:
        for pending in lane.take_back_from(first):
            self._in_flight_bytes -= pending.size
            if pending.request_id is not None:
                self._by_request.pop(pending.request_id, None)
                pending.request_id = None
        if not lane.sent:
            self._timers.cancel((ACK_TIMER, first.message.chat_id))

    def _remove(self, pending: Pending, now_ms: int) -> None:
        chat_id, key = pending.message.chat_id, pending.message.key
        lane = self._lanes[chat_id]
        was_head = lane.head() is pending
        if lane.sent.pop(key, None) is not None:
            self._in_flight_bytes -= pending.size
            if pending.request_id is not None:
                self._by_request.pop(pending.request_id, None)
        else:
            lane.waiting.remove(pending)
        del self._pending[key]
        self._bytes -= pending.size
        self._end_check(key)
        if was_head:
            self._watch(chat_id, now_ms)
        self._tidy(chat_id, lane)

    def _tidy(self, chat_id: str, lane: Lane) -> None:
        if lane.sent or lane.waiting:
            self._willing[chat_id] = None
            return
        del self._lanes[chat_id]
        self._willing.pop(chat_id, None)
        self._timers.cancel((ACK_TIMER, chat_id))
        self._timers.cancel((RESUME_TIMER, chat_id))

    def _watch(self, chat_id: str, now_ms: int) -> None:
        """The lane's oldest message in flight, if any, has its time for an ack from now on."""
        self._timers.set((ACK_TIMER, chat_id), now_ms + self._timing.ack_ms)

    def _rest(self, chat_id: str, until_ms: int) -> None:
        self._lanes[chat_id].resting = True
        self._timers.set((RESUME_TIMER, chat_id), until_ms)

    def _wake(self, chat_id: str) -> None:
        lane = self._lanes.get(chat_id)
        if lane is not None:
            lane.resting = False
            self._timers.cancel((RESUME_TIMER, chat_id))
            self._willing[chat_id] = None

    def _end_check(self, key: MessageKey) -> None:
        lane = self._lanes.get(key[0])
        if lane is not None and lane.checking == key:
            lane.checking = None
            self._willing[key[0]] = None


CHECK_FAILED = Refusal("check_failed", "nobody could tell whether it is stored", temporary=True)
