"""Where tests have their chance from: one seed for a whole run, and how often each randomised test runs.

Without PARLEY_SIMULATE_SEED each randomised test draws the same in every run, once. With it, as in
`make simulate`, each draws by a seed of its own that follows from that of the run and its own name, and those
that do not loop by themselves run in several rounds, each with another seed:

    @pytest.mark.randomised
    async def test_something(seed: int) -> None:
        random = Random(seed)

Tests of Hypothesis and those in `tests/simulation` need no marker. PARLEY_SIMULATE_ROUNDS says how long all
of it takes. A failure says which command repeats it, and the end of a run how many seeds were tried.
"""

import functools
import hashlib
import inspect
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

SEED_VARIABLE, ROUNDS_VARIABLE = "PARLEY_SIMULATE_SEED", "PARLEY_SIMULATE_ROUNDS"
IS_VARIED = bool(os.environ.get(SEED_VARIABLE))
SEED = int(os.environ.get(SEED_VARIABLE) or 0)
ROUNDS = int(os.environ.get(ROUNDS_VARIABLE) or 30)
"""How often each crash and fault test kills or breaks something."""
ROUNDS_PER_REPEAT = 15
REPEATS = max(1, ROUNDS // ROUNDS_PER_REPEAT) if IS_VARIED else 1
"""How often a randomised test that draws many cases at a time runs, each time with another seed."""
SHRINK_SECONDS_MAX = 420
"""Only a failing test takes long: Hypothesis looks for its shortest case."""

SIMULATIONS = "tests/simulation/"
MARKER, SEEDS_TRIED = "randomised", "seeds tried"

settings.register_profile(
    "parley",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("parley")

_tried = Counter[str]()


def seed_of(nodeid: str) -> int:
    """The seed of one test in one round of this run."""
    return int.from_bytes(hashlib.sha256(f"{SEED} {nodeid}".encode()).digest()[:8])


def try_seed() -> None:
    """Count one case; for tests that draw many by themselves."""
    _tried[SEEDS_TRIED] += 1


def command(nodeid: str) -> str:
    """What repeats a test with the chance that it had."""
    variables = f"{SEED_VARIABLE}={SEED} " if IS_VARIED else ""
    return f"{variables}{ROUNDS_VARIABLE}={ROUNDS} .venv/bin/pytest {shlex.quote(nodeid)}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test in this round."""
    return seed_of(request.node.nodeid)


@pytest.fixture
def repeat(request: pytest.FixtureRequest) -> int:
    """Which round of a randomised test this is."""
    return int(getattr(request, "param", 0))


# What pytest asks for


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}: draws by a seed that `make simulate` varies")
    if IS_VARIED:
        config.pluginmanager.register(TellAtOnce(config))


class TellAtOnce:
    """A long run says what failed when it fails, not in the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"failed: {command(report.nodeid)}")


def pytest_report_header() -> str:
    return f"randomised tests: {SEED_VARIABLE}={SEED if IS_VARIED else ''} {ROUNDS_VARIABLE}={ROUNDS}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_randomised = is_hypothesis_test(metafunc.function) or metafunc.definition.get_closest_marker(MARKER)
    if is_randomised and REPEATS > 1:
        if "repeat" not in metafunc.fixturenames:
            metafunc.fixturenames.append("repeat")
        metafunc.parametrize("repeat", range(REPEATS), indirect=True, ids=lambda number: f"round{number}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is randomised without saying so, before `-m` chooses."""
    for item in items:
        is_drawn = isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)
        if is_drawn or item.nodeid.startswith(SIMULATIONS):
            item.add_marker(MARKER)
        if is_drawn and IS_VARIED and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SHRINK_SECONDS_MAX))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Give a test of Hypothesis its seed, and count what any randomised test tries."""
    _tried.clear()
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    inner = handle.inner_test if handle is not None else None
    if handle is not None:
        assert isinstance(item, pytest.Function)
        handle.inner_test = counted(inner)
        if IS_VARIED:
            hypothesis.seed(seed_of(item.nodeid))(item.obj)
    try:
        return (yield)
    finally:
        if handle is not None:
            handle.inner_test = inner
        if item.get_closest_marker(MARKER):
            item.user_properties.append((SEEDS_TRIED, _tried[SEEDS_TRIED] or 1))


def counted(inner: Any) -> Callable[..., Any]:
    """The same test, and each case counts."""

    if inspect.iscoroutinefunction(inner):

        @functools.wraps(inner)
        async def run_async(*args: Any, **kwargs: Any) -> None:
            try_seed()
            await inner(*args, **kwargs)

        return run_async

    @functools.wraps(inner)
    def run(*args: Any, **kwargs: Any) -> None:
        try_seed()
        inner(*args, **kwargs)

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.get_closest_marker(MARKER):
        report.sections.append(("how to repeat it", command(item.nodeid)))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """By file how many seeds were tried, in how long; and what repeats each failure."""
    tried, seconds, failed = Counter[str](), defaultdict[str, float](float), list[str]()
    for report in [one for category in ("passed", "failed") for one in terminalreporter.getreports(category)]:
        count = dict(report.user_properties).get(SEEDS_TRIED)
        if count is None or report.when != "call":
            continue
        file = report.nodeid.partition("::")[0]
        tried[file] += int(count)
        seconds[file] += report.duration
        failed += [report.nodeid] if report.failed else []
    if IS_VARIED and tried:
        terminalreporter.section(f"seeds tried, from {SEED_VARIABLE}={SEED}")
        for file in sorted(tried):
            terminalreporter.write_line(f"{tried[file]:>8,}  {seconds[file]:>8,.1f} s  {file}")
        terminalreporter.write_line(
            f"{tried.total():>8,}  {sum(seconds.values()):>8,.1f} s  of all tests together"
        )
    for nodeid in failed:
        terminalreporter.write_line(f"repeat it: {command(nodeid)}")
