"""The `Relations` port on SQLite. What many people are asked about is answered in one or two statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from parley.errors import NO_SUCH_USER, Refused
from parley.model import Manners, Regard, Related, Relation, User
from parley.store.rules import RELATIONS_MAX, TOO_MANY_RELATED, direct_key
from parley.store.sqlite.accounts import USER_COLUMNS, USER_COLUMNS_COUNT, user_of
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.states import ChatStates
from parley.store.sqlite.writer import Transaction, Writer

SINCE = {Relation.CONTACT: "contact_since", Relation.BLOCK: "blocked_since"}
"""The column of each relation."""

ASKED = "json_each(?1) AS asked CROSS JOIN users ON users.user_id = asked.value"
"""From the ids that were asked about to the people, not through all people."""
PROFILES = f"SELECT {USER_COLUMNS} FROM {ASKED}"
REGARDS = f"""
SELECT {USER_COLUMNS}, mine.contact_since, theirs.contact_since, mine.blocked_since, theirs.blocked_since
FROM {ASKED}
LEFT JOIN relations AS mine ON mine.user_id = ?2 AND mine.other_id = users.user_id
LEFT JOIN relations AS theirs ON theirs.user_id = users.user_id AND theirs.other_id = ?2
"""
# From their chats to mine: a stranger has few, while whoever asks may have made thousands to be slow.
SHARING_A_CHAT = """
SELECT asked.value FROM json_each(?1) AS asked WHERE EXISTS (
    SELECT 1 FROM chat_memberships AS theirs CROSS JOIN chat_memberships AS mine
    ON mine.user_id = ?2 AND mine.chat_id = theirs.chat_id WHERE theirs.user_id = asked.value
)
"""
BLOCKED_BY = """
SELECT relations.user_id, other_id FROM json_each(?1) AS asked
CROSS JOIN relations INDEXED BY blocked_by_user ON relations.user_id = asked.value
WHERE blocked_since IS NOT NULL
"""
FORGET_EMPTY = (
    "DELETE FROM relations WHERE user_id = ? AND other_id = ?"
    " AND contact_since IS NULL AND blocked_since IS NULL"
)


class SqliteRelations:
    def __init__(self, reads: Reads, writer: Writer, states: ChatStates) -> None:
        self._reads = reads
        self._writer = writer
        self._states = states

    async def relate(self, user_id: str, other_id: str, relation: Relation, since: str | None) -> str | None:
        return await self._writer.run(lambda tx: self._relate(tx, user_id, other_id, relation, since))

    def _relate(
        self, transaction: Transaction, user_id: str, other_id: str, relation: Relation, since: str | None
    ) -> str | None:
        if since is None:
            _end(transaction, user_id, other_id, relation)
        else:
            since = _begin(transaction, user_id, other_id, relation, since)
        if relation is Relation.BLOCK:
            self._forget_sender(transaction, user_id, other_id)
        return since

    def _forget_sender(self, transaction: Transaction, user_id: str, other_id: str) -> None:
        """Whether they may append to the direct chat is decided anew, in this transaction already."""
        key = direct_key([user_id, other_id])
        row: Any = transaction.execute("SELECT chat_id FROM chats WHERE direct_key = ?", (key,)).fetchone()
        if row is not None:
            self._states.forget_person(row[0], other_id)

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[Related]:
        since = SINCE[relation]
        rows = self._reads.rows(
            f"SELECT other_id, {since} FROM relations WHERE user_id = ? AND other_id > ?"
            f" AND {since} IS NOT NULL ORDER BY other_id LIMIT ?",
            (user_id, after_user_id, limit),
        )
        return [Related(*row) for row in rows]

    async def regards(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Regard]:
        rows = self._reads.rows(REGARDS, (_asked(user_ids), viewer_id))
        if acquainted:
            known = {row[0] for row in rows}
        else:
            strangers = [row[0] for row in rows if not _is_contact(row)]
            known = {row[0] for row in rows if _is_contact(row)} | self._sharing_a_chat(viewer_id, strangers)
        return {row[0]: _regard(row, row[0] in known) for row in rows}

    def _sharing_a_chat(self, viewer_id: str, user_ids: list[str]) -> set[str]:
        if not user_ids:
            return set()
        return {user_id for (user_id,) in self._reads.rows(SHARING_A_CHAT, (_asked(user_ids), viewer_id))}

    async def manners(self, user_ids: Sequence[str]) -> dict[str, Manners]:
        asked = _asked(user_ids)
        blocked: dict[str, list[str]] = {}
        for user_id, other_id in self._reads.rows(BLOCKED_BY, (asked,)):
            blocked.setdefault(user_id, []).append(other_id)
        people = [user_of(row) for row in self._reads.rows(PROFILES, (asked,))]
        return {
            user.user_id: Manners(user.send_read_receipts, frozenset(blocked.get(user.user_id, ())))
            for user in people
        }

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        people = [user_of(row) for row in self._reads.rows(PROFILES, (_asked(user_ids),))]
        return {user.user_id: user for user in people}


def _asked(user_ids: Iterable[str]) -> str:
    """Each id once, as a statement takes a list. None that exists has a NUL, at which SQLite would cut it."""
    asked = [user_id for user_id in dict.fromkeys(user_ids) if "\0" not in user_id]
    return msgspec.json.encode(asked).decode()


def _is_contact(row: Row) -> bool:
    mine, theirs = row[USER_COLUMNS_COUNT : USER_COLUMNS_COUNT + 2]
    return mine is not None or theirs is not None


def _regard(row: Row, is_acquainted: bool) -> Regard:
    since = row[USER_COLUMNS_COUNT:]
    is_contact, has_contact, is_blocked, has_blocked = [when is not None for when in since]
    return Regard(user_of(row), is_contact, has_contact, is_blocked, has_blocked, is_acquainted)


def _begin(transaction: Transaction, user_id: str, other_id: str, relation: Relation, since: str) -> str:
    """Since when it holds: now, or as before."""
    column = SINCE[relation]
    asked = _asked([user_id, other_id])
    people: Any = transaction.execute(f"SELECT count(*) FROM {ASKED}", (asked,)).get
    if people != len({user_id, other_id}):
        raise Refused(NO_SUCH_USER)
    held: Any = transaction.execute(
        f"SELECT count(*), max(CASE WHEN other_id = ?2 THEN {column} END) FROM relations"
        f" WHERE user_id = ?1 AND {column} IS NOT NULL",
        (user_id, other_id),
    ).fetchone()
    count, before = held
    if before is not None:
        return str(before)
    if count >= RELATIONS_MAX[relation]:
        raise Refused(TOO_MANY_RELATED[relation])
    transaction.execute(
        f"INSERT INTO relations (user_id, other_id, {column}) VALUES (?, ?, ?)"
        f" ON CONFLICT DO UPDATE SET {column} = excluded.{column}",
        (user_id, other_id, since),
    )
    return since


def _end(transaction: Transaction, user_id: str, other_id: str, relation: Relation) -> None:
    transaction.execute(
        f"UPDATE relations SET {SINCE[relation]} = NULL WHERE user_id = ? AND other_id = ?",
        (user_id, other_id),
    )
    transaction.execute(FORGET_EMPTY, (user_id, other_id))
