"""The `ChatListing` port on SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from parley.store.rows import ListedChat, ListedMember
from parley.store.rules import SAME_TITLE_MAX
from parley.store.sqlite.command_connection import command_connection

CHATS = """
SELECT chats.chat_id, chat_type, name,
    (SELECT count(*) FROM chat_memberships AS m WHERE m.chat_id = chats.chat_id),
    (SELECT sequence_counter FROM chat_counters AS c WHERE c.chat_id = chats.chat_id),
    created_at,
    (SELECT group_concat(username, ', ') FROM (
        SELECT username FROM chat_memberships AS m JOIN users USING (user_id)
        WHERE m.chat_id = chats.chat_id AND chats.chat_type = 'direct' ORDER BY username))
FROM chats
"""
OF_USER = "WHERE chats.chat_id IN (SELECT chat_id FROM chat_memberships WHERE user_id = ?)"
BY_ID = "WHERE chats.chat_id = ?1 OR direct_key = ?1"
BY_TITLE = "WHERE name <> '' AND casefold(name) = casefold(?)"
MEMBERS = """
SELECT m.user_id, username, role, joined_at, joined_sequence,
    coalesce(last_acked_sequence, 0), coalesce(read_up_to, 0)
FROM chat_memberships AS m LEFT JOIN users USING (user_id)
LEFT JOIN delivery_state AS d ON d.user_id = m.user_id AND d.chat_id = m.chat_id
WHERE m.chat_id = ? ORDER BY m.joined_sequence, username
"""


class SqliteListing:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with command_connection(self._folder, read_only=True) as connection:
            connection.create_scalar_function("casefold", cast(Any, str.casefold), 1)
            try:
                return connection.execute(sql, values).fetchall()
            except UnicodeEncodeError:  # what was typed is no text, so no row has it
                return []

    async def chats(self, of_user_id: str | None = None) -> list[ListedChat]:
        return self._chats("") if of_user_id is None else self._chats(OF_USER, of_user_id)

    async def find_chats(self, name: str) -> list[ListedChat]:
        return self._chats(BY_ID, name) or self._chats(BY_TITLE, name)[:SAME_TITLE_MAX]

    async def members(self, chat_id: str) -> list[ListedMember]:
        return [ListedMember(*row) for row in self._rows(MEMBERS, (chat_id,))]

    def _chats(self, where: str, *values: str) -> list[ListedChat]:
        rows = self._rows(f"{CHATS} {where} ORDER BY created_at, chats.chat_id", values)
        return [
            ListedChat(chat_id, chat_type, name if name is not None else pair, count, counter, created_at)
            for chat_id, chat_type, name, count, counter, created_at, pair in rows
        ]
