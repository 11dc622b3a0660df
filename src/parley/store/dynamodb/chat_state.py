"""What a node remembers of each chat between transactions. It may be forgotten at any time.

Every write compares it with the items: the head and the membership's revision. So a stale memory costs a
retry, never an entry. Who is *not* a member, is blocked, or has a disabled account is never remembered: no
write would notice that this has changed. Whatever takes a right away gives the chat a new revision: `fence`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, cast

from parley.errors import (
    Refusal,
    StoreUnavailable,
)
from parley.model import AccountState, ChatType, Role
from parley.store.chat_append import PEOPLE_REMEMBERED_MAX
from parley.store.consent import has_blocked
from parley.store.dynamodb.bundles import (
    BUNDLED_MAX,
    SPAN,
    SPAN_NAMES,
    bundle_across,
    last_position,
    positions_in,
)
from parley.store.dynamodb.driver import (
    Action,
    ConditionCheck,
    Dynamo,
    Item,
    UpdateItem,
    is_valid_key,
    number,
)
from parley.store.dynamodb.people import REVISION, account_state, read_people
from parley.store.dynamodb.records import DynamoRecords
from parley.store.dynamodb.schema import CHATS, COUNTERS, MEMBERSHIPS, MESSAGES
from parley.store.entries import dense_end, shard_of, tag_of
from parley.store.recent_sends import RecentSends
from parley.store.rules import counter_trouble
from parley.store.tables import CONSENTS, alone

CHATS_REMEMBERED_MAX = 20_000
POSITIONS_PER_LOOK_MAX = 1_000
UNKEYED_MAX = BUNDLED_MAX
"""Entries whose keys may be missing: those of the last transaction, never more."""
LOOK_AGAIN_SECONDS = (0.02, 0.1, 0.0)
"""The items of one transaction do not appear at the same instant: what looks wrong is looked at again."""


class DynamoChatState:
    """One chat: where its log stands, and the roles that were asked for under one revision."""

    __slots__ = (
        "announcement_only",
        "chat_id",
        "chat_type",
        "epoch",
        "head",
        "id_ms",
        "is_stale",
        "last_keys",
        "lock",
        "members",
        "open_to_join",
        "owners",
        "pair",
        "published",
        "resolved",
        "revision",
        "roles",
        "sent",
        "shard",
        "slow_mode_seconds",
        "stray_through",
        "tag",
        "trimmed",
        "trouble",
        "unkeyed",
    )

    def __init__(self, chat: Item) -> None:
        self.chat_id = cast(str, chat["chat_id"])
        self.tag = tag_of(self.chat_id)
        self.shard = shard_of(self.tag)
        self.lock = asyncio.Lock()
        self.id_ms = 0
        """The time in the last id that was made here: those of a chat ascend, whatever the clock does."""
        self.is_stale = False
        """Something was written that is not remembered here: load it before it is used again."""
        self.head = 0
        """The end of the log in atomic; in two_phase the highest number known to be in it."""
        self.resolved = 0
        """How far every position is known to be resolved; kept up in two_phase only."""
        self.stray_through: int | None = None
        """Up to where a counter that is not whole gave numbers: no atomic writer will write them."""
        self.unkeyed: range | None = None
        """Positions up to `head` whose keys may be missing, see `unkeyed_in`; None if that was not read."""
        self.trimmed = 0
        self.published: int | None = None
        """Up to where the log was on the bus when this was read; None if it was not read."""
        self.epoch = number(chat, "epoch")
        self.trouble: Refusal | None = None
        self.last_keys: dict[str, bytes] = {}
        self.sent = RecentSends()
        self.take(chat)

    def take(self, chat: Item) -> None:
        """What the chat's item says now; roles of another revision are forgotten."""
        self.see(chat)
        self.chat_type = ChatType(cast(str, chat["chat_type"]))
        self.open_to_join = bool(chat.get("open_to_join"))
        self.announcement_only = bool(chat.get("announcement_only"))
        self.slow_mode_seconds = number(chat, "slow_mode_seconds")
        self.pair = [person for person in str(chat.get("direct_key") or "").split("|") if person]
        """The people of a direct chat."""
        self.members = number(chat, "member_count")
        self.owners = number(chat, "owner_count")
        self.revision = cast(str, chat["membership_revision"])
        self.roles: dict[str, Role] = {}

    def see(self, chat: Item) -> None:
        """What the chat's item says of the log alone. It may be older than what is known here."""
        epoch = number(chat, "epoch")
        if epoch != self.epoch:  # the log was rebuilt: nothing that was known of the old one counts
            self.epoch, self.head, self.resolved, self.trimmed = epoch, 0, 0, 0
            self.last_keys.clear()
            self.sent.forget()
            self.is_stale = True
        self.trimmed = max(self.trimmed, number(chat, "trimmed_through"))
        self.resolved = max(self.resolved, self.trimmed, number(chat, "resolved_through"))
        self.head = max(self.head, self.trimmed, number(chat, "last_sequence"))

    def take_head(self, counter: Item) -> None:
        """Where the log ends by its counter, and which of its last keys may be missing: both of one read."""
        self.head, self.unkeyed = number(counter, "sequence_counter"), unkeyed_in(counter)

    def note_keyed(self, positions: range) -> None:
        """The keys of these positions are written."""
        if self.unkeyed == positions:  # otherwise the state was read anew meanwhile
            self.unkeyed = range(0)


