"""What a node remembers of each chat between its writes, and the buckets of its log.

A log is divided into buckets of as many positions as the keyspace says. A bucket is one partition: a
conditional batch writes entries, keys and the fence of one bucket, or nothing. Exactly one bucket of a chat
is open, and every write has the condition that its bucket is. So whoever opens the next one has seen all
that was written before.

    is_closed    null: not there yet. False: open. True: nothing in it changes any more
    revision     of the membership: whatever takes a right away from somebody moves it (`fence`)
    pending      what a change of members still has to write elsewhere: see `effects`
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from parley.errors import (
    Refusal,
    StoreUnavailable,
)
from parley.model import AccountState, ChatType, Role, StoredChat
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.effects import apply_effects, chat_in, decode_effects
from parley.store.cassandra.people import read_people
from parley.store.cassandra.schema import CHATS, DIRECT_CHATS, KEYS, LOG, MEMBERSHIPS
from parley.store.chat_append import PEOPLE_REMEMBERED_MAX
from parley.store.consent import has_blocked
from parley.store.entries import dense_end, shard_of, tag_of
from parley.store.ports import Records
from parley.store.recent_sends import RecentSends
from parley.store.rules import counter_trouble
from parley.store.tables import CONSENTS, alone
from parley.wire.limits import IDEMPOTENCY_DAYS

CHATS_REMEMBERED_MAX = 20_000
ATTEMPTS_MAX = 30
KEY_SECONDS = (IDEMPOTENCY_DAYS + 1) * 86_400
"""How long the key of a closed bucket is kept: its message is older than its bucket's end."""
KEYS_AT = 0
"""The sequence under which a bucket holds the keys of clients: entries begin at 1."""
NO_KEY = b""

STATICS = (
    "is_closed, epoch, revision, pending, sequence_counter, written_through, last_sequence, listing,"
    " resolved_through, published_through, trimmed_through, recovered_at, recovered_from_sequence"
)
READ_FENCE = f"SELECT {STATICS} FROM {LOG} WHERE chat_id = ? AND bucket = ? LIMIT 1"
READ_CHAT = f"SELECT * FROM {CHATS} WHERE chat_id = ?"
READ_MEMBER = f"SELECT user_id, role, joined_sequence FROM {MEMBERSHIPS} WHERE chat_id = ? AND user_id = ?"
READ_DIRECT = f"SELECT chat_id FROM {DIRECT_CHATS} WHERE direct_key = ?"
READ_KEYS = (
    f"SELECT client_key, stored_at, sender_id, message_id FROM {LOG}"
    f" WHERE chat_id = ? AND bucket = ? AND sequence = {KEYS_AT}"
)
CLOSE = f"UPDATE {LOG} SET is_closed = true WHERE chat_id = ? AND bucket = ? IF is_closed = false"
OPEN = (
    f"UPDATE {LOG} SET is_closed = false, epoch = ?, revision = ?, sequence_counter = ?, written_through = ?,"
    " last_sequence = ?, listing = ?, published_through = ?, recovered_at = ?, recovered_from_sequence = ?,"
    " trimmed_through = 0"
    " WHERE chat_id = ? AND bucket = ? IF is_closed = null"
)
CARRIED_OVER = (
    "epoch",
    "revision",
    "sequence_counter",
    "written_through",
    "last_sequence",
    "listing",
    "published_through",
    "recovered_at",
    "recovered_from_sequence",
)
"""What the fence of the next bucket takes from that of a closed one, in the order of `OPEN`."""
KEEP_KEY = (
    f"INSERT INTO {KEYS} (chat_id, client_key, stored_at, sender_id, message_id) VALUES (?, ?, ?, ?, ?)"
    f" USING TTL {KEY_SECONDS}"
)
HINT = f"UPDATE {CHATS} USING TIMESTAMP ? SET bucket = ? WHERE chat_id = ?"
FENCE = (
    f"UPDATE {LOG} SET revision = ? WHERE chat_id = ? AND bucket = ? IF is_closed = false AND revision = ?"
)
PREVENT = f"UPDATE {LOG} SET is_closed = true WHERE chat_id = ? AND bucket = 0 IF is_closed = null"
CLEAR_PENDING = (
    f"UPDATE {LOG} SET pending = null WHERE chat_id = ? AND bucket = ? IF is_closed = false AND pending = ?"
)


