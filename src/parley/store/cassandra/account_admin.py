"""The ports `AccountAdmin` and `AuditLog` on Cassandra.

An append does not read the account of its sender each time. So whatever takes a right away from a person
first writes their account, and then gives each of their chats a new revision: an append under way fails its
condition, reads the account and is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from parley.clock import Clock
from parley.errors import LAST_OPERATOR, NO_SUCH_USER, Refused
from parley.model import AccountDeletion, AccountState, User, UserPage
from parley.store.cassandra.accounts import (
    ADD_OPERATOR,
    CassandraAccounts,
    StoredAccount,
    session_in,
)
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.schema import (
    CHATS,
    DELETIONS,
    ONE_LIST,
    OPERATORS,
    SESSIONS,
    USERNAMES,
    USERS,
)
from parley.store.cassandra.users import user_in
from parley.store.rows import StoreCounts
from parley.store.rules import USERS_LOOKED_AT_MAX, emptied, folded, is_found_by

USERS_PER_PAGE = 1_000

REMOVE_OPERATOR = f"DELETE FROM {OPERATORS} WHERE list = '{ONE_LIST}' AND user_id = ? IF EXISTS"
TOUCH_WITNESS = f"UPDATE {OPERATORS} SET touched = ? WHERE list = '{ONE_LIST}' AND user_id = ? IF EXISTS"
IS_OPERATOR = f"SELECT user_id FROM {OPERATORS} WHERE list = '{ONE_LIST}' AND user_id = ?"
NOTE_DELETION = f"INSERT INTO {DELETIONS} (user_id, since_ms, username) VALUES (?, ?, ?)"
READ_DELETION = f"SELECT username FROM {DELETIONS} WHERE user_id = ?"
FREE_NAME = f"DELETE FROM {USERNAMES} WHERE username = ? IF user_id = ?"
TAKE_EMPTY_NAME = f"INSERT INTO {USERNAMES} (username, user_id) VALUES (?, ?) IF NOT EXISTS"
USERS_AFTER = f"SELECT user_id, record, last_seen FROM {USERS} WHERE token(user_id) > token(?)"
ALL_USERS = f"SELECT user_id, record, last_seen FROM {USERS}"


class CassandraAccountAdmin:
    def __init__(
        self,
        cassandra: Cassandra,
        accounts: CassandraAccounts,
        clock: Clock,
        fence: Callable[[str], Awaitable[None]],
    ) -> None:
        self._cassandra = cassandra
        self._accounts = accounts
        self._clock = clock
        self._fence = fence

    async def find_users(self, query: str, after: str, limit: int) -> UserPage:
        wanted, found, looked_at = folded(query), list[User](), 0
        cql, values = (USERS_AFTER, (after,)) if is_key(after) else (ALL_USERS, ())
        async for rows in self._cassandra.pages(cql, *values, page_size=USERS_PER_PAGE):
            for user in (user_in(row) for row in rows if row["record"] is not None):
                looked_at += 1
                if is_found_by(wanted, user.username, user.display_name):
                    found.append(user)
                if len(found) == limit or looked_at == USERS_LOOKED_AT_MAX:
                    return UserPage(found, user.user_id)
        return UserPage(found, None)

    async def set_state(self, user_id: str, state: AccountState, witness_id: str) -> User:
        user = await self._user(user_id)
        if user.state is AccountState.DELETED:
            raise Refused(NO_SUCH_USER)
        if state is not AccountState.ACTIVE:
            await self._step_down(user, witness_id)

        def changed(before: StoredAccount) -> StoredAccount | None:
            if before.user.state is AccountState.DELETED:
                return None
            return before._replace(user=replace(before.user, state=state, last_seen=None))

        if await self._accounts.change(user_id, changed) is None:
            raise Refused(NO_SUCH_USER)
        if state is AccountState.ACTIVE and user.is_operator:
            await self._cassandra.cas((ADD_OPERATOR, (user_id,)))
        if state is not AccountState.ACTIVE:
            await self._fence(user_id)
        return await self._user(user_id)

    async def delete_user(self, user_id: str, witness_id: str, now_ms: int) -> User:
        user = await self._user(user_id)
        if user.state is not AccountState.DELETED:
            await self._step_down(user, witness_id)
            await self._cassandra.write(NOTE_DELETION, user_id, now_ms, user.username)
            await self._accounts.change(
                user_id, lambda before: before._replace(user=emptied(before.user), password_hash="")
            )
        noted = await self._cassandra.row(READ_DELETION, user_id)
        if noted is not None and noted["username"]:
            await self._cassandra.cas((FREE_NAME, (noted["username"], user_id)))
            await self._cassandra.cas((TAKE_EMPTY_NAME, (emptied(user).username, user_id)))
        await self._fence(user_id)
        return await self._user(user_id)

    async def _user(self, user_id: str) -> User:
        user = await self._accounts.user(user_id)
        if user is None:
            raise Refused(NO_SUCH_USER)
        return user

    async def _step_down(self, user: User, witness_id: str) -> None:
        """Take an operator off the list, on the condition that another one, the witness, is on it."""
        if not user.is_operator or user.state is not AccountState.ACTIVE:
            return
        if witness_id == user.user_id or not is_key(witness_id):
            raise Refused(LAST_OPERATOR)
        batch = [
            (REMOVE_OPERATOR, (user.user_id,)),
            (TOUCH_WITNESS, (self._clock(), witness_id)),
        ]

        async def is_done() -> bool:
            return await self._cassandra.row(IS_OPERATOR, user.user_id, is_serial=True) is None

        cas = await self._cassandra.resolve(lambda: self._cassandra.cas(*batch), is_done)
        if not cas.is_applied and not await is_done():
            raise Refused(LAST_OPERATOR)

    # Deletions, counts and sessions

    async def deletions(self) -> list[AccountDeletion]:
        rows = await self._cassandra.rows(f"SELECT user_id, since_ms FROM {DELETIONS}")
        found = [AccountDeletion(row["user_id"], row["since_ms"]) for row in rows]
        return sorted(found, key=lambda deletion: deletion.since_ms)

    async def finish_deletion(self, user_id: str) -> None:
        if is_key(user_id):
            await self._cassandra.write(f"DELETE FROM {DELETIONS} WHERE user_id = ?", user_id)

    async def counts(self) -> StoreCounts:
        people = await self._cassandra.row(f"SELECT COUNT(record) AS total FROM {USERS}")
        chats = await self._cassandra.row(f"SELECT COUNT(record) AS total FROM {CHATS}")
        return StoreCounts((people or {}).get("total", 0), (chats or {}).get("total", 0))

    async def end_expired_sessions(self, now_ms: int) -> int:
        ended = 0
        cql = f"SELECT token_hash, record, last_used_at_ms FROM {SESSIONS}"
        async for rows in self._cassandra.pages(cql):
            for row in rows:
                session = session_in(row)
                if session is not None and session.expires_at_ms <= now_ms:
                    await self._accounts.end_session(session.user_id, session.session_id, row["token_hash"])
                    ended += 1
        return ended
