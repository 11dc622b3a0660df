"""Virtual time passes exactly as far as the next timer, and only when nothing else can happen."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.clock import START_MS, Deadlock, VirtualClock, run_virtual


def test_a_virtual_clock_stands_still() -> None:
    """A clock that nobody moves tells the same time, and then what it was moved by."""
    clock = VirtualClock(1_000)
    assert (clock(), clock(), clock.advance(250), clock()) == (1_000, 1_000, 1_250, 1_250)


def test_a_virtual_clock_refuses_to_run_backwards() -> None:
    """Stepping back is possible only when it is asked for by name."""
    clock = VirtualClock(1_000)
    with pytest.raises(ValueError):
        clock.advance(-1)
    clock.set(10)
    assert clock() == 10


def test_an_hour_passes_at_once() -> None:
    """Sleeping for an hour moves the clock by an hour and takes no real time."""

    async def scenario(clock: VirtualClock) -> int:
        await asyncio.sleep(3_600)
        return clock()

    started = time.monotonic()
    assert run_virtual(scenario) == START_MS + 3_600_000
    assert time.monotonic() - started < 5


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20))
def test_timers_fire_in_the_order_of_their_times(delays_ms: list[int]) -> None:
    """Sleepers wake in the order of their times, each exactly when it asked for."""

    async def scenario(clock: VirtualClock) -> list[tuple[int, int]]:
        woken: list[tuple[int, int]] = []

        async def sleeper(delay_ms: int) -> None:
            await asyncio.sleep(delay_ms / 1000)
            woken.append((delay_ms, round(asyncio.get_running_loop().time() * 1000)))

        await asyncio.gather(*map(sleeper, delays_ms))
        return woken

    assert run_virtual(scenario) == [(delay_ms, delay_ms) for delay_ms in sorted(delays_ms)]


def test_time_stands_still_while_something_is_ready() -> None:
    """Tasks that only give way to each other pass no time."""

    async def scenario(clock: VirtualClock) -> int:
        for _ in range(100):
            await asyncio.sleep(0)
        return clock()

    assert run_virtual(scenario) == START_MS


def test_a_timeout_is_reached_in_virtual_time() -> None:
    """A wait for something that never comes ends when its time is over."""

    async def scenario(clock: VirtualClock) -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        return clock()

    assert run_virtual(scenario) == START_MS + 30_000


def test_a_wait_for_nothing_is_a_deadlock() -> None:
    """A scenario in which nothing can happen any more ends instead of hanging."""

    async def scenario(clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(scenario)


def test_work_for_a_thread_is_done_at_once() -> None:
    """What is given to a thread has happened when the call returns, and costs no virtual time."""

    async def scenario(clock: VirtualClock) -> tuple[int, int]:
        future = asyncio.get_running_loop().run_in_executor(None, lambda: 7)
        assert future.done()
        return await asyncio.to_thread(lambda: future.result()), clock()

    assert run_virtual(scenario) == (7, START_MS)


def test_an_error_of_a_thread_arrives() -> None:
    """What a thread raises is raised where it is awaited."""

    async def scenario(clock: VirtualClock) -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    run_virtual(scenario)


def test_two_runs_take_the_same_course() -> None:
    """The same scenario leaves the same trace each time it is run."""

    async def scenario(clock: VirtualClock) -> list[tuple[str, int]]:
        trace: list[tuple[str, int]] = []

        async def worker(name: str, pause_ms: int) -> None:
            for _ in range(5):
                await asyncio.sleep(pause_ms / 1000)
                trace.append((name, clock()))

        await asyncio.gather(worker("a", 30), worker("b", 20), worker("c", 30))
        return trace

    first, second = run_virtual(scenario), run_virtual(scenario)
    assert len(first) == 15
    assert first == second
