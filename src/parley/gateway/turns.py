"""Turns of the event loop: a client that has used its slice waits until other clients had theirs.

The loop runs one thing at a time, so work for one client delays all others. Each client has a
`LoopShare`: a user with all of their connections, or a connection before its hello. What the loop does for it
is timed. A client that has used more than `SLICE_SECONDS` waits in line; each turn of the loop repays
`REPAID_SECONDS` to the one in front. A turn with nothing else to do takes microseconds, so a client that is
alone is hardly slowed down, and one that is not gets a small part of each turn. See docs/fairness.md.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from parley.telemetry import Tally

T = TypeVar("T")

SLICE_SECONDS = 0.001
"""How long a client may use the loop without waiting."""
REPAID_SECONDS = 0.0001
"""How much each turn of the loop repays for the client at the front of the line."""
assert REPAID_SECONDS < SLICE_SECONDS
FRAME_SECONDS = 1e-6
"""The untimed cost of receiving a piece or a frame."""
REQUEST_SECONDS = 0.0003
"""The untimed cost of an HTTP request: parsing, finding its session, writing the answer."""
CONNECT_SECONDS = 0.0005
"""The untimed cost of a connection, from being accepted to being cleaned up."""
assert REQUEST_SECONDS < CONNECT_SECONDS < SLICE_SECONDS


class LoopShare:
    """What a client has used of the loop, in seconds, since its turn began or since it waited."""

    __slots__ = ("__weakref__", "owed", "spent", "turn", "waiting")

    def __init__(self) -> None:
        self.owed = 0.0
        """What was done for it while it was not asked to wait: it pays when it begins something."""
        self.spent = 0.0
        self.turn = -1
        self.waiting: dict[Callable[[], None], None] | None = None
        """What to call when its turn comes, in order."""


class LoopTurns:
    """Counts the turns of the loop, and keeps the line of clients that have used their slice.

    `waits` counts how often a client waited. `now`: seconds; the loop's own time stands still in a turn.
    """

    def __init__(self, waits: Tally, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.number = 0
        """Another one in another turn of the loop, as far as `begin` was called in the last."""
        self._waits = waits
        self._line: deque[LoopShare] = deque()
        self._is_counting = False

    def begin(self, share: LoopShare) -> None:
        """A client's first work in this turn; what it used before counts no more, unless it waits in line."""
        if share.turn != self.number:
            share.turn = self.number
            if not share.waiting:
                share.spent = 0.0
            self._count()

    def charge(self, share: LoopShare, began: float) -> float:
        """Charge the time since `began` for one frame, at most a slice. The time now, when the next begins.

        A frame takes microseconds. A longer time was a pause of the whole process, not the client's work.
        """
        now = self.now()
        share.spent += min(now - began, SLICE_SECONDS) + FRAME_SECONDS
        return now

    def wait(self, share: LoopShare, wake: Callable[[], None]) -> None:
        """Call `wake` when this client has repaid what it used and those before it in line had their turn."""
        self._waits.inc()
        if share.waiting:
            share.waiting[wake] = None
            return
        is_in_line = share.waiting is not None
        share.waiting = {wake: None}
        if not is_in_line:
            self._line.append(share)
        self._count()

    def leave(self, share: LoopShare, wake: Callable[[], None]) -> None:
        """Forget what waits, if it still does: its client is gone."""
        if share.waiting:
            share.waiting.pop(wake, None)

    def owe(self, share: LoopShare, began: float) -> None:
        """Charge the time since `began` to what this client begins next."""
        share.owed += self.now() - began

    def enters_now(self, share: LoopShare, seconds: float) -> bool:
        """Charge the untimed cost of what a client begins. Whether it may go on, or waits in line first."""
        self.begin(share)
        share.spent += seconds + share.owed
        share.owed = 0.0
        return share.spent <= SLICE_SECONDS

    async def enter(self, share: LoopShare, seconds: float) -> None:
        """As `enters_now`, and wait in line if it has used its slice."""
        if not self.enters_now(share, seconds):
            await self.give_way(share)

    async def give_way(self, share: LoopShare) -> None:
        """Wait in line; whoever is cancelled leaves it."""
        turn = asyncio.get_running_loop().create_future()
        wake = partial(_set_done, turn)
        self.wait(share, wake)
        try:
            await turn
        finally:
            self.leave(share, wake)

    def metered(self, share: LoopShare, work: Awaitable[T]) -> MeteredWork[T]:
        """To be awaited: as `work`, on this client's account."""
        self.begin(share)
        return MeteredWork(self, share, work)

    def _count(self) -> None:
        """Count the end of this turn, once, whoever asks: a turn that ends twice repays twice."""
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self.number += 1
        self._is_counting = False
        if not self._line:
            return
        share = self._line[0]
        share.spent -= REPAID_SECONDS
        if share.spent <= 0.0 or not share.waiting:
            self._line.popleft()
            self._wake_next(share)
        if self._line:
            self._count()

    def _wake_next(self, share: LoopShare) -> None:
        """The front of the line goes on; other connections of the same client line up again behind it."""
        waiting = share.waiting
        wake = next(iter(waiting), None) if waiting else None
        if waiting and wake is not None:
            del waiting[wake]
        if waiting:
            self._line.append(share)
        else:
            share.waiting = None
        if wake is not None:
            wake()


def _set_done(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class MeteredWork(Generic[T]):
    """Work whose time on the loop is counted, step by step.

    Where it offers to give way (`asyncio.sleep(0)`) it goes on at once while its client has time left, and
    waits in line when it has not.
    """

    __slots__ = ("_share", "_turns", "_work")

    def __init__(self, turns: LoopTurns, share: LoopShare, work: Awaitable[T]) -> None:
        self._turns = turns
        self._share = share
        self._work = work

    def __await__(self) -> Generator[Any, None, T]:
        share, now, steps = self._share, self._turns.now, self._work.__await__()
        error: BaseException | None = None
        while True:
            began = now()
            try:
                awaited = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return] # of a coroutine that returns T
            finally:
                share.spent += now() - began
                error = None
            try:
                if awaited is not None:
                    yield awaited
                elif share.spent > SLICE_SECONDS:
                    yield from self._turns.give_way(share).__await__()
            except BaseException as thrown:  # a cancellation: the work hears of it where it waits
                error = thrown
