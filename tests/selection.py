"""What `make test` runs, and what it leaves to `make test-all`.

`make test` (`--short`) shows every promise and catches every planted fault, once. What shows it again, on
another engine, in another mode of sequencing, or by a longer walk, is left to `make test-all`:

    @pytest.mark.thorough("the same on a third engine")

A test that catches a planted fault is never left out. Without `--short`, pytest runs all that is asked for.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.mutants.faults import faults_of_pytest

MARKER = "thorough"
OPTION = "--short"
EVERYTHING = "tests"
"""The folder that a whole run is asked for."""


def thorough(value: Any, why: str) -> ParameterSet:
    """One parameter of a test that is left to `make test-all`."""
    return pytest.param(value, marks=pytest.mark.thorough(why))


def is_short(config: pytest.Config) -> bool:
    return bool(config.getoption(OPTION))


def not_collected(nodeids: Iterable[str]) -> list[str]:
    """The tests of planted faults that are not among these: a short run would let their faults through."""
    found = {name for nodeid in nodeids for name in (nodeid, nodeid.partition("[")[0])}
    return sorted({fault.test for fault in faults_of_pytest()} - found)


@cache
def tests_of_faults() -> dict[str, frozenset[str]]:
    """By test function, the parameters with which it catches a planted fault; empty where it has none."""
    found = defaultdict[str, set[str]](set)
    for fault in faults_of_pytest():
        function, _, parameters = fault.test.partition("[")
        found[function].add(parameters.removesuffix("]"))
    return {function: frozenset(parameters) for function, parameters in found.items()}


def parameters_of_faults(path: str, function: str) -> frozenset[str]:
    """With which parameters a test function catches planted faults."""
    return tests_of_faults().get(f"{path}::{function}", frozenset())


def is_left_out(item: pytest.Item) -> bool:
    """Whether a test waits for `make test-all`."""
    if item.get_closest_marker(MARKER) is None:
        return False
    function, _, parameters = re.sub(r"-?round\d+", "", item.nodeid).partition("[")
    return parameters.removesuffix("]") not in tests_of_faults().get(function, ())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="each promise once; the rest is for make test-all")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}(why): what it shows is shown by `make test` in another way")


class NotCollected(pytest.Item):
    """Fails, and names the tests of planted faults that would not run.

    It is a test, since of an error in a process of xdist nothing is shown.
    """

    def __init__(self, *, missing: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._missing = missing

    def runtest(self) -> None:
        pytest.fail("these catch planted faults and do not run:\n" + "\n".join(self._missing), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    if not is_short(config):
        return
    left_out = [item for item in items if is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not is_left_out(item)]
    if config.args == [EVERYTHING] and (missing := not_collected(item.nodeid for item in items)):
        items.append(NotCollected.from_parent(session, name="planted_faults", missing=missing))
