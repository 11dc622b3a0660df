"""Bounded caches of the store, for paths that must not read it each time.

A signal that a value changed drops it from the cache. Signals may be lost, so a value also expires soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from parley.clock import Clock
from parley.model import ChatType, ReadReceipts
from parley.store.ports import Directory

ENTRIES_MAX = 20_000
EXPIRES_MS = 30_000

Value = TypeVar("Value")


class ReadCache(Generic[Value]):
    """Values by id, read together when they are missing."""

    def __init__(
        self,
        read: Callable[[Sequence[str]], Awaitable[dict[str, Value]]],
        clock: Clock,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._read = read
        self._clock = clock
        self._entries_max = entries_max
        self._entries: dict[str, tuple[Value, int]] = {}
        self._changes = 0
        """Counts calls of `forget`: a value that was read before such a call is not cached after it."""

    def known(self, key: str) -> Value | None:
        """The value, if it is cached and has not expired."""
        found = self._entries.get(key)
        return found[0] if found is not None and found[1] > self._clock() else None

    async def get(self, keys: Iterable[str]) -> dict[str, Value]:
        """The values of these keys, cached or read. Keys that do not exist are left out."""
        found: dict[str, Value] = {}
        unknown: list[str] = []
        for key in keys:
            value = self.known(key)
            if value is None:
                unknown.append(key)
            else:
                found[key] = value
        if unknown:
            found |= await self._read_missing(unknown)
        return found

    async def one(self, key: str) -> Value | None:
        return (await self.get((key,))).get(key)

    async def _read_missing(self, keys: list[str]) -> dict[str, Value]:
        changes = self._changes
        read = await self._read(keys)
        if changes == self._changes:
            until = self._clock() + EXPIRES_MS
            for key, value in read.items():
                self._entries.pop(key, None)
                self._entries[key] = value, until
            while len(self._entries) > self._entries_max:
                del self._entries[next(iter(self._entries))]
        return read

    def forget(self, key: str) -> None:
        """Its value has changed."""
        self._entries.pop(key, None)
        self._changes += 1

    def forget_all(self) -> None:
        """Signals may have been lost."""
        self._entries.clear()
        self._changes += 1


class ChatFacts(Struct, frozen=True):
    """What receipts and typing need to know about a chat."""

    chat_type: ChatType
    member_count: int
    read_receipts: ReadReceipts


class ChatFactsCache(ReadCache[ChatFacts]):
    """By chat. Forgotten when the chat's members or settings change."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        super().__init__(self._read_facts, clock)
        self._directory = directory

    async def _read_facts(self, chat_ids: Sequence[str]) -> dict[str, ChatFacts]:
        found = await asyncio.gather(*map(self._read_chat, chat_ids))
        return {chat_id: facts for chat_id, facts in zip(chat_ids, found, strict=True) if facts is not None}

    async def _read_chat(self, chat_id: str) -> ChatFacts | None:
        chat = await self._directory.chat(chat_id)
        if chat is None:
            return None
        return ChatFacts(chat.chat_type, await self._directory.member_count(chat_id), chat.read_receipts)
