"""The `Invitations` port on SQLite, and what a person says to being added, as of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from parley.clock import Clock
from parley.core.consent import TOO_MANY_INVITED, ConsentFacts
from parley.core.permissions import ALREADY_MEMBER
from parley.errors import BLOCKED, NO_SUCH_USER, Refused
from parley.model import Invitation, Privacy, Role
from parley.store.rules import expired_invitations
from parley.store.sqlite.chat_state import Execute
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer
from parley.wire.limits import INVITATIONS_MAX, INVITATIONS_PER_INVITER_MAX

CONSENTS = """
SELECT users.user_id, who_may_add, contact_since IS NOT NULL, blocked_since IS NOT NULL,
    (SELECT count(*) FROM chat_memberships AS m WHERE m.user_id = users.user_id AND m.is_unasked)
FROM json_each(?1) AS asked CROSS JOIN users ON users.user_id = asked.value
LEFT JOIN relations ON relations.user_id = users.user_id AND relations.other_id = ?2
WHERE account_state <> 'deleted'
"""
INVITATION = "SELECT user_id, chat_id, invited_by, role, invited_at FROM invitations"
IS_MEMBER = "SELECT 1 FROM chat_memberships WHERE chat_id = ? AND user_id = ?"
OLDEST = (
    "DELETE FROM invitations WHERE user_id = ?1 AND chat_id IN (SELECT chat_id FROM invitations"
    " WHERE user_id = ?1 ORDER BY invited_at DESC, chat_id LIMIT -1 OFFSET ?2) RETURNING chat_id"
)


class SqliteInvitations:
    def __init__(self, reads: Reads, writer: Writer, clock: Clock) -> None:
        self._reads = reads
        self._writer = writer
        self._clock = clock

    async def consents(self, actor_id: str, user_ids: Sequence[str]) -> dict[str, ConsentFacts]:
        return _facts(self._reads.rows(CONSENTS, (_asked(user_ids), actor_id)))

    async def invite(self, invitation: Invitation) -> list[str]:
        expired = expired_invitations(self._clock())
        return await self._writer.run(lambda tx: _invite(tx, invitation, expired))

    async def invitation(self, user_id: str, chat_id: str) -> Invitation | None:
        where = "user_id = ? AND chat_id = ?"
        found = self._listed(where, (user_id, chat_id), "chat_id", 1)
        return found[0] if found else None

    async def of_user(self, user_id: str, after_chat_id: str, limit: int) -> list[Invitation]:
        return self._listed("user_id = ? AND chat_id > ?", (user_id, after_chat_id), "chat_id", limit)

    async def of_chat(self, chat_id: str, after_user_id: str, limit: int) -> list[Invitation]:
        return self._listed("chat_id = ? AND user_id > ?", (chat_id, after_user_id), "user_id", limit)

    def _listed(self, where: str, values: Row, order: str, limit: int) -> list[Invitation]:
        rows = self._reads.rows(
            f"{INVITATION} WHERE {where} AND invited_at > ? ORDER BY {order} LIMIT ?",
            (*values, expired_invitations(self._clock()), limit),
        )
        return [
            Invitation(user_id, chat_id, invited_by, Role(role), invited_at)
            for user_id, chat_id, invited_by, role, invited_at in rows
        ]

    async def end(self, user_id: str, chat_id: str) -> bool:
        expired = expired_invitations(self._clock())
        return await self._writer.run(lambda tx: _end(tx, user_id, chat_id, expired))


def consents(execute: Execute, actor_id: str, user_ids: Sequence[str]) -> dict[str, ConsentFacts]:
    """The same as of the open transaction."""
    return _facts(execute(CONSENTS, (_asked(user_ids), actor_id)).fetchall())


def _asked(user_ids: Sequence[str]) -> str:
    """As a statement takes a list. None that exists has a NUL, at which SQLite would cut it."""
    return msgspec.json.encode([user_id for user_id in user_ids if "\0" not in user_id]).decode()


def _facts(rows: list[Row]) -> dict[str, ConsentFacts]:
    return {
        user_id: ConsentFacts(Privacy(may_add), bool(is_contact), bool(has_blocked), int(unasked))
        for user_id, may_add, is_contact, has_blocked, unasked in rows
    }


def invited_as(execute: Execute, user_id: str, chat_id: str, now_ms: int) -> Role | None:
    """The role in a pending invitation, as of the open transaction."""
    values = (user_id, chat_id, expired_invitations(now_ms))
    row: Any = execute(
        "SELECT role FROM invitations WHERE user_id = ? AND chat_id = ? AND invited_at > ?", values
    ).fetchone()
    return Role(row[0]) if row else None


def _invite(transaction: Transaction, invitation: Invitation, expired: str) -> list[str]:
    execute, user_id, chat_id = transaction.execute, invitation.user_id, invitation.chat_id
    facts = consents(execute, invitation.invited_by, [user_id]).get(user_id)
    if facts is None:
        raise Refused(NO_SUCH_USER)
    if facts.has_blocked:
        raise Refused(BLOCKED)
    if execute(IS_MEMBER, (chat_id, user_id)).fetchone():
        raise Refused(ALREADY_MEMBER)
    execute("DELETE FROM invitations WHERE user_id = ? AND invited_at <= ?", (user_id, expired))
    others: Any = execute(
        "SELECT count(*) FROM invitations WHERE user_id = ? AND invited_by = ? AND chat_id <> ?",
        (user_id, invitation.invited_by, chat_id),
    ).get
    if others >= INVITATIONS_PER_INVITER_MAX:
        raise Refused(TOO_MANY_INVITED)
    execute(
        "INSERT INTO invitations (user_id, chat_id, invited_by, role, invited_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET invited_by = excluded.invited_by, role = excluded.role,"
        " invited_at = excluded.invited_at",
        (user_id, chat_id, invitation.invited_by, invitation.role.value, invitation.invited_at),
    )
    rows: list[Row] = execute(OLDEST, (user_id, INVITATIONS_MAX)).fetchall()
    return sorted(ended for (ended,) in rows)


def _end(transaction: Transaction, user_id: str, chat_id: str, expired: str) -> bool:
    row: Any = transaction.execute(
        "DELETE FROM invitations WHERE user_id = ? AND chat_id = ? RETURNING invited_at", (user_id, chat_id)
    ).fetchone()
    return row is not None and row[0] > expired
