"""The sessions of people's devices: each under the hash of its token, and a list of them for each person.

A session is on its person's list before it is stored, and stays there until it is gone: what a crash leaves
is a line too many, never one too few. `end_expired` clears such lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from parley.clock import MS_PER_DAY
from parley.model import Session
from parley.records.book import all_in
from parley.records.raised import RaisedLater
from parley.store.ports import Records
from parley.store.records import line_of_session
from parley.store.tables import (
    SESSIONS,
    USER_SESSIONS,
    Key,
    PutRecord,
    RemoveRecord,
    SessionLine,
    SessionRecord,
    alone,
    askable,
)
from parley.wire.limits import SESSION_DAYS

LINE_MS = 10 * 60_000
"""A line without its session that is older was left by a process that died."""


class Sessions:
    def __init__(self, records: Records, raised: RaisedLater) -> None:
        self._records = records
        self._raised = raised

    async def add(self, session: Session, token_hash: bytes) -> None:
        """Durable before it returns. Only the token's hash is stored."""
        kept = SessionRecord(session=session, token_hash=token_hash)
        await self._records.commit(USER_SESSIONS, [PutRecord(line_of_session(kept))])
        await self._records.commit(SESSIONS, [PutRecord(kept)])

    async def by_token(self, token_hash: bytes, *, is_recheck: bool = False) -> Session | None:
        """The session of a token, whatever its age, read strongly.

        `is_recheck`: it was read before, and this asks whether it has ended: the answer may be a moment old.
        A session that exists is never missing from it.
        """
        key = alone(token_hash.hex())
        (found,) = await self._records.get(SESSIONS, [key], may_be_old=is_recheck)
        return session_of(found) if found is not None else None

    async def of(self, user_id: str) -> list[Session]:
        """A person's sessions, the last used first."""
        lines = await all_in(self._records, USER_SESSIONS, user_id)
        found = await self._records.get(SESSIONS, [_place(line) for line in lines])
        sessions = [session_of(kept) for kept in found if kept is not None]
        return sorted(sessions, key=lambda session: -session.last_used_at_ms)

    async def end(self, user_id: str, session_ids: Sequence[str]) -> list[str]:
        """Delete these sessions of this person, durably; returns those that existed."""
        wanted = [one for one in dict.fromkeys(session_ids) if askable(user_id, one)]
        lines = await self._records.get(USER_SESSIONS, [(user_id, one) for one in wanted])
        return [line.session_id for line in lines if line is not None and await self._end(line)]

    async def _end(self, line: SessionLine) -> bool:
        """Whether it was there until this call."""
        (kept,) = await self._records.get(SESSIONS, [_place(line)])
        was_ended = kept is not None and await self._records.commit(
            SESSIONS, [RemoveRecord(_place(line), before=kept)]
        )
        await self._records.commit(USER_SESSIONS, [RemoveRecord(USER_SESSIONS.key(line))])
        return was_ended

    async def end_expired(self, now_ms: int) -> int:
        """Delete the sessions that have expired by then; returns how many. Clears lines without a session."""
        ended = 0
        async for page in self._records.scan(SESSIONS):
            for kept in page:
                if session_of(kept).expires_at_ms <= now_ms and not await self._is_used_again(kept, now_ms):
                    ended += await self._end(line_of_session(kept))
        async for lines in self._records.scan(USER_SESSIONS):
            old = [line for line in lines if line.since_ms <= now_ms - LINE_MS]
            found = await self._records.get(SESSIONS, [_place(line) for line in old])
            for line, session in zip(old, found, strict=True):
                if session is None:
                    await self._records.commit(USER_SESSIONS, [RemoveRecord(USER_SESSIONS.key(line))])
        return ended

    async def _is_used_again(self, kept: SessionRecord, now_ms: int) -> bool:
        (now,) = await self._records.get(SESSIONS, [SESSIONS.key(kept)])
        return now is not None and session_of(now).expires_at_ms > now_ms

    def note_used(self, token_hash: bytes, now_ms: int) -> None:
        """A session was used then, and lives for another 30 days; durable a moment later."""
        self._raised.note(SESSIONS, alone(token_hash.hex()), now_ms)


def _place(line: SessionLine) -> Key:
    return alone(line.token_hash.hex())


def session_of(kept: SessionRecord) -> Session:
    """A use lengthens it."""
    used_ms = kept.last_used_at_ms
    if used_ms <= kept.session.last_used_at_ms:
        return kept.session
    return replace(kept.session, last_used_at_ms=used_ms, expires_at_ms=used_ms + SESSION_DAYS * MS_PER_DAY)