class KnownMembers(NamedTuple):
    """Who has which role, as of one revision of the membership; `blocked` have none, and may not write.

    `accounts`: the people of these roles, and of a direct chat, whose accounts are not active.
    """

    revision: str
    roles: dict[str, Role]
    blocked: frozenset[str] = frozenset()
    accounts: Mapping[str, AccountState] = MappingProxyType({})

    def account(self, user_id: str) -> AccountState:
        return self.accounts.get(user_id, AccountState.ACTIVE)

    def is_deleted(self, user_id: str) -> bool:
        return self.account(user_id) is AccountState.DELETED

    def lets_write(self, user_id: str, pair: list[str]) -> bool:
        """Whether no account forbids it: their own, or that of the other person of a direct chat."""
        is_peer_deleted = any(self.is_deleted(peer) for peer in pair if peer != user_id)
        return self.account(user_id) is AccountState.ACTIVE and not is_peer_deleted


class DynamoChatStates:
    """The chats that this node remembers. `is_atomic`: their heads are their counters."""

    def __init__(self, dynamo: Dynamo, records: DynamoRecords, is_atomic: bool) -> None:
        self._dynamo = dynamo
        self._records = records
        self._is_atomic = is_atomic
        self._states: dict[str, DynamoChatState] = {}

    def known(self, chat_id: str) -> DynamoChatState | None:
        return self._states.get(chat_id)

    def forget(self, chat_id: str) -> None:
        self._states.pop(chat_id, None)

    def doubt(self, chat_id: str) -> None:
        """Its membership has changed: look before it is used again, rather than let a write fail."""
        state = self._states.get(chat_id)
        if state is not None:
            state.is_stale = True

    async def get(self, chat_id: str) -> DynamoChatState | None:
        """A chat, as remembered or as it is; None for one that does not exist."""
        state = self._states.get(chat_id)
        if state is None or state.is_stale or state.trouble is not None:
            return await self.load(chat_id)
        self._states[chat_id] = self._states.pop(chat_id)  # the last used is the last to be forgotten
        return state

    async def load(self, chat_id: str) -> DynamoChatState | None:
        """A chat as it is, read strongly; None for one that does not exist."""
        chat, counter = await asyncio.gather(self._chat(chat_id), self._counter(chat_id))
        if chat is None:
            self.forget(chat_id)
            return None
        state = self.adopt(chat)
        await self._fill(state, chat, counter)
        return state

    async def refresh(self, state: DynamoChatState) -> None:
        """The same for a memory that is in use, whether or not the chat is still remembered."""
        chat, counter = await asyncio.gather(self._chat(state.chat_id), self._counter(state.chat_id))
        if chat is None:
            raise StoreUnavailable(f"the chat {state.chat_id} is gone")
        await self._fill(state, chat, counter)

    async def look(self, state: DynamoChatState) -> None:
        """What the chat's item says of the log by now."""
        chat = await self._chat(state.chat_id)
        if chat is not None:
            state.see(chat)

    async def _fill(self, state: DynamoChatState, chat: Item, counter: Item | None) -> None:
        state.take(chat)
        marked = counter if self._is_atomic else chat
        state.published = number(marked, "published_through") if marked is not None else None
        if self._is_atomic:
            await self._place(state, counter)
        elif state.is_stale:
            state.head = max(state.head, await self.last_position(state.chat_id))
            if state.unkeyed is None:  # the chat may have been written in atomic before
                state.unkeyed = unkeyed_in(await self._dynamo.get(COUNTERS, {"chat_id": state.chat_id}) or {})
        state.is_stale = False

    async def _chat(self, chat_id: str) -> Item | None:
        return await self._dynamo.get(CHATS, {"chat_id": chat_id})

    async def _counter(self, chat_id: str) -> Item | None:
        return await self._dynamo.get(COUNTERS, {"chat_id": chat_id}) if self._is_atomic else None

    def adopt(self, chat: Item) -> DynamoChatState:
        """The memory of a chat whose item was just read; the rest of it is loaded before it is written to."""
        state = self._states.get(cast(str, chat["chat_id"]))
        if state is None:
            if len(self._states) >= CHATS_REMEMBERED_MAX:
                self._states.pop(next(iter(self._states)))
            state = DynamoChatState(chat)
            state.is_stale = True
            self._states[state.chat_id] = state
        else:
            state.see(chat)
        return state

    async def _place(self, state: DynamoChatState, counter: Item | None) -> None:
        """Where the log ends by its counter, or by its entries if the counter does not say."""
        # One that was set back below the trim mark would meet no item there.
        is_sound = counter is not None and number(counter, "sequence_counter") >= state.trimmed
        if counter is not None and is_sound and is_whole(counter):
            state.take_head(counter)
            state.stray_through = state.trouble = None
        else:
            await self.look_closely(state)

    async def look_closely(self, state: DynamoChatState) -> None:
        """Compare the log with its counter, for atomic: is there one, and is it not behind?"""
        last, counter = 0, Item()
        for pause in LOOK_AGAIN_SECONDS:
            last = max(state.trimmed, await self.last_position(state.chat_id))
            counter = await self._counter(state.chat_id) or {}  # after the log: it cannot be behind it
            state.trouble = counter_trouble(cast("int | None", counter.get("sequence_counter")), last)
            if state.trouble is None:
                break
            await asyncio.sleep(pause)
        state.head, state.stray_through = last, None
        if state.trouble is not None:
            return
        state.take_head(counter)
        if not is_whole(counter):
            given = state.head
            known = min(given, max(state.resolved, number(counter, "written_through")))
            state.head, state.stray_through = await self._dense_end(state.chat_id, known, given), given

    async def _dense_end(self, chat_id: str, start: int, until: int) -> int:
        """Up to where no position is missing."""
        end = start
        while end < until:
            found, is_all = await self.positions(chat_id, end, until, is_border=False)
            reached = dense_end(end, found)
            if reached < end + len(found) or is_all:
                return reached
            end = reached
        return end

    async def positions(
        self, chat_id: str, after: int, until: int, *, is_border: bool
    ) -> tuple[list[int], bool]:
        """Numbers that exist in a stretch of the log, read strongly, and whether these are all of them.

        `is_border`: an item ends at `after`, so a stretch without items is empty. Otherwise a bundle that
        begins before it is looked for.
        """
        page = await self._dynamo.query(
            MESSAGES,
            "chat_id = :chat AND #s BETWEEN :first AND :last",
            {":chat": chat_id, ":first": after + 1, ":last": until},
            names=SPAN_NAMES,
            projection=SPAN,
            limit=POSITIONS_PER_LOOK_MAX,
        )
        found = positions_in(page.items)
        if after > 0 and (found[0] != after + 1 if found else not is_border):
            bundle = await bundle_across(self._dynamo, chat_id, after + 1)
            found = positions_in([] if bundle is None else [bundle]) + found
        return [sequence for sequence in found if after < sequence <= until], page.next_key is None

    async def last_position(self, chat_id: str) -> int:
        """The highest number in the log, read strongly; there may be holes below it in two_phase."""
        return await last_position(self._dynamo, chat_id)

    async def membership(self, state: DynamoChatState, user_ids: Iterable[str]) -> KnownMembers:
        """Roles, and a revision that is not newer than they are: a write that still finds it is right."""
        revision, roles = state.revision, state.roles
        asked = {user_id for user_id in user_ids if is_valid_key(user_id)}
        unknown = sorted(asked - roles.keys())
        if len(roles) + len(unknown) > PEOPLE_REMEMBERED_MAX:  # others may still hold the old ones
            roles = state.roles = {user_id: roles[user_id] for user_id in asked & roles.keys()}
        if not unknown:
            return KnownMembers(revision, roles)
        rows, people = await asyncio.gather(
            self._rows(state.chat_id, unknown), read_people(self._dynamo, {*unknown, *state.pair})
        )
        accounts = {
            person: account
            for person, user in people.items()
            if (account := account_state(user)) is not AccountState.ACTIVE
        }
        blocked = frozenset[str]()
        if any(REVISION in people.get(person, {}) for person in state.pair):  # one of them has said something
            blocked = frozenset([one for one in rows if await self.is_blocked(one, state.pair)])
        found = {
            person: Role(cast(str, row["role"])) for person, row in rows.items() if person not in blocked
        }
        if not accounts:
            roles |= found
            return KnownMembers(revision, roles, blocked)
        if state.chat_type is not ChatType.DIRECT:
            roles |= {person: role for person, role in found.items() if person not in accounts}
        return KnownMembers(revision, roles | found, blocked, accounts)

    async def _rows(self, chat_id: str, user_ids: Iterable[str]) -> dict[str, Item]:
        keys: list[Item] = [{"chat_id": chat_id, "user_id": user_id} for user_id in user_ids]
        return {cast(str, row["user_id"]): row for row in await self._dynamo.batch_get(MEMBERSHIPS, keys)}

    async def is_blocked(self, user_id: str, pair: Iterable[str]) -> bool:
        """Whether the other person of a direct chat has blocked this one."""
        found = await self._records.get(CONSENTS, [alone(peer) for peer in pair])
        return any(has_blocked(said, user_id) for said in found)

    async def joined(self, state: DynamoChatState, user_ids: Iterable[str]) -> dict[str, int]:
        """Since which position each of these is a member, for those who are."""
        keys: list[Item] = [{"chat_id": state.chat_id, "user_id": user_id} for user_id in user_ids]
        rows = await self._dynamo.batch_get(MEMBERSHIPS, keys)
        return {cast(str, row["user_id"]): number(row, "joined_sequence") for row in rows}


