"""Faults are off unless the environment asks for them."""

from parley.testing import faults


def test_a_batch_is_as_large_as_usual_unless_a_test_makes_it_smaller() -> None:
    """The variable lowers the bound to no less than one message, and never raises it."""
    assert faults.batch_max_from({}, usual=49) == 49
    assert faults.batch_max_from({faults.BATCH_MAX: "1"}, usual=49) == 1
    assert faults.batch_max_from({faults.BATCH_MAX: "0"}, usual=49) == 1
    assert faults.batch_max_from({faults.BATCH_MAX: "500"}, usual=49) == 49
