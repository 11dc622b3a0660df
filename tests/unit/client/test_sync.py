"""Which chats ask for pages of their logs, and which wait for room."""

from parley.client.chat_model import ChatModel
from parley.client.inbox import Budget, Inbox
from parley.client.storage import Cursor
from parley.wire.frames import SyncRequest
from tests.unit.client.harness import Harness
from tests.unit.client.test_inbox import batch, slots


def connected() -> Harness:
    harness = Harness()
    harness.connect()
    harness.answer_overview()
    return harness


def reading(harness: Harness, chat_id: str, budget: Budget, cursor: Cursor | None = None) -> ChatModel:
    """A chat that is read, and may want a page."""
    chat = harness.core.chat(chat_id)
    chat.inbox = Inbox(chat_id, cursor or Cursor(), budget)
    harness.core.sync.note_head(chat, 1, None)
    return chat


def full(harness: Harness, budget: Budget) -> ChatModel:
    """A chat that has taken all the room there is."""
    chat = harness.core.chat("chat_full")
    chat.inbox = Inbox("chat_full", Cursor(), budget)
    chat.inbox.receive_page(batch(slots(1, 2), 2), slots(1, 2))
    assert not chat.inbox.has_room
    return chat


def asked(harness: Harness) -> list[str]:
    """The chats of which pages are asked for now."""
    return [frame.chat for frame in harness.frames() if isinstance(frame, SyncRequest)]


def test_a_chat_without_room_asks_when_there_is_some() -> None:
    """Somebody took an entry of another chat with the same budget."""
    budget, harness = Budget(entries_max=2), connected()
    other = full(harness, budget)
    reading(harness, "chat_1", budget)
    assert asked(harness) == []
    harness.core.take(other, 0)
    assert asked(harness) == ["chat_1"]


def test_room_that_is_given_back_is_room() -> None:
    """The other chat is read no more, or its log was started over: nothing is taken from it."""
    budget, harness = Budget(entries_max=2), connected()
    other = full(harness, budget)
    reading(harness, "chat_1", budget)
    assert asked(harness) == []
    harness.core.stop(other)
    assert asked(harness) == ["chat_1"]


def test_what_is_held_leaves_room_for_what_is_missing() -> None:
    """However many small entries come too early, the page that makes them ready is still asked for."""
    harness = connected()
    chat = reading(harness, "chat_1", Budget(entries_max=8), Cursor(1))
    harness.core.sync.receive_live(chat, 1, slots(*range(2, 30)))
    assert asked(harness) == ["chat_1"]
