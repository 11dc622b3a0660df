"""Cursors that the client sends to the server: of this device, and of what the person has read. Pure.

Neither frame has an answer. It has taken effect when the server answers a heartbeat that was sent after it;
until then a broken connection may have lost it, and the client sends it again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from msgspec import Struct

from parley.client.errors import OutboxFull
from parley.client.storage import Cursor
from parley.client.timing import RateLimitPause, Timers, Timing, backoff_ms
from parley.clock import MS_PER_SECOND
from parley.errors import FORBIDDEN, Refusal
from parley.wire.frames import AckPosition, Heartbeat, ReadReceipt, Request

ACKS_IN_FLIGHT_MAX = 1_024
ACKS_PER_SECOND_MAX = 100
"""Half of the frames that a server accepts from one connection."""
READ_MARKS_MAX = 1_000
FLUSH = ("flush cursors", "")
RETRY = ("retry acks", "")
ACK_SECOND = ("second of acks", "")


class DeviceCursors:
    """Each chat's processed position: saved first, then acknowledged to the server.

    An ack is cumulative: only the newest of a chat is sent. Sync requests share `pause`.
    """

    def __init__(
        self, timing: Timing, timers: Timers, pause: RateLimitPause, next_id: Callable[[], int]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._pause = pause
        self._next_id = next_id
        self._cursors: dict[str, Cursor] = {}
        self._unsaved: dict[str, Cursor] = {}
        self.is_flush_due = False
        self._to_ack: dict[str, int] = {}
        self._to_retry: dict[str, int] = {}
        self._acked_since_heartbeat: dict[str, int] = {}
        self._acked_before_heartbeat: dict[str, int] = {}
        self._chat_of_ack: dict[int, str] = {}
        self._acks_this_second = 0
        self._is_forbidden = False
        """Whether the token of this connection moves no position."""

    def restore(self, saved: dict[str, Cursor]) -> None:
        self._cursors = saved

    def get(self, chat_id: str) -> Cursor | None:
        return self._cursors.get(chat_id)

    def move(self, chat_id: str, cursor: Cursor, now_ms: int) -> None:
        """Everything up to here is processed."""
        if self._cursors.get(chat_id) != cursor:
            self._cursors[chat_id] = self._unsaved[chat_id] = cursor
            self.flush_soon(now_ms)

    def flush_soon(self, now_ms: int) -> None:
        """Save within `cursor_flush_ms`, together with every cursor that moves until then."""
        if not self._timers.pending(FLUSH):
            self._timers.set(FLUSH, now_ms + self._timing.cursor_flush_ms, self.flush)

    def flush(self, _now_ms: int) -> None:
        self.is_flush_due = True

    def to_save(self) -> dict[str, Cursor]:
        """The cursors that moved; once they are `saved` they are acknowledged."""
        if not self.is_flush_due:
            return {}
        unsaved, self._unsaved = self._unsaved, {}
        self.is_flush_due = False
        self._timers.cancel(FLUSH)
        return unsaved

    def saved(self, cursors: dict[str, Cursor]) -> None:
        self._to_ack |= {chat_id: cursor.sequence for chat_id, cursor in cursors.items() if cursor.sequence}

    def acks(self, now_ms: int) -> list[AckPosition]:
        """As many as may be sent now; a timer wakes the client for the others."""
        if not self._to_ack or self._pause.is_on or self._is_forbidden:
            return []
        if not self._timers.pending(ACK_SECOND):
            self._timers.set(ACK_SECOND, now_ms + MS_PER_SECOND)
            self._acks_this_second = 0
        allowed = min(len(self._to_ack), ACKS_PER_SECOND_MAX - self._acks_this_second)
        self._acks_this_second += allowed
        return [self._ack(chat_id) for chat_id in list(islice(self._to_ack, allowed))]

    def last_acks(self) -> list[AckPosition]:
        """All remaining acks, before the connection is closed."""
        return [] if self._is_forbidden else [self._ack(chat_id) for chat_id in list(self._to_ack)]

    def ack_again(self, chat_id: str) -> None:
        """The person joined the chat (again): the server may have refused an earlier ack."""
        cursor = self._cursors.get(chat_id, Cursor())
        if cursor.sequence and chat_id not in self._unsaved:
            self._to_ack.setdefault(chat_id, cursor.sequence)

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> str | None:
        """Retry after a temporary refusal; after a permanent one, return the chat of the ack.

        A program whose token does not move positions keeps them to itself for the rest of the connection.
        """
        chat_id = self._chat_of_ack.pop(request_id, None)
        self._is_forbidden |= chat_id is not None and refusal.code == FORBIDDEN.code
        if chat_id is None or not refusal.temporary:
            return chat_id
        self._pause.refused(refusal, now_ms)
        sequence = self._acked_since_heartbeat.get(chat_id) or self._acked_before_heartbeat.get(chat_id)
        if sequence is not None:
            self._to_retry[chat_id] = sequence
            self._timers.set(RETRY, now_ms + self._timing.backoff_base_ms, self._retry)
        return None

    def heartbeat_sent(self) -> None:
        self._acked_before_heartbeat |= self._acked_since_heartbeat
        self._acked_since_heartbeat = {}

    def heartbeat_answered(self) -> None:
        self._acked_before_heartbeat = {}

    def disconnected(self) -> None:
        self._to_ack = self._acked_before_heartbeat | self._acked_since_heartbeat | self._to_ack
        self._acked_before_heartbeat, self._acked_since_heartbeat = {}, {}
        self._chat_of_ack.clear()
        self._is_forbidden = False
        self._timers.cancel(ACK_SECOND)
        self._retry(0)

    def _retry(self, _now_ms: int) -> None:
        self._to_ack = self._to_retry | self._to_ack
        self._to_retry = {}

    def _ack(self, chat_id: str) -> AckPosition:
        sequence = self._acked_since_heartbeat[chat_id] = self._to_ack.pop(chat_id)
        request_id = self._next_id()
        self._chat_of_ack[request_id] = chat_id
        if len(self._chat_of_ack) > ACKS_IN_FLIGHT_MAX:
            del self._chat_of_ack[next(iter(self._chat_of_ack))]
        return AckPosition(id=request_id, chat_id=chat_id, last_acked_sequence=sequence)


class ReadMark(Struct, eq=False):
    """A read receipt that is not yet confirmed. Without a `receipt` it only waits for a heartbeat."""

    number: int
    receipt: ReadReceipt | None
    attempts: int = 0
    request_id: int | None = None


class ReadMarks:
    """Unconfirmed read receipts: each is resent until the server answers a heartbeat sent after it."""

    def __init__(
        self, timing: Timing, timers: Timers, next_id: Callable[[], int], chance: Callable[[], float]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._chance = chance
        self._marks: dict[int, ReadMark] = {}
        self._to_send: dict[int, None] = {}
        self._by_request: dict[int, ReadMark] = {}
        self._by_heartbeat: dict[int, list[int]] = {}

    def add(self, receipt: ReadReceipt | None) -> int:
        """Returns the number of its `ReadMarkDone`. OutboxFull if too many wait."""
        if len(self._marks) >= READ_MARKS_MAX:
            raise OutboxFull(f"{READ_MARKS_MAX} read receipts are not confirmed yet; wait for some of them")
        number = self._next_id()
        self._marks[number] = ReadMark(number, receipt)
        self._to_send[number] = None
        return number

    def __contains__(self, number: int) -> bool:
        return number in self._marks

    def drop(self, number: int) -> None:
        """The caller stopped waiting for it."""
        mark = self._marks.pop(number, None)
        self._to_send.pop(number, None)
        self._timers.cancel(("retry read mark", str(number)))
        if mark is not None and mark.request_id is not None:
            self._by_request.pop(mark.request_id, None)

    def disconnected(self) -> None:
        self._by_request.clear()
        self._by_heartbeat.clear()
        self._to_send = dict.fromkeys(self._marks)
        for mark in self._marks.values():
            mark.attempts, mark.request_id = 0, None

    def frames_to_send(self) -> list[Request]:
        """The receipts that wait, and one heartbeat after them."""
        if not self._to_send:
            return []
        frames: list[Request] = []
        for number in self._to_send:
            mark = self._marks[number]
            mark.request_id = self._next_id()
            mark.attempts += 1
            if mark.receipt is not None:
                self._by_request[mark.request_id] = mark
                chat_id, up_to = mark.receipt.chat_id, mark.receipt.read_up_to
                frames.append(ReadReceipt(id=mark.request_id, chat_id=chat_id, read_up_to=up_to))
        heartbeat_id = self._next_id()
        self._by_heartbeat[heartbeat_id] = list(self._to_send)
        self._to_send.clear()
        return [*frames, Heartbeat(id=heartbeat_id)]

    def heartbeat_answered(self, request_id: int) -> list[ReadMark]:
        """The marks that this answer confirms."""
        marks = [self._marks.get(number) for number in self._by_heartbeat.pop(request_id, [])]
        confirmed = [mark for mark in marks if mark is not None and mark.request_id is not None]
        for mark in confirmed:
            self.drop(mark.number)
        return confirmed

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> int | None:
        """Retry after a temporary refusal; after a permanent one, return the number of the mark."""
        for number in self._by_heartbeat.pop(request_id, []):
            self._retry_later(self._marks.get(number), refusal, now_ms)
        mark = self._by_request.pop(request_id, None)
        if mark is None:
            return None
        if not refusal.temporary:
            self.drop(mark.number)
            return mark.number
        self._retry_later(mark, refusal, now_ms)
        return None

    def _retry_later(self, mark: ReadMark | None, refusal: Refusal, now_ms: int) -> None:
        if mark is None:
            return
        mark.request_id = None
        backoff = backoff_ms(mark.attempts - 1, self._timing, self._chance())
        at_ms = now_ms + max(refusal.retry_after_ms or 0, backoff)
        number = mark.number
        self._timers.set(("retry read mark", str(number)), at_ms, lambda _: self._resend(number))

    def _resend(self, number: int) -> None:
        if number in self._marks:
            self._to_send[number] = None
