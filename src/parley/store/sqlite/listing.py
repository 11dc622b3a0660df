"""What an operator asks the store: who is there, which chats, who is in them. Read as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from parley.store.listed import ListedChat, ListedMember, ListedUser

USERS = """
SELECT user_id, username, display_name, is_operator, created_at,
    (SELECT count(*) FROM chat_memberships AS m WHERE m.user_id = users.user_id),
    (SELECT count(*) FROM sessions AS s WHERE s.user_id = users.user_id AND s.expires_at_ms > ?)
FROM users ORDER BY username
"""
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
OF_USER = " WHERE chats.chat_id IN (SELECT chat_id FROM chat_memberships WHERE user_id = ?)"
BY_ID = " WHERE chats.chat_id = ?"
BY_TITLE = " WHERE name = ? COLLATE NOCASE ORDER BY chat_no LIMIT 10"
BY_PAIR = (
    " WHERE direct_key = (SELECT group_concat(user_id, '|') FROM"
    " (SELECT user_id FROM users WHERE username IN (?, ?) ORDER BY user_id))"
)
MEMBERS = """
SELECT m.user_id, username, role, joined_at, joined_sequence,
    coalesce(last_acked_sequence, 0), coalesce(read_up_to, 0)
FROM chat_memberships AS m LEFT JOIN users USING (user_id)
LEFT JOIN delivery_state AS d ON d.user_id = m.user_id AND d.chat_id = m.chat_id
WHERE m.chat_id = ? ORDER BY m.joined_sequence, username
"""


def users(connection: apsw.Connection, now_ms: int) -> Iterator[ListedUser]:
    rows: Any = connection.execute(USERS, (now_ms,))
    for user_id, username, display_name, is_operator, *rest in rows:
        yield ListedUser(user_id, username, display_name, bool(is_operator), *rest)


def user_id_of(connection: apsw.Connection, name: str) -> str | None:
    """The person of this username or id."""
    found: Any = connection.execute(
        "SELECT user_id FROM users WHERE username = ?1 OR user_id = ?1", (name,)
    ).get
    return None if found is None else str(found)


def chats(connection: apsw.Connection, of_user_id: str | None = None) -> Iterator[ListedChat]:
    if of_user_id is None:
        yield from _chats(connection, " ORDER BY chat_no", ())
    else:
        yield from _chats(connection, f"{OF_USER} ORDER BY chat_no", (of_user_id,))


def find_chats(connection: apsw.Connection, name: str) -> list[ListedChat]:
    """The chats that a person may mean: by id, else by title, else `alice,bob` for their direct chat."""
    found = list(_chats(connection, BY_ID, (name,))) or list(_chats(connection, BY_TITLE, (name,)))
    one, comma, other = name.partition(",")
    if not found and comma:
        found = list(_chats(connection, BY_PAIR, (one.strip(), other.strip())))
    return found


def members(connection: apsw.Connection, chat_id: str) -> list[ListedMember]:
    rows: Any = connection.execute(MEMBERS, (chat_id,))
    return [ListedMember(*row) for row in rows]


def _chats(connection: apsw.Connection, where: str, values: tuple[str, ...]) -> Iterator[ListedChat]:
    rows: Any = connection.execute(CHATS + where, values)
    for chat_id, chat_type, name, count, counter, created_at, pair in rows:
        yield ListedChat(chat_id, chat_type, name if name is not None else pair, count, counter, created_at)
