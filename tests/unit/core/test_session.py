"""The session table: in each state, each frame is taken or refused as the contract says."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.session import TABLE, ConnectionProtocol, State
from parley.wire import codes
from parley.wire.codec import CODECS, JSON, MSGPACK, InvalidFrame
from parley.wire.codes import Close
from parley.wire.frames import Hello, Request
from tests.unit.wire.hostile import as_json, mutated_objects, plain_values
from tests.wire_vectors.examples import REQUESTS

ONE_OF_EACH = {type(request): request for request in REQUESTS.values()}
AFTER_HELLO: set[type[Any]] = set(ONE_OF_EACH) - {Hello}


def session_in(state: State) -> ConnectionProtocol:
    session = ConnectionProtocol(JSON)
    session.state = state
    return session


def test_every_request_has_an_example_here() -> None:
    """The table below is over all requests there are."""
    assert set(ONE_OF_EACH) == set(Request.__args__)


@pytest.mark.parametrize("kind", ONE_OF_EACH, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("state", State)
def test_each_frame_in_each_state(state: State, kind: type[Any]) -> None:
    """New takes only hello, ready takes all but hello, greeted and closed take nothing."""
    rows: dict[State, set[type[Any]]] = {State.NEW: {Hello}, State.READY: AFTER_HELLO}
    taken = rows.get(state, set())
    session = session_in(state)
    answer = session.receive(msgspec.json.encode(ONE_OF_EACH[kind]))
    if kind in taken:
        assert answer == ONE_OF_EACH[kind]
        assert session.state is (State.GREETED if kind is Hello else State.READY)
    else:
        assert isinstance(answer, InvalidFrame)
        assert answer.request_id == ONE_OF_EACH[kind].id
        assert session.state is state


@pytest.mark.parametrize("kind", sorted(AFTER_HELLO, key=str), ids=lambda kind: kind.__name__)
def test_nothing_comes_before_hello(kind: type[Any]) -> None:
    """Before hello every other frame is refused as unauthenticated and the session stays new."""
    answer = session_in(State.NEW).receive(msgspec.json.encode(ONE_OF_EACH[kind]))
    assert isinstance(answer, InvalidFrame)
    assert answer.refusal.code == "unauthenticated"


def test_hello_is_said_once() -> None:
    """A second hello is a bad request and changes nothing."""
    session = session_in(State.READY)
    answer = session.receive(msgspec.json.encode(ONE_OF_EACH[Hello]))
    assert isinstance(answer, InvalidFrame)
    assert (answer.refusal.code, session.state) == ("bad_request", State.READY)


def test_a_good_token_opens_the_session() -> None:
    """Hello leads to greeted, and the shell's verdict to ready."""
    session = ConnectionProtocol(JSON)
    assert isinstance(session.receive(msgspec.json.encode(ONE_OF_EACH[Hello])), Hello)
    session.accept()
    assert session.state is State.READY


@pytest.mark.parametrize("state", State)
def test_no_frame_closes_in_every_state(state: State) -> None:
    """A payload that is no object ends the session with a code not to come back with."""
    session = session_in(state)
    answer = session.receive("[]")
    assert isinstance(answer, Close)
    assert (answer.code, session.state) == (codes.NOT_A_FRAME.code, State.CLOSED)


@pytest.mark.parametrize("state", State)
def test_a_misreading_changes_no_state(state: State) -> None:
    """An unknown type is refused and the session goes on where it was."""
    session = session_in(state)
    answer = session.receive('{"type":"nonsense","id":4}')
    assert isinstance(answer, InvalidFrame)
    assert (answer.request_id, session.state) == (4, state)


def test_the_table_has_a_row_for_every_state() -> None:
    """No state is forgotten, and none leads out of closed."""
    assert set(TABLE) == set(State)
    assert not TABLE[State.CLOSED]


@given(
    st.sampled_from(list(State)),
    st.lists(
        st.binary(max_size=60) | st.text(max_size=60) | (mutated_objects() | plain_values).map(as_json),
        max_size=5,
    ),
)
def test_a_session_never_raises(state: State, payloads: list[bytes | str]) -> None:
    """Whatever comes in whatever order, a session answers and never raises."""
    for codec in CODECS.values():
        session = ConnectionProtocol(codec)
        session.state = state
        for payload in payloads:
            assert isinstance(session.receive(payload), Request | InvalidFrame | Close)


def test_a_text_frame_on_a_binary_connection_closes() -> None:
    """JSON text sent to a MessagePack session ends it."""
    session = ConnectionProtocol(MSGPACK)
    assert isinstance(session.receive('{"type":"heartbeat"}'), Close)
    session.close()
    assert session.state is State.CLOSED
