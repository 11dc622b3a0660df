"""The list of all chats, for operators: a page at a time, the newest first, and by a part of the title."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence

from msgspec import Struct

from parley import ids
from parley.clock import Clock
from parley.concurrency import map_concurrently
from parley.errors import TOO_LARGE, Refused
from parley.gateway.engine_beside import EngineBeside
from parley.model import ChatType, StoredChat
from parley.records.listing import Listing
from parley.store.ports import Directory, Engine
from parley.store.rules import folded

LOOKED_AT_MAX = 1_000
"""Chats whose titles a page of a search reads."""
LIST_SECONDS_MAX = 3.5
READS_AT_ONCE_MAX = 16
TOO_MANY = TOO_LARGE.because("listing these chats takes longer than a request may; run: parley chat list")


class FoundChats(Struct, frozen=True):
    """`next_after`: where the next page begins; None on the last one."""

    chats: list[StoredChat]
    next_after: str | None


class ChatFinder:
    def __init__(self, beside: EngineBeside, directory: Directory, clock: Clock) -> None:
        self._beside = beside
        self._directory = directory
        self._clock = clock

    async def find(self, query: str, chat_type: ChatType | None, after: str, limit: int) -> FoundChats:
        """The chat with this id, or the direct chat of `ann,ben`; else those whose title contains the query,
        or all without one. A page of a search may be short although others follow.
        """
        if query and not after:
            named = await self._named(query)
            if named:
                return FoundChats([one for one in named if chat_type in (None, one.chat_type)], None)
        looked_at = LOOKED_AT_MAX if query else limit
        chat_ids = await self._beside.ask(lambda engine: _newest(engine, chat_type, after, looked_at + 1))
        some, is_more = chat_ids[:looked_at], len(chat_ids) > looked_at
        wanted, found = folded(query), list[StoredChat]()
        for first in range(0, len(some), limit):
            for chat in await self._chats(some[first : first + limit]):
                if wanted in folded(chat.title or ""):
                    found.append(chat)
                    if len(found) == limit and chat.chat_id != some[-1]:
                        return FoundChats(found, chat.chat_id)
        return FoundChats(found, some[-1] if is_more else None)

    async def _named(self, query: str) -> list[StoredChat]:
        if query.startswith(ids.CHAT):
            return await self._chats([query])
        if "," not in query:
            return []
        listed = await self._beside.ask(lambda engine: Listing(engine, self._clock).find_chats(query))
        return [chat for chat in await self._chats([one.chat_id for one in listed]) if chat.title is None]

    async def _chats(self, chat_ids: Sequence[str]) -> list[StoredChat]:
        found = await map_concurrently(self._directory.chat, chat_ids, READS_AT_ONCE_MAX)
        return [chat for chat in found if chat is not None]


async def _newest(engine: Engine, chat_type: ChatType | None, after: str, count: int) -> list[str]:
    """The ids of the newest chats older than one, the newest first, however many there are: ids are in the
    order in which chats were made.
    """
    time = asyncio.get_running_loop().time
    give_up_at, newest = time() + LIST_SECONDS_MAX, list[str]()
    async for page in engine.inspection.chats(None):
        fitting = (
            row.chat_id
            for row in page
            if (not after or row.chat_id < after) and chat_type in (None, row.chat_type)
        )
        newest = heapq.nlargest(count, [*newest, *fitting])
        if time() > give_up_at:
            raise Refused(TOO_MANY)
    return newest
