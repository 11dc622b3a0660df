"""Virtual time: a clock and an event loop whose time moves only when nothing else can run.

    def test_a_lease_ends() -> None:
        async def scenario(clock: VirtualClock) -> None:
            await asyncio.sleep(3600)          # takes no time
            assert clock() == START_MS + 3_600_000
        run_virtual(scenario)

Work for threads runs at once on the loop itself, so that a scenario is deterministic.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from parley.clock import MS_PER_SECOND

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Deadlock(Exception):
    """Every task waits, and nothing can wake one."""


class VirtualClock:
    """A clock that moves only by `advance` and `set`; only `set` moves it backwards."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> int:
        """Let time pass; returns the new time."""
        if ms < 0:
            raise ValueError("advance() moves forwards; use set() to step back as a bad clock does")
        self.now_ms += ms
        return self.now_ms

    def set(self, now_ms: int) -> None:
        self.now_ms = now_ms


class LoopClock(VirtualClock):
    """The wall clock of a virtual loop: it moves with the loop's time."""

    def __init__(self, loop: VirtualLoop, start_ms: int = START_MS) -> None:
        super().__init__(start_ms)
        self._loop = loop

    def __call__(self) -> int:
        return self.now_ms + int(self._loop.time() * MS_PER_SECOND)


class _JumpingSelector(selectors.SelectSelector):
    """Moves the loop's time to the next timer, where a real selector would wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.own_files = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is not None:
            self.seconds += timeout
            return []
        if len(self.get_map()) <= self.own_files:
            raise Deadlock("every task waits and no timer is set")
        return super().select(None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when nothing is ready.

    Sockets work, but their peers run in real time: do not use them where a test must be deterministic.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        # The loop watches a pipe of its own, for which it must not wait.
        self._jumping.own_files = len(self._jumping.get_map())

    def time(self) -> float:
        return self._jumping.seconds

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Arguments], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Run it now: a thread would finish at an arbitrary moment."""
        done: asyncio.Future[Result] = self.create_future()
        try:
            done.set_result(contextvars.copy_context().run(func, *args))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            done.set_exception(error)
        return done


def run_virtual(scenario: Callable[[VirtualClock], Awaitable[Result]], start_ms: int = START_MS) -> Result:
    """Run a scenario to its end in virtual time; its argument is the wall clock there."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop: Any = runner.get_loop()
        return runner.run(_awaited(scenario(LoopClock(loop, start_ms))))


async def _awaited(work: Awaitable[Result]) -> Result:
    return await work
