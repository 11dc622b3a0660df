"""Which chats ask the log, and which wait for room."""

import itertools

from parley.client.inbox import Budget, Inbox
from parley.client.keeping import Cursor
from parley.client.pace import Pace
from parley.client.syncing import Syncing
from parley.client.timers import Timers
from parley.client.timing import Timing
from tests.unit.client.test_inbox import batch, found


def syncing() -> Syncing:
    timing, timers = Timing(), Timers()
    return Syncing(timing, timers, Pace(timing, timers), itertools.count(1).__next__, lambda: 0.0)


def full(budget: Budget) -> Inbox:
    """A chat that has taken all the room there is."""
    inbox = Inbox("chat_full", Cursor(), budget)
    inbox.page(batch(found(1, 2), 2), found(1, 2))
    assert not inbox.has_room
    return inbox


def test_a_chat_without_room_asks_when_there_is_some() -> None:
    """Somebody took an entry of another chat with the same budget."""
    budget, asking = Budget(entries_max=2), syncing()
    other, waiting = full(budget), Inbox("chat_1", Cursor(), budget)
    asking.consider(waiting)
    assert asking.requests(0) == []
    other.take()
    assert [request.chat_id for request in asking.requests(0)] == ["chat_1"]


def test_room_that_is_given_back_is_room() -> None:
    """The other chat is read no more, or its log was started over: nothing is taken from it."""
    budget, asking = Budget(entries_max=2), syncing()
    other, waiting = full(budget), Inbox("chat_1", Cursor(), budget)
    asking.consider(waiting)
    assert asking.requests(0) == []
    other.release()
    assert [request.chat_id for request in asking.requests(0)] == ["chat_1"]


def test_what_is_held_leaves_room_for_what_is_missing() -> None:
    """However many small entries come too early, the page that makes them ready is still asked for."""
    asking, inbox = syncing(), Inbox("chat_1", Cursor(1), Budget(entries_max=8))
    inbox.live(1, found(*range(2, 30)))
    asking.consider(inbox)
    assert len(asking.requests(0)) == 1
