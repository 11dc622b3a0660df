"""Names and ids that a person types, looked up in the store."""

from __future__ import annotations

from parley.cli.places import CommandFailed
from parley.records.listing import Listing
from parley.store.rows import ListedChat

CANDIDATES_LISTED_MAX = 5


async def require_user(listing: Listing, name: str) -> str:
    """The user_id of a name or id."""
    user_id = await listing.user_id_of(name)
    if user_id is None:
        raise CommandFailed(
            f"there is no user {name}\nparley user list shows all users; parley user add {name} adds this one"
        )
    return user_id


async def require_chat(listing: Listing, name: str) -> ListedChat:
    """The only chat with this name."""
    found = await listing.find_chats(name)
    if not found:
        raise CommandFailed(f"there is no chat {name}\nparley chat list shows all chats")
    if len(found) > 1:
        some = "\n".join(chat.chat_id for chat in found[:CANDIDATES_LISTED_MAX])
        raise CommandFailed(f"several chats are called {name}; use one of these ids:\n{some}")
    return found[0]