class CassandraChatState:
    """One chat: its open bucket, where its log stands, and the roles asked for under one revision."""

    def __init__(self, chat_id: str, bucket: int) -> None:
        self.chat_id = chat_id
        self.bucket = bucket
        self.tag = tag_of(chat_id)
        self.shard = shard_of(self.tag)
        self.lock = asyncio.Lock()
        self.id_ms = 0
        """The time in the last id that was made here: those of a chat ascend, whatever the clock does."""
        self.is_stale = True
        """Something was written that is not remembered here: load it before it is used again."""
        self.epoch = 0
        self.head = 0
        """The end of the log in atomic; in two_phase the highest number known to be in it."""
        self.resolved = 0
        """How far every position is known to be resolved; kept up in two_phase only."""
        self.trimmed = 0
        """Up to here this bucket holds nothing any more, and nothing is written."""
        self.counter: int | None = None
        self.stray_through: int | None = None
        """Up to where a counter that is not whole gave numbers: no atomic writer will write them."""
        self.listing: str | None = None
        self.published: int | None = None
        self.trouble: Refusal | None = None
        self.revision = ""
        self.last_keys: dict[str, bytes] = {}
        self.sent = RecentSends()
        self.roles: dict[str, Role] = {}
        self.chat: StoredChat
        self.pair: list[str] = []
        self.members = self.owners = 0

    def take_chat(self, row: Row) -> None:
        """What the chat's own row says now."""
        self.chat = chat_in(row)
        self.pair = (row["direct_key"] or "").split("|") if row["direct_key"] else []
        self.members, self.owners = row["member_count"] or 0, row["owner_count"] or 0

    def take_fence(self, bucket: int, row: Row) -> None:
        """What the open bucket says now; roles of another revision are forgotten."""
        self.bucket = bucket
        if row["revision"] != self.revision:
            self.roles = {}
        self.revision = row["revision"]
        if row["epoch"] != self.epoch:
            self.sent.forget()
        self.epoch, self.listing = row["epoch"], row["listing"]
        self.counter, self.published = row["sequence_counter"], row["published_through"] or 0
        self.trimmed = row["trimmed_through"] or 0

    @property
    def announcement_only(self) -> bool:
        return self.chat.announcement_only

    @property
    def slow_mode_seconds(self) -> int:
        return self.chat.slow_mode_seconds

    @property
    def is_direct(self) -> bool:
        return self.chat.chat_type is ChatType.DIRECT


class KnownPeople(NamedTuple):
    """Who has which role, as of one revision of the membership; `blocked` have none, and may not write.

    `accounts`: the people of these roles, and of a direct chat, whose accounts are not active.
    """

    revision: str
    roles: dict[str, Role]
    blocked: frozenset[str]
    accounts: dict[str, AccountState]

    def account(self, user_id: str) -> AccountState:
        return self.accounts.get(user_id, AccountState.ACTIVE)

    def is_peer_deleted(self, user_id: str, pair: Iterable[str]) -> bool:
        return any(self.account(peer) is AccountState.DELETED for peer in pair if peer != user_id)


