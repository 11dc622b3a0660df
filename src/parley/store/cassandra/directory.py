"""The `Directory` port on Cassandra.

A chat begins with the fence of its first bucket, in which its members are pending: see `effects`. Nobody
finds it before they are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from parley.concurrency import map_concurrently
from parley.core.permissions import NO_USER, decide_creation
from parley.errors import BLOCKED, Refused, StoreUnavailable
from parley.model import ChatMember, ChatType, Role, StoredChat
from parley.store.cassandra.chat_state import READ_CHAT, READ_DIRECT, READ_FENCE, CassandraChatStates
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.consents import PEOPLE_AT_ONCE_MAX, READ_PLACES, CassandraConsents, Joiner
from parley.store.cassandra.effects import Effects, JoinedMember, chat_in, encode_effects
from parley.store.cassandra.schema import DIRECT_CHATS, LOG, MEMBERSHIPS
from parley.store.consent import has_blocked
from parley.store.ports import Allocator, Records
from parley.store.rules import direct_key
from parley.store.tables import CONSENTS, alone

ATTEMPTS_MAX = 40
FENCES_AT_ONCE_MAX = 16
RACE_PAUSE_SECONDS_MAX = 0.1

BEGIN = (
    f"UPDATE {LOG} SET is_closed = false, epoch = ?, revision = ?, pending = ?, sequence_counter = 0,"
    " written_through = 0, last_sequence = 0, published_through = 0, trimmed_through = 0"
    " WHERE chat_id = ? AND bucket = 0 IF is_closed = null"
)
TAKE_DIRECT = f"UPDATE {DIRECT_CHATS} SET chat_id = ? WHERE direct_key = ? IF chat_id = null"
READ_ROLE = f"SELECT role FROM {MEMBERSHIPS} WHERE chat_id = ? AND user_id = ?"
READ_MEMBERS = (
    f"SELECT user_id, role, joined_at, joined_sequence FROM {MEMBERSHIPS} WHERE chat_id = ? AND user_id > ?"
)


class CassandraDirectory:
    """`allocator`: allocates in two_phase; None in atomic, where an append advances the counter."""

    def __init__(
        self,
        cassandra: Cassandra,
        states: CassandraChatStates,
        records: Records,
        consents: CassandraConsents,
        allocator: Allocator | None,
        random: Callable[[], float],
    ) -> None:
        self._cassandra = cassandra
        self._states = states
        self._records = records
        self._consents = consents
        self._allocator = allocator
        self._random = random

    async def create_chat(self, chat: StoredChat, member_ids: Sequence[str]) -> tuple[StoredChat, bool]:
        people = sorted({*member_ids, chat.created_by})
        for _ in range(ATTEMPTS_MAX):
            key = direct_key(people) if chat.chat_type is ChatType.DIRECT else None
            if key is not None:
                said = await self._records.get(CONSENTS, [alone(person) for person in people])
                if any(has_blocked(one, chat.created_by) for one in said):
                    raise Refused(BLOCKED)
                direct = await self._cassandra.row(READ_DIRECT, key) if is_key(key) else None
                if direct is not None and direct["chat_id"] is not None:
                    return await self._finished(direct["chat_id"]), False
            newcomers = await self._check_people(chat, people)
            if await self._create(chat, newcomers, key):
                return chat, True
            await asyncio.sleep(self._random() * RACE_PAUSE_SECONDS_MAX)
        raise StoreUnavailable("the chat could not be written")

    async def _check_people(self, chat: StoredChat, people: list[str]) -> list[Joiner]:
        found = await self._consents.newcomers(chat.created_by, people)
        facts = {user_id: found[user_id].facts if user_id in found else NO_USER for user_id in people}
        refusal = decide_creation(chat.created_by, facts)
        if refusal is not None:
            raise Refused(refusal)
        return list(found.values())

    # Writing a chat

    async def _create(self, chat: StoredChat, people: list[Joiner], key: str | None) -> bool:
        """False if something has changed since it was read, so that all is to be decided again."""
        if self._allocator is not None:
            await self._allocator.create(chat.chat_id)
        joining = self._consents.make_revision()
        others = [one for one in people if one.user_id != chat.created_by]
        reserved = await map_concurrently(
            lambda one: self._consents.reserve(one, chat.chat_id, joining), others, PEOPLE_AT_ONCE_MAX
        )
        if all(reserved) and await self._begin(chat, people, key, joining):
            return True
        for one in others:
            await self._consents.release(one.user_id, chat.chat_id, joining)
        return False

    async def _begin(
        self,
        chat: StoredChat,
        people: list[Joiner],
        key: str | None,
        joining: str,
    ) -> bool:
        joined = [_joined(chat, person, joining) for person in people]
        effects = Effects(
            chat.chat_id, 0, created=chat, direct_key=key, joined=joined, counts=(len(people), 1)
        )
        pending, revision = encode_effects(effects), self._consents.make_revision()
        begin = (BEGIN, (chat.epoch, revision, pending, chat.chat_id))

        async def has_begun() -> bool:
            found = await self._cassandra.row(READ_FENCE, chat.chat_id, 0, is_serial=True)
            return found is not None and found["revision"] == revision

        cas = await self._cassandra.resolve(lambda: self._cassandra.cas(begin), has_begun)
        if not cas.is_applied and await self.chat(chat.chat_id) is None:
            raise StoreUnavailable("somebody has withdrawn their consent meanwhile; try again")
        if key is not None and not await self._take_direct(key, chat.chat_id):
            return False
        await self._finished(chat.chat_id)
        return True

    async def _take_direct(self, key: str, chat_id: str) -> bool:
        take = (TAKE_DIRECT, (chat_id, key))

        async def is_taken() -> bool:
            found = await self._cassandra.row(READ_DIRECT, key, is_serial=True)
            return found is not None and found["chat_id"] == chat_id

        cas = await self._cassandra.resolve(lambda: self._cassandra.cas(take), is_taken)
        return cas.is_applied or await is_taken()

    async def _finished(self, chat_id: str) -> StoredChat:
        """A chat that has begun, with all its rows: a node that died may have left them pending."""
        state = self._states.new_state(chat_id)
        await self._states.refresh_fence(state)
        chat = await self.chat(chat_id)
        if chat is None:
            raise StoreUnavailable(f"the chat {chat_id} is gone")
        return chat

    # Reading

    async def chat(self, chat_id: str) -> StoredChat | None:
        row = await self._row(chat_id)
        return chat_in(row) if row is not None else None

    async def _row(self, chat_id: str) -> Row | None:
        row = await self._cassandra.row(READ_CHAT, chat_id) if is_key(chat_id) else None
        return row if row is not None and row["record"] is not None else None

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        if not is_key(chat_id, user_id):
            return None
        row = await self._cassandra.row(READ_ROLE, chat_id, user_id)
        return Role(row["role"]) if row is not None and row["role"] is not None else None

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[ChatMember]:
        if not is_key(chat_id) or limit < 1:
            return []
        rows = await self._cassandra.rows(f"{READ_MEMBERS} LIMIT ?", chat_id, after_user_id, limit)
        return [
            ChatMember(row["user_id"], Role(row["role"]), row["joined_at"], row["joined_sequence"])
            for row in rows
        ]

    async def member_count(self, chat_id: str) -> int:
        row = await self._row(chat_id)
        return (row["member_count"] or 0) if row is not None else 0

    async def chat_ids_of(self, user_id: str, *, unasked: bool = False) -> list[str]:
        rows = await self._cassandra.rows(READ_PLACES, user_id) if is_key(user_id) else []
        return [
            row["chat_id"] for row in rows if row["has_left"] is False and (row["is_unasked"] or not unasked)
        ]

    async def sharing_chats(self, user_id: str, others: Sequence[str]) -> set[str]:
        chats = set(await self.chat_ids_of(user_id)) if others else set[str]()
        if not chats:
            return set()
        theirs = await map_concurrently(self.chat_ids_of, others, PEOPLE_AT_ONCE_MAX)
        return {other for other, some in zip(others, theirs, strict=True) if not chats.isdisjoint(some)}

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """An append does not read the account of its sender each time: its batch has the chat's revision."""
        if is_key(user_id):
            await self._consents.move(user_id)
        if chat_ids is None:
            chat_ids = await self.chat_ids_of(user_id)
        await map_concurrently(
            lambda chat_id: self._states.fence(chat_id, self._consents.make_revision()),
            chat_ids,
            FENCES_AT_ONCE_MAX,
        )


def _joined(chat: StoredChat, person: Joiner, joining: str) -> JoinedMember:
    is_creator = person.user_id == chat.created_by
    role = Role.OWNER if is_creator else Role.MEMBER
    is_unasked = person.is_unasked and not is_creator
    return JoinedMember(person.user_id, role, chat.created_at, is_unasked, "" if is_creator else joining)
