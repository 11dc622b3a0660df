"""What a node remembers of a chat, as its item is seen again."""

from parley.store.dynamodb.chat_state import DynamoChatState
from parley.store.dynamodb.driver import Item


def chat(epoch: int, last: int, resolved: int, trimmed: int = 0) -> Item:
    """The item of a chat whose log is at this point."""
    return {
        "chat_id": "chat_1",
        "chat_type": "group",
        "epoch": epoch,
        "last_sequence": last,
        "resolved_through": resolved,
        "trimmed_through": trimmed,
        "membership_revision": "evt_1",
    }


async def test_what_is_seen_late_takes_nothing_back() -> None:
    """An older item of the same log lowers nothing that is known of it."""
    state = DynamoChatState(chat(1, 9, 8, 3))
    state.see(chat(1, 5, 4, 2))
    assert (state.head, state.resolved, state.trimmed, state.is_stale) == (9, 8, 3, False)


async def test_nothing_of_a_log_is_known_in_its_next_epoch() -> None:
    """A log that was rebuilt starts over: neither its end, nor keys, nor what was resolved still counts."""
    state = DynamoChatState(chat(1, 9, 8, 3))
    state.last_keys["user_1"] = b"key"
    state.see(chat(2, 1, 1))
    assert (state.epoch, state.head, state.resolved, state.trimmed) == (2, 1, 1, 0)
    assert (state.last_keys, state.is_stale) == ({}, True)
