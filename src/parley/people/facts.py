"""What has to be known of a chat to tell its members something in passing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from parley.clock import Clock
from parley.model import ChatType, ReadReceipts
from parley.people.remembering import Remembered
from parley.store.ports import Directory


class Facts(Struct, frozen=True):
    chat_type: ChatType
    member_count: int
    read_receipts: ReadReceipts


class ChatFacts(Remembered[Facts]):
    """By chat. Forgotten when the chat's members or settings change."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        super().__init__(self._read_facts, clock)
        self._directory = directory

    async def _read_facts(self, chat_ids: Sequence[str]) -> dict[str, Facts]:
        found = await asyncio.gather(*map(self._facts, chat_ids))
        return {chat_id: facts for chat_id, facts in zip(chat_ids, found, strict=True) if facts is not None}

    async def _facts(self, chat_id: str) -> Facts | None:
        chat = await self._directory.chat(chat_id)
        if chat is None:
            return None
        return Facts(chat.chat_type, await self._directory.member_count(chat_id), chat.read_receipts)
