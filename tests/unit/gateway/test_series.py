"""The last hour of a few numbers: what a step brought, and no more than an hour."""

import asyncio

from parley.gateway.series import POINTS_MAX, STEP_SECONDS, SeriesRecorder
from tests.harness.clock import VirtualClock, run_virtual


def test_numbers_are_kept_as_they_are_read() -> None:
    """A gauge as it is, a total by the second, a mean of what came since; nothing came: 0."""

    async def scenario(clock: VirtualClock) -> None:
        steps = [(7.0, 100.0, (10.0, 4.0)), (8.0, 110.0, (13.0, 5.0)), (9.0, 110.0, (13.0, 5.0))]
        now = steps[0]
        series = SeriesRecorder({"gauge": lambda: now[0]}, {"rate": lambda: now[1]}, {"mean": lambda: now[2]})
        for step in (*steps, (9.0, 5.0, (17.0, 9.0))):
            now = step
            series.sample()
            await asyncio.sleep(STEP_SECONDS)
        assert series.last("gauge", 3_600) == [7, 8, 9, 9]
        assert series.last("rate", 3_600) == [0, 10 / STEP_SECONDS, 0, 0]
        assert series.last("mean", 3_600) == [0, 3, 0, 1]
        assert series.last("gauge", 2 * STEP_SECONDS) == [9, 9]

    run_virtual(scenario)


def test_the_oldest_makes_room() -> None:
    """After an hour there are as many points as before."""

    async def scenario(clock: VirtualClock) -> None:
        numbers = iter(range(POINTS_MAX + 10))
        series = SeriesRecorder({"number": lambda: float(next(numbers))}, {}, {})
        for _ in range(POINTS_MAX + 10):
            series.sample()
        kept = series.last("number", 1e9)
        assert kept == [float(number) for number in range(10, POINTS_MAX + 10)]

    run_virtual(scenario)
