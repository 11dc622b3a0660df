"""The `Directory` port on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parley.core.permissions import NO_USER, JoinFacts, decide_creation
from parley.errors import BLOCKED, Refused
from parley.model import AccountState, ChatMember, ChatType, ReadReceipts, Role, StoredChat
from parley.store.rules import direct_key
from parley.store.sqlite.chat_state import Execute, SqliteChatStates
from parley.store.sqlite.invitations import consents
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer

ACCOUNT_AND_CHATS = (
    "SELECT account_state, (SELECT count(*) FROM chat_memberships m WHERE m.user_id = users.user_id)"
    " FROM users WHERE user_id = ?"
)
CHAT = (
    "SELECT chat_id, chat_type, name, created_by, created_at, updated_at, epoch, open_to_join, read_receipts,"
    " announcement_only, slow_mode_seconds FROM chats"
)
HAS_BLOCKED = "SELECT 1 FROM relations WHERE user_id = ? AND other_id = ? AND blocked_since IS NOT NULL"


class SqliteDirectory:
    """`states`: what the log remembers of members."""

    def __init__(self, reads: Reads, writer: Writer, states: SqliteChatStates) -> None:
        self._reads = reads
        self._writer = writer
        self._states = states

    async def create_chat(self, chat: StoredChat, member_ids: Sequence[str]) -> tuple[StoredChat, bool]:
        people = sorted({*member_ids, chat.created_by})
        return await self._writer.run(lambda tx: _create(tx, chat, people))

    async def chat(self, chat_id: str) -> StoredChat | None:
        row = self._reads.row(f"{CHAT} WHERE chat_id = ?", (chat_id,))
        return _chat(row) if row else None

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        row = self._reads.row(
            "SELECT role FROM chat_memberships WHERE chat_id = ? AND user_id = ?", (chat_id, user_id)
        )
        return Role(row[0]) if row else None

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[ChatMember]:
        rows = self._reads.rows(
            "SELECT user_id, role, joined_at, joined_sequence FROM chat_memberships"
            " WHERE chat_id = ? AND user_id > ? ORDER BY user_id LIMIT ?",
            (chat_id, after_user_id, limit),
        )
        return [
            ChatMember(user_id, Role(role), joined_at, sequence)
            for user_id, role, joined_at, sequence in rows
        ]

    async def member_count(self, chat_id: str) -> int:
        row = self._reads.row("SELECT count(*) FROM chat_memberships WHERE chat_id = ?", (chat_id,))
        return int(row[0]) if row else 0

    async def count(self) -> int:
        row = self._reads.row("SELECT count(*) FROM chats")
        return int(row[0]) if row is not None else 0

    async def chat_ids_of(self, user_id: str) -> list[str]:
        rows = self._reads.rows("SELECT chat_id FROM chat_memberships WHERE user_id = ?", (user_id,))
        return [chat_id for (chat_id,) in rows]

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """Additions read consent in their own transaction."""

        def work(_: Transaction) -> None:
            for chat_id in chat_ids or ():
                self._states.forget_senders(chat_id)
            if chat_ids is None:
                self._states.forget_person(user_id)

        await self._writer.run(work)


def _chat(row: Row) -> StoredChat:
    chat_id, chat_type, name, created_by, created_at, updated_at, epoch, *settings = row
    open_to_join, read_receipts, announcement_only, slow_mode_seconds = settings
    return StoredChat(
        chat_id,
        ChatType(chat_type),
        name,
        created_by,
        created_at,
        updated_at,
        epoch,
        bool(open_to_join),
        ReadReceipts(read_receipts),
        bool(announcement_only),
        slow_mode_seconds,
    )


def _create(transaction: Transaction, chat: StoredChat, people: list[str]) -> tuple[StoredChat, bool]:
    execute = transaction.execute
    key = direct_key(people) if chat.chat_type is ChatType.DIRECT else None
    if key is not None:
        for person in people:
            if execute(HAS_BLOCKED, (person, chat.created_by)).fetchone():
                raise Refused(BLOCKED)
        row = execute(f"{CHAT} WHERE direct_key = ?", (key,)).fetchone()
        if row:
            return _chat(row), False
    joining = _join_facts(execute, people, chat.created_by)
    refusal = decide_creation(chat.created_by, joining)
    if refusal is not None:
        raise Refused(refusal)
    unasked = {person for person, facts in joining.items() if not facts.consent.is_contact}
    unasked.discard(chat.created_by)
    execute(
        "INSERT INTO chats (chat_id, chat_type, name, created_by, created_at, updated_at, epoch, direct_key,"
        " open_to_join, read_receipts, announcement_only, slow_mode_seconds)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            chat.chat_id,
            chat.chat_type.value,
            chat.title,
            chat.created_by,
            chat.created_at,
            chat.updated_at,
            chat.epoch,
            key,
            int(chat.open_to_join),
            chat.read_receipts.value,
            int(chat.announcement_only),
            chat.slow_mode_seconds,
        ),
    )
    change, now = transaction.change, chat.created_at
    execute(
        "INSERT INTO chat_counters (chat_id, sequence_counter, created_at, updated_at, change)"
        " VALUES (?, 0, ?, ?, ?)",
        (chat.chat_id, now, now, change),
    )
    transaction.executemany(
        "INSERT INTO chat_memberships (chat_id, user_id, role, joined_at, is_unasked) VALUES (?, ?, ?, ?, ?)",
        [
            (chat.chat_id, person, "owner" if person == chat.created_by else "member", now, person in unasked)
            for person in people
        ],
    )
    transaction.executemany(
        "INSERT INTO delivery_state (user_id, chat_id, change) VALUES (?, ?, ?)",
        [(person, chat.chat_id, change) for person in people],
    )
    return chat, True


def _join_facts(execute: Execute, people: list[str], creator_id: str) -> dict[str, JoinFacts]:
    consenting = consents(execute, creator_id, people)
    facts = dict.fromkeys(people, NO_USER)
    for user_id, consent in consenting.items():
        row: Any = execute(ACCOUNT_AND_CHATS, (user_id,)).fetchone()
        is_disabled = row[0] == AccountState.DISABLED
        facts[user_id] = JoinFacts(user_chats=row[1], is_disabled=is_disabled, consent=consent)
    return facts
