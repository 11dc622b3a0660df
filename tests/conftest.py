"""Shared basics of every layer: coroutine tests run on a fresh event loop, with a guard against hanging.

A test may simply be `async def test_…`. It runs under `asyncio.run`; shortly before pytest-timeout would
kill the whole run, the guard cancels the test and the report shows where each task was waiting.
`@pytest.mark.timeout(seconds)` raises the limit of one test; under a debugger there is none.
Where the machine is slow or busy, each limit is longer.
Fixtures stay synchronous (pytest refuses others): what needs the loop is an `async with` in the test.

What a test logs at `debug` is not kept, unless pytest is called with `--log-level debug`.
"""

import asyncio
import functools
import inspect
import io
import sys
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
import structlog

from tests.waiting import stretched

pytest_plugins = ["tests.services", "tests.seeds", "tests.forking", "tests.scratch", "tests.selection"]

GUARD_SHARE = 0.9
"""The guard fires at this share of the test's timeout, so that it always comes before pytest-timeout."""

LIMIT_SECONDS_MAX = 360.0
"""No limit is longer because the machine is busy: `make mutants` must hear of a test that hangs."""

HEAVIEST = "test_cluster_cassandra.py"
LAYERS = ("acceptance", "contracts", "unit", "tidy", "security", "clients", "integration", "simulation")
"""The order of the layers. Two workers take a half each. One begins with the heaviest run, three replicas of
Cassandra and three nodes; the other comes to unit tests. Beside other fault runs its nodes would starve."""


def pytest_configure(config: pytest.Config) -> None:
    """pytest keeps the output of every test to the end of the run: with details it takes gigabytes.

    `capture_logs` takes the place of all processors, so a test that asks for log lines gets every one.
    """
    if (config.getoption("log_level") or "").lower() != "debug":
        structlog.configure(processors=[drop_details, *structlog.get_config()["processors"]])


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A command's loggers are kept, so no later test of this process would see what they say."""
    if structlog.get_config()["cache_logger_on_first_use"]:
        structlog.configure(cache_logger_on_first_use=False)
        pytest.fail(f"{item.name} configured the logs of this process, which belong to all tests")


def drop_details(_: object, level: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if level == "debug":
        raise structlog.DropEvent
    return line


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> tuple[bool, int]:
        layers = [LAYERS.index(part) for part in item.path.parts if part in LAYERS]
        return item.path.name != HEAVIEST, layers[0] if layers else len(LAYERS)

    items.sort(key=place)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The marker counts for pytest-timeout, which looks after this, and for the guard."""
    limit_s = limit_seconds(item)
    longer_s = min(stretched(limit_s), max(limit_s, LIMIT_SECONDS_MAX))
    item.add_marker(pytest.mark.timeout(longer_s), append=False)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test to its end; leave any other test to pytest."""
    guard_s = guard_seconds(pyfuncitem)
    hypothesis_handle = getattr(pyfuncitem.obj, "hypothesis", None)
    if hypothesis_handle is not None:
        if inspect.iscoroutinefunction(hypothesis_handle.inner_test):
            hypothesis_handle.inner_test = as_sync(hypothesis_handle.inner_test, guard_s)
        return None
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    as_sync(pyfuncitem.obj, guard_s)(**arguments)
    return True


def guard_seconds(item: pytest.Function) -> float | None:
    """How long a coroutine test may take, or None where a person is stepping through it."""
    if sys.gettrace() is not None or item.config.getoption("usepdb"):
        return None
    limit_s = limit_seconds(item)
    return limit_s * GUARD_SHARE if limit_s > 0 else None


def limit_seconds(item: pytest.Item) -> float:
    """How long a test may take; 0 for ever."""
    marker = item.get_closest_marker("timeout")
    if marker is None:
        return float(item.config.getini("timeout"))
    return float(marker.args[0] if marker.args else marker.kwargs["timeout"])


def as_sync(test: Callable[..., Awaitable[None]], guard_s: float | None) -> Callable[..., None]:
    """The same test as a plain function, for pytest and for Hypothesis."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        stacks = asyncio.run(run_guarded(test(*args, **kwargs), guard_s))
        if stacks is not None:
            pytest.fail(f"the test was still waiting after {guard_s:g} s\n{stacks}", pytrace=False)

    return run


async def run_guarded(test: Awaitable[None], guard_s: float | None) -> str | None:
    """Await the test; if it is not done in time, cancel it and return the stack of every task."""
    task = asyncio.ensure_future(test)
    done, _ = await asyncio.wait([task], timeout=guard_s)
    if done:
        return task.result()
    stacks = io.StringIO()
    for waiting in asyncio.all_tasks() - {asyncio.current_task()}:
        waiting.print_stack(file=stacks)
    task.cancel()
    await asyncio.wait([task], timeout=1)
    return stacks.getvalue()
