"""Requests that may be repeated: each is sent until it is answered, across reconnects. Pure.

A frame that has no answer of its own has taken effect when a heartbeat sent after it is answered. A call
without a frame is only that heartbeat: it is done when everything sent before it has taken effect.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from parley.client.errors import OutboxFull
from parley.client.timers import Timers
from parley.client.timing import Timing, backoff_ms
from parley.errors import Refusal
from parley.wire.frames import Heartbeat, ReadReceipt, Request

CALLS_MAX = 1_000
CALL_TIMER = "call"


class Call(Struct, eq=False):
    number: int
    request: ReadReceipt | None
    attempts: int = 0
    request_id: int | None = None


class Calls:
    def __init__(
        self, timing: Timing, timers: Timers, next_id: Callable[[], int], chance: Callable[[], float]
    ) -> None:
        self._timing = timing
        self._timers = timers
        self._next_id = next_id
        self._chance = chance
        self._calls: dict[int, Call] = {}
        self._to_send: dict[int, None] = {}
        self._by_request: dict[int, Call] = {}
        self._barriers: dict[int, list[int]] = {}

    def add(self, request: ReadReceipt | None) -> int:
        """The number under which its outcome is told."""
        if len(self._calls) >= CALLS_MAX:
            raise OutboxFull(f"{CALLS_MAX} requests are waiting for their answers")
        number = self._next_id()
        self._calls[number] = Call(number, request)
        self._to_send[number] = None
        return number

    def __contains__(self, number: int) -> bool:
        return number in self._calls

    def drop(self, number: int) -> None:
        """Nobody waits for it any more."""
        call = self._calls.pop(number, None)
        self._to_send.pop(number, None)
        self._timers.cancel((CALL_TIMER, str(number)))
        if call is not None and call.request_id is not None:
            self._by_request.pop(call.request_id, None)

    def disconnected(self) -> None:
        self._by_request.clear()
        self._barriers.clear()
        self._to_send = dict.fromkeys(self._calls)
        for call in self._calls.values():
            call.attempts, call.request_id = 0, None

    def transmit(self) -> list[Request]:
        """What waits, and one heartbeat behind it."""
        if not self._to_send:
            return []
        calls = [self._calls[number] for number in self._to_send]
        frames: list[Request] = [frame for call in calls if (frame := self._frame(call)) is not None]
        barrier = self._next_id()
        self._barriers[barrier] = list(self._to_send)
        self._to_send.clear()
        return [*frames, Heartbeat(id=barrier)]

    def heartbeat_answered(self, request_id: int) -> list[Call]:
        """The calls that have taken effect by that."""
        numbers = self._barriers.pop(request_id, [])
        done = [self._calls[number] for number in numbers if self._is_sent(number)]
        for call in done:
            self.drop(call.number)
        return done

    def refused(self, request_id: int, refusal: Refusal, now_ms: int) -> int | None:
        """The call that is refused for good; a temporary refusal is tried again later."""
        for number in self._barriers.pop(request_id, []):
            self._retry(self._calls.get(number), refusal, now_ms)
        call = self._by_request.pop(request_id, None)
        if call is None:
            return None
        if not refusal.temporary:
            self.drop(call.number)
            return call.number
        self._retry(call, refusal, now_ms)
        return None

    def resume(self, number: int) -> None:
        if number in self._calls:
            self._to_send[number] = None

    def _retry(self, call: Call | None, refusal: Refusal, now_ms: int) -> None:
        if call is not None:
            call.request_id = None
            backoff = backoff_ms(call.attempts - 1, self._timing, self._chance())
            self._timers.set(
                (CALL_TIMER, str(call.number)), now_ms + max(refusal.retry_after_ms or 0, backoff)
            )

    def _is_sent(self, number: int) -> bool:
        call = self._calls.get(number)
        return call is not None and call.request_id is not None

    def _frame(self, call: Call) -> ReadReceipt | None:
        call.request_id = self._next_id()
        call.attempts += 1
        if call.request is None:
            return None
        self._by_request[call.request_id] = call
        return ReadReceipt(
            id=call.request_id,
            chat_id=call.request.chat_id,
            read_up_to=call.request.read_up_to,
            read_at=call.request.read_at,
        )
