"""The `Directory` of chats in memory."""

from __future__ import annotations

from collections.abc import Sequence

from parley.core.permissions import decide_creation
from parley.errors import BLOCKED, Refused
from parley.model import ChatMember, ChatType, Role, StoredChat
from parley.store.consent import has_blocked
from tests.memory.tables import Tables


class MemoryDirectory:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def create_chat(self, chat: StoredChat, member_ids: Sequence[str]) -> tuple[StoredChat, bool]:
        tables, people = self._tables, tuple(sorted({*member_ids, chat.created_by}))
        if chat.chat_type is ChatType.DIRECT:
            if any(has_blocked(tables.said(person), chat.created_by) for person in people):
                raise Refused(BLOCKED)
            for row in tables.chats.values():
                if row.pair == people:
                    return row.chat, False
        facts = {person: tables.join_facts(chat.created_by, person) for person in people}
        if (refusal := decide_creation(chat.created_by, facts)) is not None:
            raise Refused(refusal)
        tables.add_chat(chat, people)
        return chat, True

    async def chat(self, chat_id: str) -> StoredChat | None:
        row = self._tables.chats.get(chat_id)
        return None if row is None else row.chat

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        row = self._tables.chats.get(chat_id)
        return None if row is None else row.role(user_id)

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[ChatMember]:
        row = self._tables.chats.get(chat_id)
        members = sorted(row.members.items()) if row is not None else []
        return [member for user_id, member in members if user_id > after_user_id][:limit]

    async def member_count(self, chat_id: str) -> int:
        row = self._tables.chats.get(chat_id)
        return 0 if row is None else len(row.members)

    async def chat_ids_of(self, user_id: str, *, unasked: bool = False) -> list[str]:
        chats = self._tables.chats
        return [one for one in self._tables.chats_of(user_id) if not unasked or user_id in chats[one].unasked]

    async def sharing_chats(self, user_id: str, others: Sequence[str]) -> set[str]:
        chats = self._tables.chats
        known = {other for one in self._tables.chats_of(user_id) for other in chats[one].members}
        return known & set(others)

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """Every append reads what is stored."""