def fence(chat_id: str, revision: str, counter: Item | None) -> list[Action]:
    """A new revision of a chat's membership, with which no append goes on from memory. `counter`: its item.

    Both items get it, also in two_phase: appends of `atomic` compare that of the counter, and the mode may be
    changed.
    """
    key: Item = {"chat_id": chat_id}
    exists, expression = "attribute_exists(chat_id)", "SET membership_revision = :revision"
    values: Item = {":revision": revision}
    chat = UpdateItem(CHATS, key, expression, values, exists)
    if counter is None:
        return [chat, ConditionCheck(COUNTERS, key, "attribute_not_exists(chat_id)")]
    return [chat, UpdateItem(COUNTERS, key, expression, values, exists)]


def is_whole(counter: Item) -> bool:
    """Whether only whole transactions have moved this counter.

    One that was set back into a bundle is not: the positions within have no items to conflict with.
    """
    is_below = number(counter, "bundled_through") <= number(counter, "sequence_counter")
    return is_below and counter.get("sequence_counter") == counter.get("written_through") is not None


def unkeyed_in(counter: Item) -> range:
    """The positions whose keys may be missing: the last transaction may have ended before it wrote them."""
    through = counter.get("keys_through")
    if not isinstance(through, int):
        return range(0)
    return range(through + 1, min(number(counter, "written_through"), through + UNKEYED_MAX) + 1)
