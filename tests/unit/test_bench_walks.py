"""What the benchmark of walks reckons by itself."""

from collections import Counter
from types import CodeType

from bench.walks import Round, walk_of


def code(name: str) -> CodeType:
    """Something to count, of a file of its own."""
    return compile("", f"/{name}.py", "exec")


SEND, TIMER = code("send"), code("timer")


def rounds() -> list[Round]:
    """Three sends; a timer went off during one of them."""
    quiet = Round(Counter({SEND: 2}), {1: {SEND}, 2: {SEND}})
    disturbed = Round(Counter({SEND: 2, TIMER: 7}), {1: {SEND}, 2: {SEND}, 3: {TIMER}})
    return [quiet, disturbed, quiet]


def test_what_few_rounds_call_does_not_count() -> None:
    """A timer that went off during one round is no part of the walk."""
    assert walk_of("send", rounds()).functions == [SEND]


def test_calls_and_turns_are_those_of_counted_functions() -> None:
    """Neither the calls of the timer nor the turn that it took are counted."""
    walk = walk_of("send", rounds())
    assert (walk.calls, walk.turns) == (2, 2)
