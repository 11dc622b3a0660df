"""The ports `AccountAdmin` and `AuditLog` on SQLite."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from parley.errors import LAST_OPERATOR, NO_SUCH_USER, Refused
from parley.model import AccountDeletion, AccountState, User, UserPage
from parley.store.rows import StoreCounts
from parley.store.rules import USERS_LOOKED_AT_MAX, emptied, folded, is_found_by
from parley.store.sqlite.accounts import USER, user_of
from parley.store.sqlite.chat_state import SqliteChatStates
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer

SESSIONS_PER_STEP = 500

USERS_PER_READ = 500
"""So many are looked at without giving way to others."""

AFTER = f"{USER} WHERE user_id > ? ORDER BY user_id LIMIT {USERS_PER_READ}"
EXPIRED = f"SELECT session_id FROM sessions WHERE expires_at_ms <= ? LIMIT {SESSIONS_PER_STEP}"
COUNTS = "SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM chats)"
WITNESS = "SELECT 1 FROM users WHERE user_id = ? AND is_operator AND account_state = 'active'"
EMPTY = (
    "UPDATE users SET account_state = ?, username = ?, password_hash = '', display_name = ?, about = ?,"
    " is_operator = ?, last_seen = ?, last_seen_privacy = ?, send_read_receipts = ?, do_not_disturb = NULL,"
    " external_id = ''"
    " WHERE user_id = ?"
)


class SqliteAccountAdmin:
    """`states`: what the log remembers of members, until the transaction that changes them."""

    def __init__(self, reads: Reads, writer: Writer, states: SqliteChatStates) -> None:
        self._reads = reads
        self._writer = writer
        self._states = states

    async def find_users(self, query: str, after: str, limit: int) -> UserPage:
        wanted, found = folded(query), list[User]()
        for _ in range(USERS_LOOKED_AT_MAX // USERS_PER_READ):
            rows = self._reads.rows(AFTER, (after,))
            for user in map(user_of, rows):
                if is_found_by(wanted, user.username, user.display_name):
                    found.append(user)
                if len(found) == limit:
                    return UserPage(found, user.user_id)
                after = user.user_id
            if len(rows) < USERS_PER_READ:
                return UserPage(found, None)
            await asyncio.sleep(0)
        return UserPage(found, after)

    async def set_state(self, user_id: str, state: AccountState, witness_id: str) -> User:
        def work(tx: Transaction) -> User:
            user = _user(tx, user_id)
            if user.state is AccountState.DELETED:
                raise Refused(NO_SUCH_USER)
            if state is not AccountState.ACTIVE:
                _check_operators(tx, user, witness_id)
            tx.execute("UPDATE users SET account_state = ? WHERE user_id = ?", (state.value, user_id))
            self._states.forget_person(user_id)
            return replace(user, state=state)

        return await self._writer.run(work)

    async def delete_user(self, user_id: str, witness_id: str, now_ms: int) -> User:
        def work(tx: Transaction) -> User:
            user = _user(tx, user_id)
            if user.state is AccountState.DELETED:
                return user
            _check_operators(tx, user, witness_id)
            empty = emptied(user)
            tx.execute(
                EMPTY,
                (
                    empty.state.value,
                    empty.username,
                    empty.display_name,
                    empty.about,
                    int(empty.is_operator),
                    empty.last_seen,
                    empty.last_seen_privacy.value,
                    int(empty.send_read_receipts),
                    user_id,
                ),
            )
            tx.execute("INSERT OR IGNORE INTO account_deletions VALUES (?, ?)", (user_id, now_ms))
            self._states.forget_person(user_id)
            return empty

        return await self._writer.run(work)

    async def deletions(self) -> list[AccountDeletion]:
        rows = self._reads.rows("SELECT user_id, since_ms FROM account_deletions ORDER BY since_ms", ())
        return [AccountDeletion(*row) for row in rows]

    async def counts(self) -> StoreCounts:
        row = self._reads.row(COUNTS)
        return StoreCounts(*row) if row else StoreCounts(0, 0)

    async def finish_deletion(self, user_id: str) -> None:
        def work(tx: Transaction) -> None:
            tx.execute("DELETE FROM account_deletions WHERE user_id = ?", (user_id,))

        await self._writer.run(work)

    async def end_expired_sessions(self, now_ms: int) -> int:
        def work(tx: Transaction) -> int:
            tx.execute(f"DELETE FROM sessions WHERE session_id IN ({EXPIRED})", (now_ms,))
            return tx.connection.changes()

        ended = 0
        while self._reads.row(EXPIRED, (now_ms,)):
            ended += await self._writer.run(work)
        return ended


def _user(transaction: Transaction, user_id: str) -> User:
    row: Any = transaction.execute(f"{USER} WHERE user_id = ?", (user_id,)).fetchone()
    if row is None:
        raise Refused(NO_SUCH_USER)
    return user_of(row)


def _check_operators(transaction: Transaction, user: User, witness_id: str) -> None:
    """Without this person there is still an operator: the witness."""
    if not user.is_operator or user.state is not AccountState.ACTIVE:
        return
    if witness_id == user.user_id or not transaction.execute(WITNESS, (witness_id,)).fetchone():
        raise Refused(LAST_OPERATOR)
