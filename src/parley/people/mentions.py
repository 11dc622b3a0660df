"""How many unread messages mention a person: looked up when a chat list is asked for, kept nowhere.

A send does nothing for it. Of a chat only the newest unread positions are read, and of these only what has
the person's id in it is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.concurrency import map_concurrently
from parley.model import Kind
from parley.store.ports import Log
from parley.wire.codec import decode_entry
from parley.wire.frames import OverviewChat
from parley.wire.limits import MENTIONS_LOOKED_AT_MAX

READ_AT_ONCE_MAX = 8


class UnreadMentions:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def count(self, user_id: str, chats: Sequence[OverviewChat]) -> list[int]:
        """For each of these rows of a person's chat list."""

        async def count(chat: OverviewChat) -> int:
            return await self._in_chat(user_id, chat) if chat.unread else 0

        return await map_concurrently(count, chats, READ_AT_ONCE_MAX)

    async def _in_chat(self, user_id: str, chat: OverviewChat) -> int:
        at = max(chat.read_up_to, chat.head - MENTIONS_LOOKED_AT_MAX)
        found, needle = 0, user_id.encode()
        while at < chat.head:
            page = await self._log.read(chat.chat_id, at, chat.head - at)
            found += sum(needle in wire and is_mention(user_id, wire) for wire in page.entries)
            if page.to_sequence <= at:
                break  # a number is still open
            at = page.to_sequence
        return found


def is_mention(user_id: str, wire: bytes) -> bool:
    """Whether an entry is a message of somebody else that mentions this person and was not deleted."""
    entry = decode_entry(wire)
    is_message = entry.kind == Kind.MESSAGE.value and entry.deleted is not True
    return is_message and entry.sender_id != user_id and user_id in (entry.mentions or ())
