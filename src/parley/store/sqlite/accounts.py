"""The `Accounts` port on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from parley.model import AccountState, Privacy, Session, User
from parley.store.rows import quiet_hours, quiet_text
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer

USER_COLUMNS = (
    "users.user_id, username, display_name, about, is_operator, users.created_at, last_seen_privacy,"
    " send_read_receipts, last_seen, account_state, who_may_add, do_not_disturb,"
    " is_bot, external_id"
)
USER_COLUMNS_COUNT = USER_COLUMNS.count(",") + 1
USER = f"SELECT {USER_COLUMNS}, password_hash FROM users"
SESSION = (
    "SELECT session_id, user_id, device_id, device_name, created_at_ms, last_used_at_ms, expires_at_ms,"
    " origin FROM sessions"
)


PEOPLE_PER_SLICE = 32
"""So many are read without giving way to others: less than half a millisecond."""
PROFILES = (  # CROSS JOIN: SQLite must start with these ids, not scan all users
    f"SELECT {USER_COLUMNS} FROM json_each(?1) AS wanted CROSS JOIN users ON users.user_id = wanted.value"
)


class SqliteAccounts:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def add_user(self, user: User, password_hash: str) -> bool:
        return await self._writer.run(lambda tx: _add_user(tx, user, password_hash))

    async def user(self, user_id: str) -> User | None:
        row = self._reads.row(f"{USER} WHERE user_id = ?", (user_id,))
        return user_of(row) if row else None

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        found: dict[str, User] = {}
        for start in range(0, len(user_ids), PEOPLE_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            rows = self._reads.rows(PROFILES, (json_ids(user_ids[start : start + PEOPLE_PER_SLICE]),))
            found |= {user.user_id: user for user in map(user_of, rows)}
        return found

    async def user_by_name(self, username: str) -> tuple[User, str] | None:
        row = self._reads.row(f"{USER} WHERE username = ?", (username,))
        return (user_of(row), row[USER_COLUMNS_COUNT]) if row else None

    async def update_user(self, user: User, password_hash: str | None = None) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(
                "UPDATE users SET display_name = ?, about = ?, is_operator = ?, last_seen_privacy = ?,"
                " send_read_receipts = ?, who_may_add = ?, do_not_disturb = ?, is_bot = ?,"
                " password_hash = coalesce(?, password_hash)"
                " WHERE user_id = ? AND account_state <> 'deleted'",
                (
                    user.display_name,
                    user.about,
                    int(user.is_operator),
                    user.last_seen_privacy.value,
                    int(user.send_read_receipts),
                    user.who_may_add.value,
                    quiet_text(user.do_not_disturb),
                    int(user.is_bot),
                    password_hash,
                    user.user_id,
                ),
            )

        await self._writer.run(work)

    async def add_session(self, session: Session, token_hash: bytes) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(
                "INSERT INTO sessions (session_id, token_hash, user_id, device_id, device_name,"
                " created_at_ms, last_used_at_ms, expires_at_ms, origin) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session.session_id,
                    token_hash,
                    session.user_id,
                    session.device_id,
                    session.device_name,
                    session.created_at_ms,
                    session.last_used_at_ms,
                    session.expires_at_ms,
                    session.origin,
                ),
            )

        await self._writer.run(work)

    async def session_by_token(self, token_hash: bytes, *, is_recheck: bool = False) -> Session | None:
        row = self._reads.row(f"{SESSION} WHERE token_hash = ?", (token_hash,))
        return Session(*row) if row else None

    async def sessions(self, user_id: str) -> list[Session]:
        rows = self._reads.rows(f"{SESSION} WHERE user_id = ? ORDER BY last_used_at_ms DESC", (user_id,))
        return [Session(*row) for row in rows]

    async def end_sessions(self, user_id: str, session_ids: Sequence[str]) -> list[str]:
        def work(tx: Transaction) -> list[str]:
            ended = []
            for session_id in session_ids:
                tx.execute("DELETE FROM sessions WHERE session_id = ? AND user_id = ?", (session_id, user_id))
                if tx.connection.changes():
                    ended.append(session_id)
            return ended

        return await self._writer.run(work)


PRIVACIES = {privacy.value: privacy for privacy in Privacy}
ACCOUNT_STATES = {state.value: state for state in AccountState}
"""Faster than to call the enumeration: presence reads many people at once."""


def user_of(row: Row) -> User:
    """A person, from a row that begins with `USER_COLUMNS`."""
    (
        user_id,
        username,
        display_name,
        about,
        is_operator,
        created_at,
        privacy,
        sends,
        last_seen,
        state,
        may_add,
        quiet,
        is_bot,
        external_id,
    ) = row[:USER_COLUMNS_COUNT]
    return User(
        user_id,
        username,
        display_name,
        about,
        bool(is_operator),
        created_at,
        PRIVACIES[privacy],
        bool(sends),
        last_seen,
        ACCOUNT_STATES[state],
        PRIVACIES[may_add],
        None if quiet is None else quiet_hours(quiet),
        bool(is_bot),
        external_id,
    )


def json_ids(user_ids: Iterable[str]) -> str:
    """The ids without duplicates, as a JSON list. SQLite would cut an id at a NUL; no existing id has one."""
    wanted = [user_id for user_id in dict.fromkeys(user_ids) if "\0" not in user_id]
    return msgspec.json.encode(wanted).decode()


def _add_user(transaction: Transaction, user: User, password_hash: str) -> bool:
    transaction.execute(
        "INSERT INTO users (user_id, username, password_hash, display_name, about, is_operator, created_at,"
        " last_seen_privacy, send_read_receipts, who_may_add, do_not_disturb, is_bot, external_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            user.user_id,
            user.username,
            password_hash,
            user.display_name,
            user.about,
            int(user.is_operator),
            user.created_at,
            user.last_seen_privacy.value,
            int(user.send_read_receipts),
            user.who_may_add.value,
            quiet_text(user.do_not_disturb),
            int(user.is_bot),
            user.external_id,
        ),
    )
    return transaction.connection.changes() == 1
