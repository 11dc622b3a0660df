"""How long tests wait for what must happen."""

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from tests import waiting
from tests.harness.clock import run_virtual


@pytest.fixture(autouse=True)
def measured_anew() -> Iterator[None]:
    waiting.slow_factor.cache_clear()
    yield
    waiting.slow_factor.cache_clear()


@pytest.mark.parametrize(
    ("wanting", "loop_seconds", "expected"),
    [
        (0.0, 0.5, 10.0),
        (1.0, 1.0, 10.0),
        (2.0, 1.0, 20.0),
        (1.0, 3.0, 30.0),
        (1.5, 2.0, 30.0),
        (9.0, 9.0, 10.0 * waiting.FACTOR_MAX),
    ],
)
def test_a_deadline_is_longer_on_a_slow_or_busy_machine(
    wanting: float, loop_seconds: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how many programs want each core, and by how long it computes; up to a bound, and never shorter."""
    now = iter(range(1_000))
    cores = os.cpu_count() or 1
    monkeypatch.setattr(os, "getloadavg", lambda: (wanting * cores, 0.0, 0.0))
    monkeypatch.setattr(time, "process_time", lambda: next(now) * loop_seconds * waiting.LOOP_SECONDS)
    assert waiting.stretched(10.0) == pytest.approx(expected)


def test_what_never_happens_ends_at_the_deadline() -> None:
    """The wait is ended with TimeoutError, when the stretched time is over."""

    async def scenario(_: object) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(TimeoutError):
            async with waiting.deadline(10.0):
                await asyncio.Event().wait()
        assert 10.0 <= loop.time() - started <= 10.0 * waiting.FACTOR_MAX + 0.1

    run_virtual(scenario)
