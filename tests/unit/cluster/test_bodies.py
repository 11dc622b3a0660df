"""What nodes say to each other survives the way there, and nonsense does not."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.cluster import bodies
from parley.cluster.bodies import BadBody, Joined, Notice, SessionsEnded
from parley.errors import Refusal
from parley.model import Action, Appended, Change, Draft, Head, Outcome, Persisted, Role, StoredEntry
from parley.store.ports import DRAFTS_PER_APPEND_MAX

text = st.text(st.characters(codec="utf-8"), max_size=30)
optional_text = st.none() | text
keys = st.none() | st.binary(min_size=16, max_size=16)
changes = st.builds(Change, st.sampled_from(Action), text, st.sampled_from(Role), text)
drafts = st.builds(
    Draft,
    chat_id=text,
    sender_id=text,
    content=text,
    content_type=text,
    client_message_id=optional_text,
    client_key=keys,
    display_time=optional_text,
    after_key=keys,
    kind=text,
    change=st.none() | changes,
    request_id=text,
)
outcomes: st.SearchStrategy[Outcome] = st.builds(
    Appended,
    message_id=text,
    sequence=st.integers(1, 2**53),
    epoch=st.integers(1, 9),
    created_at=text,
    deduplicated=st.booleans(),
    conflict=st.booleans(),
) | st.builds(Refusal, text, text, st.booleans(), st.none() | st.integers(0, 9999), st.integers(400, 599))
notices: st.SearchStrategy[Notice] = st.builds(
    Joined, text, text, st.builds(Head, st.integers(0, 9), st.integers(0, 2**53)), st.lists(text)
) | st.builds(SessionsEnded, text, st.lists(text))


@given(st.lists(drafts, min_size=1, max_size=5))
def test_drafts_travel_as_they_are(batch: list[Draft]) -> None:
    """Every field of every draft arrives."""
    assert bodies.read_drafts(bodies.pack(batch)) == batch


@given(st.lists(outcomes, max_size=5))
def test_outcomes_travel_as_they_are(told: list[Outcome]) -> None:
    """Positions and refusals arrive as what they are, in order."""
    assert bodies.read_outcomes(bodies.pack_outcomes(told), len(told)) == told


@given(st.lists(notices, max_size=5))
def test_notices_travel_as_they_are(told: list[Notice]) -> None:
    """Every kind of notice arrives as what it is."""
    assert bodies.read_notices(bodies.pack(told)) == told


@given(st.binary(max_size=200))
def test_nonsense_is_refused(body: bytes) -> None:
    """Any bytes are either a batch or a BadBody, and nothing else."""
    for read in (bodies.read_drafts, bodies.read_notices, bodies.read_news):
        with contextlib.suppress(BadBody):
            assert isinstance(read(body), list)


@pytest.mark.parametrize("count", [0, DRAFTS_PER_APPEND_MAX + 1])
def test_a_batch_is_neither_empty_nor_too_long(count: int) -> None:
    """A batch has as many drafts as a node may forward at once."""
    with pytest.raises(BadBody):
        bodies.read_drafts(bodies.pack([Draft(chat_id="c", sender_id="s", content="x")] * count))


def test_news_comes_back_as_the_same_bytes() -> None:
    """Entries travel between nodes as they are stored, with voids and what an entry changes."""
    change = Change(Action.JOINED, "user_2", Role.ADMIN)
    positions = [StoredEntry(1, b'{"a": 1}', change, "conn_7.42"), StoredEntry(2, None)]
    news = [Persisted("chat_1", 3, positions, told_by="n1")]
    assert bodies.read_news(bodies.pack(news)) == news


@pytest.mark.parametrize("sequences", [[], [2, 1], [1, 1]])
def test_news_without_order_is_refused(sequences: list[int]) -> None:
    """A hub takes positions that ascend."""
    news = [Persisted("chat_1", 1, [StoredEntry(sequence, b"{}") for sequence in sequences])]
    with pytest.raises(BadBody):
        bodies.read_news(bodies.pack(news))


@pytest.mark.parametrize("told", [[], [{}], [{"appended": None}], [{"refusal": {"code": 1}}]])
def test_outcomes_that_do_not_fit_are_refused(told: list[object]) -> None:
    """One draft has one outcome, which is a position or a refusal."""
    with pytest.raises(BadBody):
        bodies.read_outcomes(msgspec.msgpack.encode(told), 1)


def test_a_newer_node_is_understood() -> None:
    """A field that this version does not know is passed over, so that nodes can be upgraded in turn."""
    newer = {"chat_id": "c", "sender_id": "s", "content": "x", "from_the_future": 1}
    (draft,) = bodies.read_drafts(msgspec.msgpack.encode([newer]))
    assert draft == Draft(chat_id="c", sender_id="s", content="x")
