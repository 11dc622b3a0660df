"""When a run of Vitest shows that a planted fault is caught, and when it shows nothing."""

import msgspec
import pytest

from tests.mutants.faults import all_faults
from tests.mutants.phases import Phase
from tests.mutants.running import trouble_with
from tests.mutants.vitest import UNREADABLE, name_of

FAULT = next(fault for fault in all_faults() if fault.is_in_typescript)


def failed(error: str) -> list[Phase]:
    return [Phase(FAULT.test, "call", "failed", 0.1, [f"vitest.{name_of(error)}"])]


@pytest.mark.parametrize(
    "error",
    [
        "AssertionError: expected [] to deeply equal [ 1 ]",
        "Error: after 600000 ms it still does not hold",
        "Closed: the server ended it",
    ],
)
def test_a_claim_a_deadline_and_an_error_of_the_sdk_catch_a_fault(error: str) -> None:
    """The test says what is wrong."""
    assert trouble_with(FAULT, 1, failed(error)) == ""


def test_a_type_error_catches_nothing() -> None:
    """Code that cannot run is no fault, unless the list says that it is meant."""
    phases = failed("TypeError: undefined is not a function")
    assert "vitest.TypeError" in trouble_with(FAULT, 1, phases)
    assert trouble_with(msgspec.structs.replace(FAULT, raises="TypeError"), 1, phases) == ""


def test_a_file_that_does_not_load_shows_nothing() -> None:
    """With a fault that is a typing error no test is run."""
    assert "cannot be imported" in trouble_with(FAULT, UNREADABLE, [])


def test_a_test_that_passes_lets_a_fault_through() -> None:
    """The fault has survived."""
    assert trouble_with(FAULT, 0, [Phase(FAULT.test, "call", "passed", 0.1, [])]) == "SURVIVED"
