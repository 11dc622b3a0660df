"""The `Relations` port on SQLite. One or two statements answer for many people."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from parley.errors import NO_SUCH_USER, Refused
from parley.model import RelatedUser, Relation, Relationship, User, Visibility
from parley.store.rules import RELATIONS_MAX, TOO_MANY_RELATED, direct_key
from parley.store.sqlite.chat_state import SqliteChatStates
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer
from parley.store.tables import PEOPLE, user_of

PEOPLE_PER_SLICE = 32
"""So many are looked at without giving way to others: about half a millisecond."""

SINCE = {Relation.CONTACT: "contact_since", Relation.BLOCK: "blocked_since"}
"""The column of each relation."""

WANTED = (
    "json_each(?1) AS wanted CROSS JOIN records AS people"
    " ON people.kind = 'people' AND people.partition = wanted.value AND people.place = '-'"
)
"""CROSS JOIN: SQLite must start with these ids, not scan all people."""
PROFILES = f"SELECT record, number FROM {WANTED}"
RELATIONSHIPS = f"""
SELECT people.partition, record, number,
    mine.contact_since, theirs.contact_since, mine.blocked_since, theirs.blocked_since
FROM {WANTED}
LEFT JOIN relations AS mine ON mine.user_id = ?2 AND mine.other_id = people.partition
LEFT JOIN relations AS theirs ON theirs.user_id = people.partition AND theirs.other_id = ?2
"""
# From their chats to mine: a stranger has few, while a viewer may have created thousands to slow this down.
SHARING_A_CHAT = """
SELECT wanted.value FROM json_each(?1) AS wanted WHERE EXISTS (
    SELECT 1 FROM chat_memberships AS theirs CROSS JOIN chat_memberships AS mine
    ON mine.user_id = ?2 AND mine.chat_id = theirs.chat_id WHERE theirs.user_id = wanted.value
)
"""
BLOCKED_BY = """
SELECT relations.user_id, other_id FROM json_each(?1) AS wanted
CROSS JOIN relations INDEXED BY blocked_by_user ON relations.user_id = wanted.value
WHERE blocked_since IS NOT NULL
"""
FORGET_EMPTY = (
    "DELETE FROM relations WHERE user_id = ? AND other_id = ?"
    " AND contact_since IS NULL AND blocked_since IS NULL"
)


class SqliteRelations:
    def __init__(self, reads: Reads, writer: Writer, states: SqliteChatStates) -> None:
        self._reads = reads
        self._writer = writer
        self._states = states

    async def set_relation(
        self, user_id: str, other_id: str, relation: Relation, since: str | None
    ) -> str | None:
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
        """Decide again, from this transaction on, whether the other may append to the direct chat."""
        key = direct_key([user_id, other_id])
        row: Any = transaction.execute("SELECT chat_id FROM chats WHERE direct_key = ?", (key,)).fetchone()
        if row is not None:
            self._states.forget_sender(row[0], other_id)

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[RelatedUser]:
        since = SINCE[relation]
        rows = self._reads.rows(
            f"SELECT other_id, {since} FROM relations WHERE user_id = ? AND other_id > ?"
            f" AND {since} IS NOT NULL ORDER BY other_id LIMIT ?",
            (user_id, after_user_id, limit),
        )
        return [RelatedUser(*row) for row in rows]

    async def relationships(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Relationship]:
        found: dict[str, Relationship] = {}
        for start in range(0, len(user_ids), PEOPLE_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            found |= self._relationships(viewer_id, user_ids[start : start + PEOPLE_PER_SLICE], acquainted)
        return found

    def _relationships(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool
    ) -> dict[str, Relationship]:
        rows = self._reads.rows(RELATIONSHIPS, (_json_ids(user_ids), viewer_id))
        if acquainted:
            known = {row[0] for row in rows}
        else:
            strangers = [row[0] for row in rows if not _are_contacts(row)]
            known = {row[0] for row in rows if _are_contacts(row)} | self._sharing_a_chat(
                viewer_id, strangers
            )
        return {row[0]: _relationship(row, row[0] in known) for row in rows}

    def _sharing_a_chat(self, viewer_id: str, user_ids: list[str]) -> set[str]:
        if not user_ids:
            return set()
        return {user_id for (user_id,) in self._reads.rows(SHARING_A_CHAT, (_json_ids(user_ids), viewer_id))}

    async def visibility(self, user_ids: Sequence[str]) -> dict[str, Visibility]:
        wanted = _json_ids(user_ids)
        blocked: dict[str, list[str]] = {}
        for user_id, other_id in self._reads.rows(BLOCKED_BY, (wanted,)):
            blocked.setdefault(user_id, []).append(other_id)
        people = [user_of(PEOPLE.decode(*row)) for row in self._reads.rows(PROFILES, (wanted,))]
        return {
            user.user_id: Visibility(
                user.send_read_receipts, frozenset(blocked.get(user.user_id, ())), user.is_bot
            )
            for user in people
        }

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        people = [user_of(PEOPLE.decode(*row)) for row in self._reads.rows(PROFILES, (_json_ids(user_ids),))]
        return {user.user_id: user for user in people}


def _json_ids(user_ids: Iterable[str]) -> str:
    """The ids without duplicates, as a JSON list. SQLite would cut an id at a NUL; no existing id has one."""
    wanted = [user_id for user_id in dict.fromkeys(user_ids) if "\0" not in user_id]
    return msgspec.json.encode(wanted).decode()


def _are_contacts(row: Row) -> bool:
    """Each of the other."""
    mine, theirs = row[3:5]
    return mine is not None and theirs is not None


def _relationship(row: Row, is_acquainted: bool) -> Relationship:
    _, record, number, *since = row
    is_contact, has_contact, is_blocked, has_blocked = [when is not None for when in since]
    user = user_of(PEOPLE.decode(record, number))
    return Relationship(user, is_contact, has_contact, is_blocked, has_blocked, is_acquainted)


def _begin(transaction: Transaction, user_id: str, other_id: str, relation: Relation, since: str) -> str:
    """Returns since when the relation holds: now, or earlier."""
    column = SINCE[relation]
    wanted = _json_ids([user_id, other_id])
    people: Any = transaction.execute(f"SELECT count(*) FROM {WANTED}", (wanted,)).get
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
