"""What must agree between people, their names and their sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from parley.store.invariants import Breach
from parley.store.tables import (
    DELETIONS,
    PEOPLE,
    SESSIONS,
    USER_SESSIONS,
    USERNAMES,
    Key,
    R,
    RecordTable,
    SessionRecord,
    alone,
    listed,
)


class ReadRecords(Protocol):
    """What of `Records` is checked."""

    def scan(self, table: RecordTable[R], partition: str = "") -> AsyncIterator[list[R]]: ...

    async def get(self, table: RecordTable[R], keys: Sequence[Key]) -> list[R | None]: ...


FREE = "let the person be found again: put their name into usernames, or restore it from a backup"
END = "delete the session: nobody could revoke it"
FORGET = "delete the name from usernames, so that somebody else may take it"


async def account_breaches(records: ReadRecords) -> AsyncIterator[Breach]:
    """What seems wrong is read again: somebody may just be added, or deleted."""
    async for people in records.scan(PEOPLE):
        names = await records.get(USERNAMES, [alone(person.user.username) for person in people])
        for person, name in zip(people, names, strict=True):
            user_id = person.user.user_id
            if (name is None or name.user_id != user_id) and await _is_nameless(records, user_id):
                yield Breach("references", f"people: {user_id} does not have the name of the account", FREE)
    async for taken in records.scan(USERNAMES):
        owners = await records.get(PEOPLE, [alone(name.user_id) for name in taken])
        for name, owner in zip(taken, owners, strict=True):
            is_theirs = owner is not None and owner.user.username == name.username
            if not is_theirs and name.person is None and await _is_of_nobody(records, name.username):
                yield Breach("references", f"usernames: nobody is called {name.username}", FORGET)
    async for sessions in records.scan(SESSIONS):
        lines = await records.get(USER_SESSIONS, [_line(kept) for kept in sessions])
        for kept, line in zip(sessions, lines, strict=True):
            if line is None and await _is_unlisted(records, kept):
                problem = f"sessions: {kept.session.session_id} is not on the list of its person"
                yield Breach("references", problem, END)


def _line(kept: SessionRecord) -> Key:
    return kept.session.user_id, kept.session.session_id


async def _is_unlisted(records: ReadRecords, kept: SessionRecord) -> bool:
    (now,) = await records.get(SESSIONS, [SESSIONS.key(kept)])
    (line,) = await records.get(USER_SESSIONS, [_line(kept)])
    return now is not None and line is None


async def _is_nameless(records: ReadRecords, user_id: str) -> bool:
    (note,) = await records.get(DELETIONS, [listed(user_id)])
    (person,) = await records.get(PEOPLE, [alone(user_id)])
    if person is None or note is not None:
        return False
    (name,) = await records.get(USERNAMES, [alone(person.user.username)])
    return name is None or name.user_id != user_id


async def _is_of_nobody(records: ReadRecords, username: str) -> bool:
    (name,) = await records.get(USERNAMES, [alone(username)])
    if name is None or name.person is not None:
        return False
    (note,) = await records.get(DELETIONS, [listed(name.user_id)])
    (person,) = await records.get(PEOPLE, [alone(name.user_id)])
    return note is None and (person is None or person.user.username != username)
