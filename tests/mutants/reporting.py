"""A plugin of pytest for one run: the faulty module must import, and how each test ends is written down.

`PARLEY_MUTANT_MODULE` names the module, `PARLEY_MUTANT_REPORT` the file that gets one JSON line per test.
"""

import importlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

MODULE_VARIABLE = "PARLEY_MUTANT_MODULE"
REPORT_VARIABLE = "PARLEY_MUTANT_REPORT"
CANNOT_IMPORT = 77
"""The exit status for a fault that breaks the import: whoever plants such a one shows nothing."""


def pytest_configure() -> None:
    # Whether a random test catches a fault must not depend on luck, and nobody reads the smallest example.
    settings.register_profile(
        "mutants", derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("mutants")
    if module := os.environ.get(MODULE_VARIABLE):
        try:
            importlib.import_module(module)
        except Exception as error:
            pytest.exit(f"{module} cannot be imported: {error!r}", returncode=CANNOT_IMPORT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """One line for each phase: what it was, how it ended, by which errors."""
    report = yield
    told: dict[str, Any] = {
        "test": item.nodeid,
        "phase": report.when,
        "outcome": report.outcome,
        "seconds": round(report.duration, 3),
        "errors": errors_of(call.excinfo.value) if call.excinfo is not None else [],
    }
    with Path(os.environ[REPORT_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
    return report


def errors_of(error: BaseException) -> list[str]:
    """The names that an `except` could have caught it by; of a group, those of its members."""
    if isinstance(error, BaseExceptionGroup):
        return [name for member in error.exceptions for name in errors_of(member)]
    return [f"{one.__module__}.{one.__qualname__}" for one in type(error).__mro__[:-1]]
