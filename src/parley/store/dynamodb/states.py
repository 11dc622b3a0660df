"""What a node remembers of each chat between transactions. It may be forgotten at any time.

Every write compares it with the items: the head and the membership's revision. So a stale memory costs a
retry, never an entry. Who is *not* a member is never remembered: no write would notice that it has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, cast

from parley.errors import COUNTER_INCONSISTENT, COUNTER_MISSING, InconsistentCounterError, Refusal
from parley.model import ChatType, Role
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.entries import MESSAGES, sequence_of
from parley.store.dynamodb.message_ids import tag_of
from parley.store.dynamodb.values import Item
from parley.store.rules import STRAY_POSITIONS_MAX

CHATS = "chats"
COUNTERS = "chat_counters"
MEMBERSHIPS = "chat_memberships"
CHATS_REMEMBERED_MAX = 20_000
PEOPLE_REMEMBERED_MAX = 10_000


class ChatState:
    """One chat: where its log stands, and the roles that were asked for under one revision."""

    __slots__ = (
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
        "resolved",
        "revision",
        "roles",
        "stray_through",
        "tag",
        "trimmed",
        "trouble",
    )

    def __init__(self, chat: Item) -> None:
        self.chat_id = cast(str, chat["chat_id"])
        self.tag = tag_of(self.chat_id)
        self.lock = asyncio.Lock()
        self.id_ms = 0
        """The time in the last id that was made here: those of a chat ascend, whatever the clock does."""
        self.is_stale = False
        """Something was written that is not remembered here: load it before it is used again."""
        self.head = 0
        """The end of the log in atomic; in two_phase the highest number known to be in it."""
        self.resolved = number(chat, "resolved_through")
        """How far every position is known to be resolved; in two_phase only."""
        self.stray_through = 0
        """Up to where the counter has given numbers that no atomic writer will write."""
        self.trouble: Refusal | None = None
        self.last_keys: dict[str, bytes] = {}
        self.take(chat)

    def take(self, chat: Item) -> None:
        """What the chat's item says now; roles of another revision are forgotten."""
        self.epoch = number(chat, "epoch")
        self.chat_type = ChatType(cast(str, chat["chat_type"]))
        self.open_to_join = bool(chat.get("open_to_join"))
        self.members = number(chat, "member_count")
        self.owners = number(chat, "owner_count")
        self.trimmed = number(chat, "trimmed_through")
        self.revision = cast(str, chat["membership_revision"])
        self.roles: dict[str, Role] = {}


class Known(NamedTuple):
    """Who has which role, as of one revision of the membership."""

    revision: str
    roles: dict[str, Role]


class ChatStates:
    """The chats that this node remembers. `is_atomic`: their heads are their counters."""

    def __init__(self, dynamo: Dynamo, is_atomic: bool) -> None:
        self._dynamo = dynamo
        self._is_atomic = is_atomic
        self._states: dict[str, ChatState] = {}

    def known(self, chat_id: str) -> ChatState | None:
        return self._states.get(chat_id)

    def forget(self, chat_id: str) -> None:
        self._states.pop(chat_id, None)

    async def get(self, chat_id: str) -> ChatState | None:
        """A chat, as remembered or as it is; None for one that does not exist."""
        state = self._states.get(chat_id)
        if state is None or state.is_stale or state.trouble is not None:
            state = await self.load(chat_id)
        return state

    async def load(self, chat_id: str) -> ChatState | None:
        """A chat as it is, read strongly."""
        chat, counter = await asyncio.gather(self._chat(chat_id), self._counter(chat_id))
        if chat is None:
            self.forget(chat_id)
            return None
        state = self._states.get(chat_id)
        if state is None:
            state = self.adopt(chat)
        else:
            state.take(chat)
        if not self._is_atomic and state.is_stale:
            state.head = max(state.head, await self.last_position(chat_id))
        state.is_stale = False
        if self._is_atomic:
            await self.place(state, counter)
        return state

    async def _chat(self, chat_id: str) -> Item | None:
        return await self._dynamo.get(CHATS, {"chat_id": chat_id})

    async def _counter(self, chat_id: str) -> Item | None:
        return await self._dynamo.get(COUNTERS, {"chat_id": chat_id}) if self._is_atomic else None

    def adopt(self, chat: Item) -> ChatState:
        """The memory of a chat whose item was just read; the rest of it is loaded before it is written to."""
        state = self._states.get(cast(str, chat["chat_id"]))
        if state is None:
            if len(self._states) >= CHATS_REMEMBERED_MAX:
                self._states.pop(next(iter(self._states)))
            state = ChatState(chat)
            state.is_stale = True
            self._states[state.chat_id] = state
        return state

    async def doubt(self, state: ChatState) -> None:
        """The log goes further than its counter says: look at both."""
        await self.place(state, None)
        counter = await self._dynamo.get(COUNTERS, {"chat_id": state.chat_id})
        state.trouble = trouble_of(counter, state.head)

    async def place(self, state: ChatState, counter: Item | None) -> None:
        """Where the log ends by its counter, or by its last entry if the counter cannot be right."""
        if counter is not None and is_whole(counter):
            state.head, state.trouble = number(counter, "sequence_counter"), None
            state.stray_through = 0
            return
        state.head = await self.last_position(state.chat_id)
        state.trouble = trouble_of(counter, state.head)
        if counter is not None and state.trouble is None:
            state.stray_through = number(counter, "sequence_counter")

    async def last_position(self, chat_id: str) -> int:
        """The highest number in the log, read strongly; there may be holes below it in two_phase."""
        values: Item = {":chat": chat_id}
        page = await self._dynamo.query(
            MESSAGES,
            "chat_id = :chat",
            values,
            forward=False,
            limit=1,
            projection="#s",
            names={"#s": "sequence"},
        )
        return sequence_of(page.items[0]) if page.items else 0

    async def know(self, state: ChatState, user_ids: Iterable[str]) -> Known:
        """Roles, and a revision that is not newer than they are: a write that still finds it is right."""
        known = Known(state.revision, state.roles)
        unknown = {user_id for user_id in user_ids if user_id and user_id not in known.roles}
        if unknown:
            keys: list[Item] = [{"chat_id": state.chat_id, "user_id": user_id} for user_id in sorted(unknown)]
            if len(known.roles) + len(keys) > PEOPLE_REMEMBERED_MAX:
                known.roles.clear()
            for row in await self._dynamo.batch_get(MEMBERSHIPS, keys):
                known.roles[cast(str, row["user_id"])] = Role(cast(str, row["role"]))
        return known


def is_whole(counter: Item) -> bool:
    """Whether nobody but a whole transaction has moved this counter."""
    return counter.get("sequence_counter") == counter.get("written_through") is not None


def trouble_of(counter: Item | None, last: int) -> Refusal | None:
    if counter is None or counter.get("sequence_counter") is None:
        return COUNTER_MISSING
    value = number(counter, "sequence_counter")
    if value < last:
        return COUNTER_INCONSISTENT.because(str(InconsistentCounterError(value, last)))
    if value - last > STRAY_POSITIONS_MAX:
        return COUNTER_INCONSISTENT.because(f"Counter is {value} but the log ends at {last}")
    return None


def number(item: Item, name: str) -> int:
    value = item.get(name)
    return value if isinstance(value, int) else 0
