"""The `Directory` port on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from parley.core.permissions import NO_USER, decide_creation
from parley.errors import BLOCKED, Refused
from parley.model import ChatMember, ChatType, ReadReceipts, Role, StoredChat
from parley.store.consent import has_blocked
from parley.store.rules import direct_key
from parley.store.sqlite.chat_state import SqliteChatStates
from parley.store.sqlite.consents import newcomers, said_by
from parley.store.sqlite.reads import Reads, Row, json_ids
from parley.store.sqlite.writer import Transaction, Writer

CHAT = (
    "SELECT chat_id, chat_type, name, created_by, created_at, updated_at, epoch, open_to_join, read_receipts,"
    " announcement_only, slow_mode_seconds FROM chats"
)
# From their chats to the person's: a stranger has few, while a person may create thousands to slow this down.
SHARING_A_CHAT = """
SELECT wanted.value FROM json_each(?1) AS wanted WHERE EXISTS (
    SELECT 1 FROM chat_memberships AS theirs CROSS JOIN chat_memberships AS mine
    ON mine.user_id = ?2 AND mine.chat_id = theirs.chat_id WHERE theirs.user_id = wanted.value
)
"""
PEOPLE_PER_SLICE = 32
"""So many are looked at without giving way to others: about half a millisecond."""


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

    async def chat_ids_of(self, user_id: str, *, unasked: bool = False) -> list[str]:
        where = "user_id = ? AND is_unasked" if unasked else "user_id = ?"
        rows = self._reads.rows(f"SELECT chat_id FROM chat_memberships WHERE {where}", (user_id,))
        return [chat_id for (chat_id,) in rows]

    async def sharing_chats(self, user_id: str, others: Sequence[str]) -> set[str]:
        found = set[str]()
        for start in range(0, len(others), PEOPLE_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            wanted = json_ids(others[start : start + PEOPLE_PER_SLICE])
            found |= {other for (other,) in self._reads.rows(SHARING_A_CHAT, (wanted, user_id))}
        return found

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
        if any(has_blocked(said_by(execute, person), chat.created_by) for person in people):
            raise Refused(BLOCKED)
        row = execute(f"{CHAT} WHERE direct_key = ?", (key,)).fetchone()
        if row:
            return _chat(row), False
    joining = newcomers(execute, chat.created_by, people)
    facts = {person: joining[person].facts if person in joining else NO_USER for person in people}
    refusal = decide_creation(chat.created_by, facts)
    if refusal is not None:
        raise Refused(refusal)
    unasked = {person for person, newcomer in joining.items() if newcomer.is_unasked} - {chat.created_by}
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