class CassandraChatStates:
    """The chats that this node remembers. `is_atomic`: their heads are their counters."""

    def __init__(
        self, cassandra: Cassandra, records: Records, is_atomic: bool, bucket_positions: int
    ) -> None:
        self.cassandra = cassandra
        self._records = records
        self.is_atomic = is_atomic
        self.bucket_positions = bucket_positions
        self._states: dict[str, CassandraChatState] = {}

    def bucket_of(self, sequence: int) -> int:
        return max(0, sequence - 1) // self.bucket_positions

    def end_of(self, bucket: int) -> int:
        """The last position of a bucket."""
        return (bucket + 1) * self.bucket_positions

    def start_of(self, state: CassandraChatState) -> int:
        """Up to here everything of a log is in older buckets, or was trimmed."""
        return max(state.bucket * self.bucket_positions, state.trimmed)

    def known(self, chat_id: str) -> CassandraChatState | None:
        return self._states.get(chat_id)

    def doubt(self, chat_id: str) -> None:
        """Its membership has changed: look before it is used again, rather than let a write fail."""
        state = self._states.get(chat_id)
        if state is not None:
            state.is_stale = True

    @staticmethod
    def new_state(chat_id: str, bucket: int = 0) -> CassandraChatState:
        """Of a chat that need not be remembered."""
        return CassandraChatState(chat_id, bucket)

    async def get(self, chat_id: str) -> CassandraChatState | None:
        """A chat, as remembered or as it is; None for one that does not exist."""
        state = self._states.get(chat_id)
        if state is None or state.is_stale or state.trouble is not None:
            return await self.load(chat_id)
        self._states[chat_id] = self._states.pop(chat_id)  # the last used is the last to be forgotten
        return state

    async def load(self, chat_id: str) -> CassandraChatState | None:
        """A chat as it is; None for one that does not exist."""
        row = await self.cassandra.row(READ_CHAT, chat_id) if is_key(chat_id) else None
        if row is None or row["record"] is None:
            self._states.pop(chat_id, None)
            return None
        state = self._states.get(chat_id)
        if state is None:
            if len(self._states) >= CHATS_REMEMBERED_MAX:
                self._states.pop(next(iter(self._states)))
            state = self._states[chat_id] = CassandraChatState(chat_id, row["bucket"] or 0)
        state.take_chat(row)
        await self.refresh_fence(state)
        state.is_stale = False
        return state

    async def refresh(self, state: CassandraChatState) -> None:
        """The same for a memory that is in use, whether or not the chat is still remembered."""
        await self.refresh_fence(state)
        row = await self.cassandra.row(READ_CHAT, state.chat_id)
        if row is None or row["record"] is None:
            raise StoreUnavailable(f"the chat {state.chat_id} is gone")
        state.take_chat(row)
        state.is_stale = False

    async def refresh_fence(self, state: CassandraChatState) -> None:
        """Find the open bucket, end what is pending there, and learn where the log stands.

        In this order: nobody may read members by a revision whose effects are not written.
        """
        asked = state.bucket
        bucket, fence = await self.find_open(state.chat_id, asked)
        if fence["pending"] is not None:
            await self.end_pending(state.chat_id, bucket, fence["pending"])
        if bucket < state.bucket != asked:  # somebody else has looked meanwhile, and knows more
            return
        state.take_fence(bucket, fence)
        if self.is_atomic:
            await self._place(state, fence)
        else:
            state.trouble = None
            start = self.start_of(state)
            state.resolved = max(state.resolved, start, fence["resolved_through"] or 0)
            state.head = max(state.head, state.resolved, fence["last_sequence"] or 0)

    async def find_open(self, chat_id: str, bucket: int) -> tuple[int, Row]:
        """The open bucket, from this one on, and its fence.

        A node that died before it opened the next one is followed.
        """
        for _ in range(ATTEMPTS_MAX):
            fence = await self.cassandra.row(READ_FENCE, chat_id, bucket)
            if fence is None or fence["is_closed"] is None:
                fence = await self.cassandra.row(READ_FENCE, chat_id, bucket, is_serial=True)
            if fence is None or fence["is_closed"] is None:
                if bucket == 0:
                    raise StoreUnavailable(f"the log of {chat_id} is not there")
                bucket -= 1  # a snapshot may be torn: the chat knows of a bucket that its log has not
                continue
            if not fence["is_closed"]:
                return bucket, fence
            await self.open_next(chat_id, bucket, fence)
            bucket += 1
        raise StoreUnavailable(f"the open bucket of {chat_id} moves too fast")

    # Buckets

    async def roll(self, state: CassandraChatState) -> None:
        """Close the open bucket, which is full, and open the next one."""
        chat_id, bucket = state.chat_id, state.bucket

        async def is_done() -> bool:
            found = await self.cassandra.row(READ_FENCE, chat_id, bucket, is_serial=True)
            return found is not None and bool(found["is_closed"])

        await self.cassandra.resolve(lambda: self.cassandra.cas((CLOSE, (chat_id, bucket))), is_done)
        await self.refresh_fence(state)

    async def open_next(self, chat_id: str, bucket: int, closed: Row) -> None:
        """Whoever finds a closed bucket does this; only the first does anything.

        The keys first: who finds the next bucket open finds every key of this one in the other table.
        """
        following = await self.cassandra.row(READ_FENCE, chat_id, bucket + 1)
        if following is not None and following["is_closed"] is not None:
            return
        if closed["pending"] is not None:
            await apply_effects(self.cassandra, self._records, decode_effects(closed["pending"]))
        keys = await self.cassandra.rows(READ_KEYS, chat_id, bucket)
        await self.cassandra.write_all(
            (KEEP_KEY, (chat_id, key["client_key"], key["stored_at"], key["sender_id"], key["message_id"]))
            for key in keys
        )
        values = [closed[name] for name in CARRIED_OVER]

        async def is_done() -> bool:
            found = await self.cassandra.row(READ_FENCE, chat_id, bucket + 1, is_serial=True)
            return found is not None and found["is_closed"] is not None

        attempt = (OPEN, (*values, chat_id, bucket + 1))
        await self.cassandra.resolve(lambda: self.cassandra.cas(attempt), is_done)
        await self.cassandra.write(HINT, bucket + 2, bucket + 1, chat_id)

    async def end_pending(self, chat_id: str, bucket: int, pending: bytes) -> None:
        """Write what a change still has to write elsewhere, and forget it."""
        await apply_effects(self.cassandra, self._records, decode_effects(pending))

        async def is_done() -> bool:
            found = await self.cassandra.row(READ_FENCE, chat_id, bucket, is_serial=True)
            return found is None or found["pending"] != pending

        attempt = (CLEAR_PENDING, (chat_id, bucket, pending))
        await self.cassandra.resolve(lambda: self.cassandra.cas(attempt), is_done)

    async def fence(self, chat_id: str, revision: str) -> None:
        """A new revision of a chat's membership, with which no append goes on from memory."""
        row = await self.cassandra.row(READ_CHAT, chat_id)
        if row is None:
            return await self._prevent(chat_id)
        hint = row["bucket"] or 0

        async def is_done() -> bool:
            return bool((await self.find_open(chat_id, hint))[1]["revision"] == revision)

        for _ in range(ATTEMPTS_MAX):
            bucket, found = await self.find_open(chat_id, hint)
            attempt = (FENCE, (revision, chat_id, bucket, found["revision"]))
            if (await self.cassandra.resolve(lambda: self.cassandra.cas(attempt), is_done)).is_applied:  # noqa: B023
                self.doubt(chat_id)
                return None
        raise StoreUnavailable("the chat is being written to by too many at once")

    async def _prevent(self, chat_id: str) -> None:
        """A chat that is about to begin does not: its first bucket is closed before it was open."""
        cas = await self.cassandra.cas((PREVENT, (chat_id,)))
        if (
            not cas.is_applied and cas.row.get("is_closed") is False
        ):  # it has begun: its rows are not there yet
            state = self.new_state(chat_id)
            await self.refresh_fence(state)
            await self.fence(chat_id, f"{state.revision}'")

    # Where the log stands, in atomic

    async def _place(self, state: CassandraChatState, fence: Row) -> None:
        counter = fence["sequence_counter"]
        is_whole = counter is not None and counter == fence["written_through"]
        if is_whole and max(fence["last_sequence"] or 0, state.trimmed) <= counter:
            state.head = counter
            state.stray_through = state.trouble = None
            return
        await self.compare(state, await self.last_position(state))

    async def compare(self, state: CassandraChatState, last: int) -> None:
        """Where a log stands that ends at `last`, and whose counter was not moved by whole batches alone."""
        state.trouble = counter_trouble(state.counter, last)
        state.head, state.stray_through = last, None
        if state.trouble is None:
            assert state.counter is not None
            start = self.start_of(state)
            found = await self.positions(state.chat_id, start, state.counter)
            state.head, state.stray_through = dense_end(start, found), state.counter

    async def last_position(self, state: CassandraChatState) -> int:
        """The highest number in the log; there may be holes below it in two_phase."""
        start = self.start_of(state)
        cql = f"SELECT sequence FROM {LOG} WHERE chat_id = ? AND bucket = ? ORDER BY sequence DESC LIMIT 1"
        row = await self.cassandra.row(cql, state.chat_id, state.bucket)
        found = row["sequence"] if row is not None else None
        return max(start, found or 0)

    async def positions(self, chat_id: str, after: int, until: int) -> list[int]:
        """Numbers that exist in a stretch of the log, which lies in one bucket or two."""
        found: list[int] = []
        for bucket in range(self.bucket_of(after + 1), self.bucket_of(max(after + 1, until)) + 1):
            cql = (
                f"SELECT sequence FROM {LOG} WHERE chat_id = ? AND bucket = ?"
                " AND sequence > ? AND sequence <= ?"
            )
            rows = await self.cassandra.rows(cql, chat_id, bucket, max(after, KEYS_AT), until)
            found += [row["sequence"] for row in rows]
        return found

    # Members

    async def membership(self, state: CassandraChatState, user_ids: Iterable[str]) -> KnownPeople:
        """Roles, and a revision that is not newer than they are: a write that still finds it is right.

        Who is no member, is blocked, or has no active account is never remembered: nothing says when that
        ends.
        """
        revision, roles = state.revision, state.roles
        asked = {user_id for user_id in user_ids if is_key(user_id)}
        unknown = sorted(asked - roles.keys())
        if not unknown:
            return KnownPeople(revision, roles, frozenset(), {})
        if len(roles) + len(unknown) > PEOPLE_REMEMBERED_MAX:
            roles = state.roles = {user_id: roles[user_id] for user_id in asked & roles.keys()}
        rows, accounts, said = await asyncio.gather(
            self.cassandra.rows_of(READ_MEMBER, [(state.chat_id, user_id) for user_id in unknown]),
            self._inactive({*unknown, *state.pair}),
            self._records.get(CONSENTS, [alone(person) for person in state.pair]),
        )
        found = {row["user_id"]: Role(row["role"]) for row in rows if row["role"] is not None}
        blocked = frozenset(person for person in found if any(has_blocked(one, person) for one in said))
        free = {person: role for person, role in found.items() if person not in blocked}
        if not accounts:
            roles |= free
        elif not state.is_direct:
            roles |= {person: role for person, role in free.items() if person not in accounts}
        return KnownPeople(revision, roles | free, blocked, accounts)

    async def _inactive(self, user_ids: Iterable[str]) -> dict[str, AccountState]:
        users = (await read_people(self.cassandra, sorted(user_ids))).values()
        return {user.user_id: user.state for user in users if user.state is not AccountState.ACTIVE}

    async def joined(self, chat_id: str, user_ids: Iterable[str]) -> dict[str, int]:
        """Since which position each of these is a member, for those who are."""
        rows = await self.cassandra.rows_of(READ_MEMBER, [(chat_id, user_id) for user_id in user_ids])
        return {row["user_id"]: row["joined_sequence"] for row in rows if row["role"] is not None}
