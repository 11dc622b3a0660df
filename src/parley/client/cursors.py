"""How far this device is: written down, then acknowledged to the server, both at most so often. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from parley.client.keeping import Cursor
from parley.client.pace import Pace
from parley.client.timers import Timers
from parley.client.timing import Timing
from parley.errors import Refusal
from parley.wire.frames import AckPosition

FLUSH_TIMER = "flush"
FLUSH = (FLUSH_TIMER, "")
RETRY_TIMER = "retry acks"
RETRY = (RETRY_TIMER, "")
ACKS_IN_FLIGHT_MAX = 1_024


class Cursors:
    """Every chat's processed position. An ack is cumulative: only the newest of a chat is ever sent."""

    def __init__(
        self, timing: Timing, timers: Timers, pace: Pace, next_id: Callable[[], int], kept: dict[str, Cursor]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._pace = pace
        self._next_id = next_id
        self._at = kept
        self._moved: dict[str, Cursor] = {}
        self._to_ack: dict[str, int] = {}
        self._to_retry: dict[str, int] = {}
        # An ack has no answer: until a later heartbeat is answered, it may have been lost.
        self._since_heartbeat: dict[str, int] = {}
        self._before_heartbeat: dict[str, int] = {}
        self._chat_of_ack: dict[int, str] = {}

    def get(self, chat_id: str) -> Cursor | None:
        return self._at.get(chat_id)

    def move(self, chat_id: str, cursor: Cursor, now_ms: int) -> None:
        """Everything up to here is processed."""
        if self._at.get(chat_id) == cursor:
            return
        self._at[chat_id] = self._moved[chat_id] = cursor
        self.flush_soon(now_ms)

    def flush_soon(self, now_ms: int) -> None:
        if not self._timers.pending(FLUSH):
            self._timers.set(FLUSH, now_ms + self._timing.cursor_flush_ms)

    def to_save(self) -> dict[str, Cursor]:
        """The cursors to write down; `saved` then lets them be acknowledged."""
        moved, self._moved = self._moved, {}
        self._timers.cancel(FLUSH)
        return moved

    def saved(self, cursors: dict[str, Cursor]) -> None:
        self._to_ack |= {chat_id: cursor.sequence for chat_id, cursor in cursors.items() if cursor.sequence}

    def acks(self, now_ms: int) -> list[AckPosition]:
        """As many as may go out now; the rest follows."""
        some = list(islice(self._to_ack, self._pace.acks(len(self._to_ack), now_ms)))
        return [self._ack(chat_id) for chat_id in some]

    def last_acks(self) -> list[AckPosition]:
        """All of them: there is no later."""
        return [self._ack(chat_id) for chat_id in list(self._to_ack)]

    def ack_again(self, chat_id: str) -> None:
        """The server may have refused it before it heard that the chat is the person's."""
        cursor = self._at.get(chat_id, Cursor())
        if cursor.sequence and chat_id not in self._moved:
            self._to_ack.setdefault(chat_id, cursor.sequence)

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> str | None:
        """The chat whose position the server does not take; a temporary refusal is tried again."""
        chat_id = self._chat_of_ack.pop(request_id, None)
        if chat_id is None or not refusal.temporary:
            return chat_id
        self._pace.rest.refused(refusal, now_ms)
        sequence = self._since_heartbeat.get(chat_id) or self._before_heartbeat.get(chat_id)
        if sequence is not None:
            self._to_retry[chat_id] = sequence
            self._timers.set(RETRY, now_ms + self._timing.backoff_base_ms)
        return None

    def retry(self) -> None:
        """The rest after a temporary refusal is over."""
        self._to_ack = self._to_retry | self._to_ack
        self._to_retry = {}

    def heartbeat_sent(self) -> None:
        self._before_heartbeat |= self._since_heartbeat
        self._since_heartbeat = {}

    def heartbeat_answered(self) -> None:
        self._before_heartbeat = {}

    def disconnected(self) -> None:
        self._to_ack = self._before_heartbeat | self._since_heartbeat | self._to_ack
        self._before_heartbeat, self._since_heartbeat = {}, {}
        self._chat_of_ack.clear()
        self.retry()

    def _ack(self, chat_id: str) -> AckPosition:
        sequence = self._since_heartbeat[chat_id] = self._to_ack.pop(chat_id)
        request_id = self._next_id()
        self._chat_of_ack[request_id] = chat_id
        if len(self._chat_of_ack) > ACKS_IN_FLIGHT_MAX:
            del self._chat_of_ack[next(iter(self._chat_of_ack))]
        return AckPosition(id=request_id, chat_id=chat_id, last_acked_sequence=sequence)
