"""Whom a client watches, and what it remembers of those it asked for."""

from parley.client.events import RequestFailed
from parley.errors import BAD_REQUEST, RATE_LIMITED
from parley.wire.frames import (
    PresenceChanged,
    PresenceState,
    PresenceSubscribe,
    PresenceView,
    answer_to,
    refused,
)
from tests.unit.client.harness import Harness, of

BEN, CAS = "user_ben", "user_cas"
HERE = PresenceView(BEN, "online", None)


def connected() -> Harness:
    harness = Harness()
    harness.connect()
    harness.answer_overview()
    return harness


def subscriptions(harness: Harness, pass_ms: int = 0) -> list[PresenceSubscribe]:
    frames = of(PresenceSubscribe, harness.pass_time(pass_ms))
    return [frame for frame in frames if isinstance(frame, PresenceSubscribe)]


def test_nobody_is_watched_without_being_asked_for() -> None:
    """A client that shows no presence asks for none."""
    assert subscriptions(connected()) == []


def test_the_watched_are_told_to_the_server_once() -> None:
    """And again only when it is other people."""
    harness = connected()
    presences = harness.core.presence
    presences.watch([BEN, CAS, BEN])
    (asked,) = subscriptions(harness)
    assert asked.user_ids == [BEN, CAS]
    presences.watch([BEN, CAS])
    assert subscriptions(harness) == []
    presences.watch([CAS])
    assert subscriptions(harness)[0].user_ids == [CAS]


def test_the_order_of_the_watched_is_nothing_to_tell() -> None:
    """A chat that is looked at again has the same people."""
    harness = connected()
    presences = harness.core.presence
    presences.watch_chat("chat_1", [BEN])
    presences.watch_chat("chat_2", [CAS])
    assert len(subscriptions(harness)) == 1
    presences.watch_chat("chat_1", [BEN])
    assert subscriptions(harness) == []


def test_who_is_watched_again_is_asked_for_again() -> None:
    """What was known of them is forgotten, also when it was only for a moment."""
    harness = connected()
    presences = harness.core.presence
    presences.watch([BEN])
    (asked,) = subscriptions(harness)
    harness.receive(PresenceState(re=answer_to(asked.id), presences=[HERE]))
    presences.watch([])
    presences.watch([BEN])
    (again,) = subscriptions(harness)
    harness.receive(PresenceState(re=answer_to(again.id), presences=[HERE]))
    assert presences.get(BEN) == HERE


def test_at_most_five_hundred_are_watched() -> None:
    """Those named by the application first, then those of the chat that was opened last."""
    harness = connected()
    presences = harness.core.presence
    presences.watch_chat("chat_old", [f"user_old{number}" for number in range(400)])
    presences.watch_chat("chat_new", [f"user_new{number}" for number in range(90)])
    presences.watch([f"user_named{number}" for number in range(200)])
    (asked,) = subscriptions(harness)
    kinds = [user_id.rstrip("0123456789").removeprefix("user_") for user_id in asked.user_ids]
    assert [kinds.count(kind) for kind in ("named", "new", "old")] == [200, 90, 210]


def test_a_subscription_that_is_refused_for_now_is_repeated() -> None:
    """One that is refused for good is told."""
    harness = connected()
    harness.core.presence.watch([BEN])
    (asked,) = subscriptions(harness)
    harness.receive(refused(RATE_LIMITED, asked.id))
    assert subscriptions(harness) == []
    (again,) = subscriptions(harness, pass_ms=1_000)
    harness.receive(refused(BAD_REQUEST, again.id))
    assert subscriptions(harness, pass_ms=1_000) == []
    assert [event for event in harness.core.events() if isinstance(event, RequestFailed)]


def test_presence_of_somebody_else_is_not_kept() -> None:
    """What comes late for somebody who is not watched any more is no news."""
    harness = connected()
    harness.core.events()
    harness.receive(PresenceChanged(user_id=BEN, status="online", last_seen=None))
    assert harness.core.presence.get(BEN) is None
    assert harness.core.events() == []


def test_what_was_asked_is_good_for_thirty_seconds() -> None:
    """Then it is asked again."""
    presences = connected().core.presence
    presences.note_queried([HERE], 1_000)
    assert presences.recall(BEN, 30_999) == HERE
    assert presences.recall(BEN, 31_000) is None
    assert presences.recall(CAS, 1_000) is None


def test_what_is_watched_needs_no_question() -> None:
    """As long as there is a connection that tells."""
    harness = connected()
    presences = harness.core.presence
    presences.watch([BEN])
    (asked,) = subscriptions(harness)
    harness.receive(PresenceState(re=answer_to(asked.id), presences=[HERE]))
    assert presences.recall(BEN, 10**9) == HERE
    harness.core.disconnected()
    assert presences.recall(BEN, 10**9) is None
    assert presences.get(BEN) == HERE


def test_the_memory_of_questions_is_bounded() -> None:
    """The oldest is forgotten first."""
    presences = connected().core.presence
    presences.note_queried((PresenceView(f"user_{number}", "offline", None) for number in range(10_001)), 0)
    assert presences.recall("user_0", 0) is None
    assert presences.recall("user_1", 0) is not None
