"""How the drafts of one chat become entries: what both ways of taking a number have in common.

The ids of all drafts are looked up before they are decided: in the open bucket, and, of older ones, in the
table of their own. The batch that writes them compares what they were decided by: the open bucket, the head
(in atomic) and the revision of the membership; and each entry and each key must be new.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from parley.clock import Clock, iso
from parley.core.append import (
    AppendFacts,
    ChangeFacts,
    Decision,
    JoinFacts,
    Missing,
    StoredBy,
    Verdict,
    answer_again,
    decide_append,
    stored_by,
)
from parley.core.permissions import NO_USER, joins_alone
from parley.errors import Refusal
from parley.model import AccountState, Action, Draft, Role
from parley.store.cassandra.chat_state import CassandraChatState, CassandraChatStates, KnownPeople
from parley.store.cassandra.consents import CassandraConsents, Joiner
from parley.store.cassandra.effects import Effects, JoinedMember
from parley.store.cassandra.log_rows import LogRows, StoredKey
from parley.store.chat_append import ChatAppend, Placed, Twin
from parley.store.entries import CHANCE_BITS, entry_of, message_id
from parley.store.paging import stored_entry
from parley.store.recent_sends import LONG_AGO_MS, MESSAGE
from parley.wire.frames import Entry
from parley.wire.limits import KIB

MESSAGES_PER_BATCH_MAX = 100
"""Of a conditional batch: as many entries and as many keys, which is about a hundred kilobytes."""
BATCH_BYTES_MAX = 512 * KIB
"""Of the contents of a batch: Cassandra warns of large ones, and refuses very large ones. One always fits."""

CassandraAppend = ChatAppend[StoredKey]


class AppendPlan(Struct):
    """The next drafts that go into one batch, and those that depend on them."""

    membership: KnownPeople
    head: int
    bucket: int
    indices: list[int] = field(default_factory=list)
    twins: list[Twin] = field(default_factory=list)
    newcomer: Joiner | None = None
    """Of the change, if it is a join."""
    planned: dict[bytes, int] = field(default_factory=dict)
    """Ids of the drafts that are planned so far."""
    sending: set[str] = field(default_factory=set)
    """Senders of the messages that are planned so far."""


class ListedMarks(Protocol):
    """How far each chat is on the bus, and the list of those that may be behind."""

    async def list_chat(self, state: CassandraChatState) -> str:
        """List a chat, before it is written to. Returns the name of its place in the list."""
        ...

    def take_mark(self, chat_id: str) -> int | None:
        """The newest mark of a chat, if there is one that the store does not have."""
        ...


class LookedUpIds(NamedTuple):
    """Which ids were looked up, and which of them the log has."""

    asked: set[bytes]
    found: dict[bytes, StoredKey]


class AppendPlanner:
    """Decides about drafts, and reads what that needs."""

    def __init__(
        self,
        states: CassandraChatStates,
        consents: CassandraConsents,
        clock: Clock,
        random_bits: Callable[[int], int],
    ) -> None:
        self.states = states
        self.consents = consents
        self.rows = LogRows(states)
        self.clock = clock
        self._random_bits = random_bits

    async def plan(
        self, append: CassandraAppend, state: CassandraChatState, *, in_bucket: bool
    ) -> AppendPlan | None:
        """Decide about the next drafts, until a batch is full or a change wants its own.

        `in_bucket`: they follow the head, in the open bucket; None if that is full.
        """
        first = append.drafts[append.todo[0]]
        if first.change is not None or state.is_stale:
            await self.states.refresh(state)  # what a change may do must not rest on memory
        head, bucket = state.head, state.bucket  # of the same moment, which the write compares with
        room = MESSAGES_PER_BATCH_MAX
        if in_bucket and state.trouble is None:
            room = min(room, self.states.end_of(bucket) - head)
            if room < 1:
                return None
        membership = await self.states.membership(state, _people(append))
        looked = await self._look_up(append, state)
        plan = AppendPlan(membership, head, bucket)
        answered: list[int] = []
        content_bytes = 0
        while append.todo and len(plan.indices) < room:
            index = append.todo[0]
            draft = append.drafts[index]
            if draft.change is not None and (plan.indices or draft is not first):
                break
            content_bytes += len(draft.content.encode(errors="replace"))
            if plan.indices and content_bytes > BATCH_BYTES_MAX:
                break
            append.todo.popleft()
            twin = plan.planned.get(draft.client_key) if draft.client_key is not None else None
            decision = await self._decide(append, state, plan, looked, draft)
            if twin is not None:
                plan.twins.append(Twin(index, twin, decision))
            elif isinstance(decision, Refusal):
                append.outcomes[index] = decision
            elif decision is Verdict.ANSWER:
                answered.append(index)
            else:
                plan.indices.append(index)
                if draft.client_key is not None:
                    plan.planned[draft.client_key] = index
                if draft.change is not None:
                    break
        await self.answer(append, state, answered)
        return plan

    async def _look_up(self, append: CassandraAppend, state: CassandraChatState) -> LookedUpIds:
        """The ids of the next drafts and of their predecessors, in one read."""
        asked: set[bytes] = set()
        for index in islice(append.todo, MESSAGES_PER_BATCH_MAX):
            draft = append.drafts[index]
            asked |= {key for key in (draft.client_key, draft.after_key) if key is not None}
        found = await self.rows.keys(state, asked)
        append.originals |= found
        return LookedUpIds(asked, found)

    async def _decide(
        self,
        append: CassandraAppend,
        state: CassandraChatState,
        plan: AppendPlan,
        looked: LookedUpIds,
        draft: Draft,
    ) -> Decision:
        people = plan.membership

        def known(key: bytes | None) -> StoredBy:
            first = plan.planned.get(key) if key is not None else None
            if first is not None:
                return stored_by(append.drafts[first].sender_id, draft)
            stored = append.originals.get(key) if key is not None else None
            return stored_by(stored.sender_id if stored is not None else None, draft)

        facts = AppendFacts(
            role=people.roles.get(draft.sender_id),
            account=people.account(draft.sender_id),
            is_peer_deleted=people.is_peer_deleted(draft.sender_id, state.pair),
            original=known(draft.client_key),
            predecessor=known(draft.after_key),
            trouble=append.trouble or state.trouble,
            announcement_only=state.announcement_only,
            slow_mode_seconds=state.slow_mode_seconds,
        )
        if draft.sender_id in people.blocked:
            facts.role, facts.is_blocked = Role.MEMBER, True
        if facts.role is None:
            facts.account = AccountState.ACTIVE
        if draft.change is not None:
            facts.change = _change_facts(draft, state, people)
        decision = decide_append(draft, facts)
        if decision is Missing.JOIN:
            assert facts.change is not None
            facts.change.join, plan.newcomer = await self._join_facts(draft, state)
            decision = decide_append(draft, facts)
        elif decision is Missing.LAST_SENT:
            facts.since_last_ms = await self._since_last_ms(state, plan, draft.sender_id)
            decision = decide_append(draft, facts)
        assert not isinstance(decision, Missing), "everything else was looked up"
        if decision is Verdict.PLACE and draft.kind == MESSAGE:
            plan.sending.add(draft.sender_id)
        return decision

    async def _since_last_ms(self, state: CassandraChatState, plan: AppendPlan, sender_id: str) -> int:
        """How long ago the sender's last message was: in this plan, or in the log."""
        if sender_id in plan.sending:
            return 0

        async def read_back(after: int, until: int) -> list[tuple[int, bytes | None]]:
            rows = await self.rows.rows(state.chat_id, after, until, "wire", forward=False)
            return [(row["sequence"], row["wire"]) for row in rows]

        now_ms = self.clock()
        await state.sent.look(state.head, now_ms - LONG_AGO_MS, read_back)
        return state.sent.since_last_ms(sender_id, now_ms)

    async def _join_facts(self, draft: Draft, state: CassandraChatState) -> tuple[JoinFacts, Joiner | None]:
        assert draft.change is not None
        user_id = draft.change.user_id
        person = (await self.consents.newcomers(draft.sender_id, [user_id])).get(user_id)
        if person is None:
            return NO_USER, None
        return person.facts_in(state.chat_id, state.members, self.clock()), person

    async def answer(self, append: CassandraAppend, state: CassandraChatState, indices: list[int]) -> None:
        """Answer drafts with their originals."""
        for index in indices:
            draft = append.drafts[index]
            assert draft.client_key is not None
            key = append.originals[draft.client_key]
            append.outcomes[index] = answer_again(draft, await self._original(state, draft, key))

    async def _original(self, state: CassandraChatState, draft: Draft, key: StoredKey) -> Entry:
        row = await self.rows.at(state.chat_id, key.sequence)
        if row is not None and row["wire"] is not None:
            return stored_entry(state.chat_id, row["wire"], key.sequence)
        # Its entry is no more: the key still knows where it was.
        return entry_of(draft, key.sequence, state.epoch, key.message_id, iso(self.clock()))

    def place(
        self, append: CassandraAppend, state: CassandraChatState, indices: list[int], numbers: list[int]
    ) -> list[Placed]:
        """Give drafts their positions and everything that travels with them."""
        now_ms = self.clock()
        state.id_ms = max(state.id_ms, now_ms)
        placed = []
        for index, sequence in zip(indices, numbers, strict=True):
            draft = append.drafts[index]
            name = message_id(state.id_ms, state.tag, sequence, self._random_bits(CHANCE_BITS))
            placed.append(Placed(index, draft, entry_of(draft, sequence, state.epoch, name, iso(now_ms))))
        return placed

    def effects(
        self, state: CassandraChatState, plan: AppendPlan, placed: Placed, joining: str
    ) -> Effects | None:
        """What a change writes outside of the log; None for a message."""
        change, entry = placed.draft.change, placed.entry
        if change is None:
            return None
        effects = Effects(state.chat_id, entry.sequence, updated_at=entry.created_at)
        match change.action:
            case Action.RENAMED:
                effects.title = change.title
                return effects
            case Action.READ_RECEIPTS:
                effects.read_receipts = change.read_receipts
                return effects
            case Action.POSTING:
                effects.announcement_only = change.announcement_only
                effects.slow_mode_seconds = change.slow_mode_seconds
                return effects
            case Action.JOINED:
                is_own = joins_alone(change, placed.draft.sender_id)
                is_unasked = not is_own and plan.newcomer is not None and plan.newcomer.is_unasked
                effects.joined = [
                    JoinedMember(change.user_id, change.role, entry.created_at, is_unasked, joining)
                ]
            case Action.LEFT | Action.REMOVED:
                effects.left = change.user_id
            case Action.ROLE:
                effects.role = change.user_id, change.role
        before = plan.membership.roles.get(change.user_id)
        after = change.role if change.action in (Action.JOINED, Action.ROLE) else None
        effects.counts = (
            state.members + (after is not None) - (before is not None),
            state.owners + (after is Role.OWNER) - (before is Role.OWNER),
        )
        return effects


def _change_facts(draft: Draft, state: CassandraChatState, people: KnownPeople) -> ChangeFacts:
    assert draft.change is not None
    return ChangeFacts(
        chat_type=state.chat.chat_type,
        open_to_join=state.chat.open_to_join,
        owners=state.owners,
        members=state.members,
        target=people.roles.get(draft.change.user_id),
        is_target_deleted=people.account(draft.change.user_id) is AccountState.DELETED,
    )


def _people(append: CassandraAppend) -> set[str]:
    """Whose roles the next drafts ask for."""
    people: set[str] = set()
    for index in append.todo:
        draft = append.drafts[index]
        people.add(draft.sender_id)
        if draft.change is not None and draft.change.user_id:
            people.add(draft.change.user_id)
    return people
