"""What is written down of a test that was run for a fault."""

from typing import NamedTuple


class Phase(NamedTuple):
    test: str
    phase: str
    outcome: str
    seconds: float
    errors: list[str]
