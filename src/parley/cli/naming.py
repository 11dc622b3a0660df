"""Whom and what a person means: names and ids of people and chats, looked up in the store."""

from __future__ import annotations

from parley.cli.places import CommandFailed
from parley.cli.records import Listing
from parley.store.listed import ListedChat

CANDIDATES_TOLD_MAX = 5


def require_user(records: Listing, name: str) -> str:
    """The user_id of a name or id."""
    user_id = records.user_id_of(name)
    if user_id is None:
        raise CommandFailed(
            f"there is nobody called {name}"
            f"\nparley user list shows everybody; parley user add {name} makes them"
        )
    return user_id


def require_chat(records: Listing, name: str) -> ListedChat:
    """The one chat that is meant."""
    found = records.find_chats(name)
    if not found:
        raise CommandFailed(f"there is no chat {name}\nparley chat list shows all of them")
    if len(found) > 1:
        some = "\n".join(chat.chat_id for chat in found[:CANDIDATES_TOLD_MAX])
        raise CommandFailed(f"several chats are called {name}; say which by its id:\n{some}")
    return found[0]
