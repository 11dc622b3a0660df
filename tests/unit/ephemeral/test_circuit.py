"""When a service that does not answer is asked again."""

from hypothesis import given
from hypothesis import strategies as st

from parley.ephemeral.circuit import PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN, STEADY_SECONDS, Circuit

TIMES = st.lists(st.floats(0.0, 3.0), min_size=1, max_size=50)


def opened() -> Circuit:
    circuit = Circuit()
    assert circuit.failed(0.0)
    return circuit


def test_calls_are_skipped_after_a_failure() -> None:
    """Nobody asks for a while, and then only one, until that one has been answered."""
    circuit = opened()
    assert not circuit.allows(PAUSE_SECONDS_MIN / 2)
    assert [circuit.allows(PAUSE_SECONDS_MIN) for _ in range(3)] == [True, False, False]
    assert circuit.worked(PAUSE_SECONDS_MIN)
    assert all(circuit.allows(PAUSE_SECONDS_MIN) for _ in range(3))


def test_only_a_change_is_news() -> None:
    """The first failure and the first answer after it are told, and nothing in between."""
    circuit = Circuit()
    assert [circuit.worked(0.0), circuit.failed(0.0), circuit.failed(0.0)] == [False, True, False]
    assert [circuit.worked(0.0), circuit.worked(0.0)] == [True, False]


def test_pauses_grow_to_a_limit() -> None:
    """Each try that fails makes the next pause longer, up to the longest."""
    circuit, now, pauses = opened(), 0.0, []
    for _ in range(10):
        pause = PAUSE_SECONDS_MIN
        while not circuit.allows(now + pause):
            pause *= 2
        now += pause
        pauses.append(pause)
        circuit.failed(now)
    assert pauses == sorted(pauses)
    assert pauses[0] == PAUSE_SECONDS_MIN
    assert PAUSE_SECONDS_MAX <= pauses[-1] < 2 * PAUSE_SECONDS_MAX


def test_calls_that_were_under_way_lengthen_no_pause() -> None:
    """Many that fail together in one outage count as one."""
    circuit = opened()
    for _ in range(20):
        circuit.failed(0.0)
    assert circuit.allows(PAUSE_SECONDS_MIN)


def test_a_pause_starts_short_again_after_a_steady_time() -> None:
    """What happened in an earlier outage does not slow down one much later."""
    circuit = opened()
    for now in (1.0, 10.0, 100.0):
        assert circuit.allows(now)
        circuit.failed(now)
    circuit.worked(110.0)
    circuit.failed(111.0 + STEADY_SECONDS)
    assert circuit.allows(111.0 + STEADY_SECONDS + PAUSE_SECONDS_MIN)


def test_what_goes_up_and_down_is_asked_ever_less() -> None:
    """A service that answers some calls and fails others is not asked each time as if it were well."""
    circuit, now, asked = Circuit(), 0.0, 0
    while now < 60.0:
        if circuit.allows(now):
            asked += 1
            circuit.worked(now)
            circuit.failed(now)
        now += 0.01
    assert asked <= 6 + 60 / PAUSE_SECONDS_MAX


@given(TIMES)
def test_it_never_stops_trying(gaps: list[float]) -> None:
    """Whenever the longest pause has passed somebody may try, also if those who tried never came back."""
    circuit, now = opened(), 0.0
    for gap in gaps:
        now += gap
        circuit.allows(now)
    assert circuit.allows(now + PAUSE_SECONDS_MAX)
