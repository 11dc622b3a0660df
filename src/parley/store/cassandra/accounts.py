"""The `Accounts` port on Cassandra.

A username is taken by a row that also holds the new account. So an account exists from then on, all or
nothing: whoever finds the name first writes the account, if its node has died before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from parley.clock import MS_PER_DAY
from parley.concurrency import map_concurrently
from parley.errors import StoreUnavailable
from parley.model import AccountState, Session, User
from parley.store.cassandra.chat_state import ATTEMPTS_MAX, READ_USER
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.consents import CassandraConsents
from parley.store.cassandra.schema import ONE_LIST, OPERATORS, SESSIONS, USER_SESSIONS, USERNAMES, USERS
from parley.store.cassandra.users import encode_user, user_in
from parley.wire.limits import SESSION_DAYS

SESSIONS_AT_ONCE_MAX = 16
MICROSECONDS_PER_MS = 1_000

TAKE_NAME = (
    f"INSERT INTO {USERNAMES} (username, user_id, record, password_hash) VALUES (?, ?, ?, ?) IF NOT EXISTS"
)
READ_NAME = f"SELECT user_id, record, password_hash FROM {USERNAMES} WHERE username = ?"
ADD_USER = f"INSERT INTO {USERS} (user_id, record, password_hash, version) VALUES (?, ?, ?, 1) IF NOT EXISTS"
FORGET_RECORD = (
    f"UPDATE {USERNAMES} SET record = null, password_hash = null WHERE username = ? IF user_id = ?"
)
SET_USER = f"UPDATE {USERS} SET record = ?, password_hash = ?, version = ? WHERE user_id = ? IF version = ?"
ADD_OPERATOR = f"INSERT INTO {OPERATORS} (list, user_id, touched) VALUES ('{ONE_LIST}', ?, 0) IF NOT EXISTS"
REMOVE_OPERATOR = f"DELETE FROM {OPERATORS} WHERE list = '{ONE_LIST}' AND user_id = ? IF EXISTS"
PUT_SESSION = f"INSERT INTO {SESSIONS} (token_hash, record) VALUES (?, ?)"
PUT_USER_SESSION = f"INSERT INTO {USER_SESSIONS} (user_id, session_id, token_hash) VALUES (?, ?, ?)"
READ_SESSION = f"SELECT record, last_used_at_ms FROM {SESSIONS} WHERE token_hash = ?"
READ_USER_SESSIONS = f"SELECT session_id, token_hash FROM {USER_SESSIONS} WHERE user_id = ?"
END_SESSION = f"DELETE FROM {SESSIONS} WHERE token_hash = ?"
END_USER_SESSION = f"DELETE FROM {USER_SESSIONS} WHERE user_id = ? AND session_id = ?"

encode_session = msgspec.json.Encoder().encode
_decode_session = msgspec.json.Decoder(Session).decode


class StoredAccount(NamedTuple):
    user: User
    password_hash: str
    version: int


class CassandraAccounts:
    def __init__(self, cassandra: Cassandra, consents: CassandraConsents) -> None:
        self._cassandra = cassandra
        self._consents = consents

    async def add_user(self, user: User, password_hash: str) -> bool:
        before = await self.user(user.user_id)
        if before is not None and before.username != user.username:
            return False
        take = (TAKE_NAME, (user.username, user.user_id, encode_user(user), password_hash))

        async def is_taken() -> bool:
            found = await self._cassandra.row(READ_NAME, user.username, is_serial=True)
            return found is not None and found["user_id"] == user.user_id

        cas = await self._cassandra.resolve(lambda: self._cassandra.cas(take), is_taken)
        if cas.is_applied:
            await self._finish(user.username, user, password_hash)
        return cas.is_applied

    async def _finish(self, username: str, user: User, password_hash: str) -> None:
        """Write the account of somebody who has taken a name."""
        if user.is_operator:
            await self._cassandra.cas((ADD_OPERATOR, (user.user_id,)))
        added = (ADD_USER, (user.user_id, encode_user(user), password_hash))

        async def is_done() -> bool:
            return await self._cassandra.row(READ_USER, user.user_id, is_serial=True) is not None

        await self._cassandra.resolve(lambda: self._cassandra.cas(added), is_done)
        await self._cassandra.cas((FORGET_RECORD, (username, user.user_id)))

    async def user(self, user_id: str) -> User | None:
        account = await self.account(user_id)
        return None if account is None else account.user

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        asked = [user_id for user_id in dict.fromkeys(user_ids) if is_key(user_id)]
        rows = await self._cassandra.rows_of(READ_USER, [(user_id,) for user_id in asked])
        return {row["user_id"]: user_in(row) for row in rows if row["record"] is not None}

    async def account(self, user_id: str) -> StoredAccount | None:
        row = await self._cassandra.row(READ_USER, user_id) if is_key(user_id) else None
        if row is None or row["record"] is None:
            return None
        return StoredAccount(user_in(row), row["password_hash"] or "", row["version"])

    async def user_by_name(self, username: str) -> tuple[User, str] | None:
        found = await self._cassandra.row(READ_NAME, username) if is_key(username) else None
        if found is None:
            return None
        if found["record"] is not None:
            user = msgspec.json.decode(found["record"], type=User)
            await self._finish(username, user, found["password_hash"])
        account = await self.account(found["user_id"])
        return None if account is None else (account.user, account.password_hash)

    async def update_user(self, user: User, password_hash: str | None = None) -> None:
        def updated(before: StoredAccount) -> StoredAccount | None:
            if before.user.state is AccountState.DELETED:
                return None
            after = replace(
                user,
                username=before.user.username,
                created_at=before.user.created_at,
                last_seen=None,
                state=before.user.state,
                external_id=before.user.external_id,
            )
            return StoredAccount(after, before.password_hash if password_hash is None else password_hash, 0)

        change = await self.change(user.user_id, updated)
        if change is None:
            return
        before, after = change
        if before.who_may_add is not after.who_may_add:
            await self._consents.move(user.user_id)
        if before.is_operator is not after.is_operator and after.state is AccountState.ACTIVE:
            await self._cassandra.cas(
                (ADD_OPERATOR if after.is_operator else REMOVE_OPERATOR, (user.user_id,))
            )

    async def change(
        self, user_id: str, change: Callable[[StoredAccount], StoredAccount | None]
    ) -> tuple[User, User] | None:
        """Write what `change` makes of an account. Returns it before and after; None if it made nothing."""
        for _ in range(ATTEMPTS_MAX):
            before = await self.account(user_id)
            after = change(before) if before is not None else None
            if before is None or after is None:
                return None
            record = encode_user(after.user)
            update = (
                SET_USER,
                (record, after.password_hash, before.version + 1, user_id, before.version),
            )

            async def is_done() -> bool:
                found = await self._cassandra.row(READ_USER, user_id, is_serial=True)
                return found is not None and found["record"] == record  # noqa: B023

            if (await self._cassandra.resolve(lambda: self._cassandra.cas(update), is_done)).is_applied:  # noqa: B023
                return before.user, after.user
        raise StoreUnavailable("this account is being written to by too many at once")

    # Sessions

    async def add_session(self, session: Session, token_hash: bytes) -> None:
        await self._cassandra.write(PUT_USER_SESSION, session.user_id, session.session_id, token_hash)
        await self._cassandra.write(PUT_SESSION, token_hash, encode_session(session))

    async def session_by_token(self, token_hash: bytes, *, is_recheck: bool = False) -> Session | None:
        return session_in(await self._cassandra.row(READ_SESSION, token_hash)) if token_hash else None

    async def sessions(self, user_id: str) -> list[Session]:
        rows = await self._cassandra.rows(READ_USER_SESSIONS, user_id) if is_key(user_id) else []
        found = await map_concurrently(
            lambda row: self.session_by_token(row["token_hash"]), rows, SESSIONS_AT_ONCE_MAX
        )
        sessions = [session for session in found if session is not None]
        return sorted(sessions, key=lambda session: -session.last_used_at_ms)

    async def end_sessions(self, user_id: str, session_ids: Sequence[str]) -> list[str]:
        rows = await self._cassandra.rows(READ_USER_SESSIONS, user_id) if is_key(user_id) else []
        ended = []
        for row in rows:
            if row["session_id"] in session_ids:
                if await self.session_by_token(row["token_hash"]) is not None:
                    ended.append(row["session_id"])
                await self.end_session(user_id, row["session_id"], row["token_hash"])
        return ended

    async def end_session(self, user_id: str, session_id: str, token_hash: bytes) -> None:
        await self._cassandra.write(END_SESSION, token_hash)
        await self._cassandra.write(END_USER_SESSION, user_id, session_id)


def time_of(now_ms: int) -> int:
    """The time of a write of what happened then: microseconds, as those of other writes."""
    return now_ms * MICROSECONDS_PER_MS


def session_in(row: Row | None) -> Session | None:
    """A use lengthens it. A row without a record is what is left of one that has ended."""
    if row is None or row["record"] is None:
        return None
    session = _decode_session(row["record"])
    used = row["last_used_at_ms"]
    if used is None or used <= session.last_used_at_ms:
        return session
    return replace(session, last_used_at_ms=used, expires_at_ms=used + SESSION_DAYS * MS_PER_DAY)
