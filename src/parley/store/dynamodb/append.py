"""How the drafts of one chat become entries: what both ways of taking a number have in common.

    ChatAppend     the drafts of one append, and what became of each
    Planner.plan   decides about the next drafts, and answers or refuses those that are not written
    Plan           the drafts of one transaction
    commit         does the transaction, and finds out what became of it when the answer is lost
    Planner.settle tells what was written

Optimistic: nothing is looked up for a draft that is new, and the conditions of the write catch what is not.
What they catch is noted (`ChatAppend.originals`), and the drafts are planned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, cast

from msgspec.structs import replace

from parley.clock import Clock, iso
from parley.core.append import (
    NO_CHAT,
    AppendFacts,
    Decision,
    Missing,
    StoredBy,
    Verdict,
    answer_again,
    decide_append,
    stored_by,
)
from parley.errors import OutcomeUnknown, Refusal, StoreError, StoreUnavailable
from parley.model import Draft, Role
from parley.store.chat_append import ChatAppend, Placed, Twin
from parley.store.dynamodb import changes
from parley.store.dynamodb.bundles import (
    BUNDLED_MAX,
    bundled,
    items_of_keys,
    put_entries,
    read_rows,
    span_of,
)
from parley.store.dynamodb.chat_state import (
    UNKEYED_MAX,
    DynamoChatState,
    DynamoChatStates,
    KnownMembers,
)
from parley.store.dynamodb.consents import DynamoConsents
from parley.store.dynamodb.driver import Action, CancellationReason, Dynamo, Item, Put, TransactionCanceled
from parley.store.dynamodb.entries import FAILED, original_in, put_key, sequence_of, whole_entry
from parley.store.dynamodb.keys import IdempotencyKeys
from parley.store.dynamodb.schema import MESSAGES
from parley.store.entries import CHANCE_BITS, encode_json, entry_of, message_id
from parley.store.paging import Row
from parley.store.recent_sends import LONG_AGO_MS, MESSAGE
from parley.wire.limits import KIB, MESSAGE_BYTES_MAX

MESSAGES_PER_TRANSACTION_MAX = 49
"""100 actions: the fence, 49 entries, 49 keys, and one that a change of the fence may need."""
KEYS_APART_MIN = 16
"""So many new messages look their ids up before their transaction and write their keys after it: that costs
one write unit less for each, and two more requests one after the other for all of them."""
TRANSACTION_BYTES_MAX = 4_000_000
CONTENT_BYTES_PER_TRANSACTION_MAX = 3_300_000
"""As it travels: a control character is six bytes in JSON, and too long a request is not even read."""
ITEM_BYTES_BESIDE_CONTENT_MAX = 6 * KIB
"""Ids of up to 1 KiB each, names, times and types."""
assert MESSAGES_PER_TRANSACTION_MAX <= BUNDLED_MAX
assert MESSAGES_PER_TRANSACTION_MAX <= UNKEYED_MAX
assert MESSAGES_PER_TRANSACTION_MAX * (MESSAGE_BYTES_MAX + 2) <= CONTENT_BYTES_PER_TRANSACTION_MAX
assert (
    CONTENT_BYTES_PER_TRANSACTION_MAX + 2 * MESSAGES_PER_TRANSACTION_MAX * ITEM_BYTES_BESIDE_CONTENT_MAX
    < TRANSACTION_BYTES_MAX
), "the entries and the keys of a full transaction fit"

RESOLVE_SECONDS_MAX = 4.0
RESOLVE_PAUSE_SECONDS = 0.05

DynamoAppend = ChatAppend[Item]


class Plan(NamedTuple):
    """The next drafts that go into one transaction, and those that depend on them."""

    indices: list[int]
    twins: list[Twin]
    membership: KnownMembers
    head: int
    """The end of the log for which this was planned: all keys up to there are written."""
    keys_apart: bool = False
    """None of these ids is used up to `head`: that was looked up, so their keys need no conditions."""
    join: changes.JoinWrites | None = None
    """Of the change, if it is a join."""


class Puts(NamedTuple):
    """What a transaction writes for its drafts: their entries first, then their keys."""

    entries: list[Put]
    keys: list[Put]

    @property
    def actions(self) -> list[Action]:
        return [*self.entries, *self.keys]


class Planner:
    """Decides about drafts, and reads what that needs."""

    def __init__(
        self,
        dynamo: Dynamo,
        states: DynamoChatStates,
        consents: DynamoConsents,
        keys: IdempotencyKeys,
        clock: Clock,
        random_bits: Callable[[int], int],
    ) -> None:
        self.dynamo = dynamo
        self.states = states
        self.consents = consents
        self.keys = keys
        self.clock = clock
        self._random_bits = random_bits

    async def plan(
        self, append: DynamoAppend, state: DynamoChatState, *, may_look_first: bool = False
    ) -> Plan:
        """Decide about the next drafts, until a transaction is full or a change wants its own.

        `may_look_first`: look up the ids of a large batch before it is planned.
        """
        first = append.drafts[append.todo[0]]
        is_fresh = first.change is not None or state.is_stale
        if is_fresh:
            await self.states.refresh(state)  # what a change may do must not rest on memory
        head, unkeyed = state.head, state.unkeyed  # of the same moment, which the write compares with
        if unkeyed:
            await self.keys.complete(state.chat_id, unkeyed)
            state.note_keyed(unkeyed)
        looked_up = _many_ids(append) if may_look_first else set[bytes]()
        append.originals |= await self.keys.find(state.chat_id, looked_up)
        rest = len(append.todo) - MESSAGES_PER_TRANSACTION_MAX if looked_up else 0
        membership = await self.states.membership(state, _people(append))
        plan = Plan([], [], membership, head)
        facts_of = FactFinder(self, append, state, membership)
        answered: list[int] = []
        content_bytes = 0
        while len(append.todo) > max(0, rest) and len(plan.indices) < MESSAGES_PER_TRANSACTION_MAX:
            index = append.todo[0]
            draft = append.drafts[index]
            if draft.change is not None and (plan.indices or not is_fresh):
                break
            content_bytes += len(encode_json(draft.content)) + draft.chars - len(draft.content)
            if content_bytes > CONTENT_BYTES_PER_TRANSACTION_MAX and plan.indices:
                break
            append.todo.popleft()
            twin = facts_of.planned.get(draft.client_key) if draft.client_key is not None else None
            decision = await facts_of.decide(draft)
            if twin is not None:
                plan.twins.append(Twin(index, twin, decision))
            elif isinstance(decision, Refusal):
                append.outcomes[index] = decision
            elif decision is Verdict.ANSWER:
                answered.append(index)
            else:
                plan.indices.append(index)
                if draft.client_key is not None:
                    facts_of.planned[draft.client_key] = index
                if draft.change is not None:
                    break
        if answered:
            await self._answer(append, state, answered)
        keys_apart = bool(looked_up) and len(plan.indices) >= KEYS_APART_MIN
        return plan._replace(join=facts_of.join, keys_apart=keys_apart)

    async def note_originals(
        self, append: DynamoAppend, keyed: Sequence[Placed], reasons: Sequence[CancellationReason]
    ) -> list[int]:
        """Remember the ids that a write has met in the log. Returns the drafts that this was about."""
        indices: list[int] = []
        unseen: set[bytes] = set()
        for one, reason in zip(keyed, reasons, strict=False):
            key = one.draft.client_key
            if reason.code == FAILED and key is not None:
                indices.append(one.index)
                if reason.item is not None:
                    append.originals[key] = reason.item
                else:
                    unseen.add(key)
        if unseen:
            append.originals |= await self.keys.find(append.chat_id, unseen)
        return [index for index in indices if append.drafts[index].client_key in append.originals]

    async def answer_retries(
        self, append: DynamoAppend, state: DynamoChatState, indices: Iterable[int]
    ) -> list[int]:
        """Answer those of these drafts whose sender has stored them already; that needs no other fact."""
        answered = []
        for index in indices:
            draft = append.drafts[index]
            found = append.originals.get(draft.client_key) if draft.client_key is not None else None
            if found is not None:
                facts = replace(NO_CHAT, original=stored_by(cast(str, found["sender_id"]), draft))
                if decide_append(draft, facts) is Verdict.ANSWER:
                    answered.append(index)
        if answered:
            await self._answer(append, state, answered)
        return answered

    async def _answer(self, append: DynamoAppend, state: DynamoChatState, indices: list[int]) -> None:
        """Answer drafts with their originals.

        They are read together: one by one, a store that answers late takes longer than a sender waits.
        """
        keys = {index: append.originals[cast(bytes, append.drafts[index].client_key)] for index in indices}
        items = await items_of_keys(self.dynamo, keys.values())
        for index, key in keys.items():
            draft, item = append.drafts[index], items.get(sequence_of(key))
            original = whole_entry(item) if item is not None else None
            if original is None:  # its entry has been trimmed: the key still knows where it was
                original = original_in(key, draft, state.epoch)
            append.outcomes[index] = answer_again(draft, original)

    def place(
        self, append: DynamoAppend, state: DynamoChatState, indices: list[int], numbers: list[int]
    ) -> list[Placed]:
        """Give drafts their positions and everything that travels with them."""
        now_ms = self.clock()
        created_at = iso(now_ms)
        state.id_ms = max(state.id_ms, now_ms)
        placed = []
        for index, sequence in zip(indices, numbers, strict=True):
            draft = append.drafts[index]
            name = message_id(state.id_ms, state.tag, sequence, self._random_bits(CHANCE_BITS))
            placed.append(Placed(index, draft, entry_of(draft, sequence, state.epoch, name, created_at)))
        return placed

    def puts(self, placed: list[Placed], *, may_bundle: bool) -> Puts:
        """The entries and keys of these drafts. `keyed` knows the order of the keys."""
        now_ms = self.clock()
        entries = [one.entry for one in placed]
        shares = bundled(entries) if may_bundle else ([entry] for entry in entries)
        items = [put_entries(share) for share in shares]
        item_of = {sequence: sequence_of(put.item) for put in items for sequence in span_of(put.item)}
        keys = [
            put_key(one.entry, one.draft.client_key, now_ms, item_of[one.entry.sequence])
            for one in placed
            if one.draft.client_key is not None
        ]
        return Puts(items, keys)

    def settle(
        self,
        append: DynamoAppend,
        state: DynamoChatState,
        plan: Plan,
        placed: Sequence[Placed] = (),
    ) -> None:
        append.settle(state, plan.twins, placed)


class FactFinder:
    """Gathers the facts about the drafts of one plan.

    The ids that they ask for are read together: one by one, a store that answers late takes too long.
    """

    def __init__(
        self, planner: Planner, append: DynamoAppend, state: DynamoChatState, membership: KnownMembers
    ) -> None:
        self._planner = planner
        self._append = append
        self._state = state
        self._membership = membership
        self._looked_up = set(append.originals)
        self._is_caught_up = not planner.keys.is_atomic
        """Whether all keys were there after the membership was read; in two_phase they come with entries."""
        self.planned: dict[bytes, int] = {}
        """Ids of the drafts that are planned so far."""
        self._sending: set[str] = set()
        """Senders of the messages that are planned so far."""
        self.join: changes.JoinWrites | None = None
        """What the last draft writes, if it is a join."""

    async def decide(self, draft: Draft) -> Decision:
        membership, state = self._membership, self._state
        facts = AppendFacts(
            role=membership.roles.get(draft.sender_id), trouble=self._append.trouble or state.trouble
        )
        if membership.accounts:
            facts.account = membership.account(draft.sender_id)
            facts.is_peer_deleted = any(
                membership.is_deleted(peer) for peer in state.pair if peer != draft.sender_id
            )
        if draft.sender_id in membership.blocked:
            facts.role, facts.is_blocked = Role.MEMBER, True
        if draft.client_key is not None:
            facts.original = self._known(draft, draft.client_key)
        if draft.after_key is not None:
            is_last = state.last_keys.get(draft.sender_id) == draft.after_key
            facts.predecessor = StoredBy.SENDER if is_last else self._known(draft, draft.after_key)
        if draft.change is not None:
            facts.change = changes.change_facts(draft.change, state, membership)
        facts.announcement_only, facts.slow_mode_seconds = state.announcement_only, state.slow_mode_seconds
        while isinstance(decision := decide_append(draft, facts), Missing):
            match decision:
                case Missing.ORIGINAL:
                    facts.original = await self._look_up(draft, cast(bytes, draft.client_key), self._own())
                case Missing.PREDECESSOR:
                    after = cast(bytes, draft.after_key)
                    facts.predecessor = await self._look_up(draft, after, self._predecessors())
                case Missing.LAST_SENT:
                    facts.since_last_ms = await self._since_last_ms(draft.sender_id)
                case Missing.JOIN:
                    assert facts.change is not None
                    facts.change.join, self.join = await changes.join_facts(
                        self._planner.consents, draft, state, self._planner.clock()
                    )
        if decision is Verdict.PLACE and draft.kind == MESSAGE:
            self._sending.add(draft.sender_id)
        return decision

    async def _since_last_ms(self, sender_id: str) -> int:
        """How long ago the sender's last message was: in this plan, or in the log."""
        if sender_id in self._sending:
            return 0
        state, now_ms = self._state, self._planner.clock()
        await state.sent.look(state.head, now_ms - LONG_AGO_MS, self._read_back)
        return state.sent.since_last_ms(sender_id, now_ms)

    async def _read_back(self, after: int, until: int) -> list[Row]:
        return await read_rows(self._planner.dynamo, self._state.chat_id, after, until, forward=False)

    def _known(self, draft: Draft, key: bytes) -> StoredBy:
        """Who has used an id, as far as that is known without a lookup."""
        first, original = self.planned.get(key), self._append.originals.get(key)
        if first is not None:
            return stored_by(self._append.drafts[first].sender_id, draft)
        if original is not None:
            return stored_by(cast(str, original["sender_id"]), draft)
        return StoredBy.NOBODY if key in self._looked_up else StoredBy.UNKNOWN

    async def _look_up(self, draft: Draft, key: bytes, others: set[bytes]) -> StoredBy:
        """The same with a lookup, together with other ids that will be asked for.

        What is not found may be in the log without its key. Then all ids that may be asked for are read once
        more, when the missing keys are written.
        """
        keys, chat_id = self._planner.keys, self._state.chat_id
        wanted = {key, *others} - self._looked_up
        found = await keys.find(chat_id, wanted)
        if not self._is_caught_up and wanted - found.keys():
            await keys.catch_up(chat_id)
            self._is_caught_up = True
            wanted |= (self._own() | self._predecessors()) - self._looked_up
            found |= await keys.find(chat_id, wanted - found.keys())
        self._append.originals |= found
        self._looked_up |= wanted
        return self._known(draft, key)

    def _own(self) -> set[bytes]:
        """One draft cannot be written, so perhaps no draft can: then it counts which are stored already."""
        return {draft.client_key for draft in self._append.drafts if draft.client_key is not None}

    def _predecessors(self) -> set[bytes]:
        """Ids to follow that neither memory nor these drafts know."""
        own, last_keys = self._own(), self._state.last_keys
        return {
            after
            for draft in self._append.drafts
            if (after := draft.after_key) is not None
            and after not in own
            and last_keys.get(draft.sender_id) != after
        }


def _many_ids(append: DynamoAppend) -> set[bytes]:
    """The ids of the drafts that the next transaction may hold; none if they are few."""
    ids = set[bytes]()
    for index in islice(append.todo, MESSAGES_PER_TRANSACTION_MAX):
        draft = append.drafts[index]
        if draft.change is not None:
            break
        if draft.client_key is not None:
            ids.add(draft.client_key)
    return ids if len(ids) >= KEYS_APART_MIN else set()


def _people(append: DynamoAppend) -> set[str]:
    """Whose roles the next drafts ask for."""
    people: set[str] = set()
    for index in append.todo:
        draft = append.drafts[index]
        people.add(draft.sender_id)
        if draft.change is not None and draft.change.user_id:
            people.add(draft.change.user_id)
    return people


class UnsavedMarks(Protocol):
    """How far each chat is on the bus, as far as it is not in the store yet."""

    def take_mark(self, chat_id: str) -> int | None:
        """The newest mark of a chat, if there is one that the store does not have."""
        ...


def mark_unpublished(marks: UnsavedMarks, state: DynamoChatState, values: Item) -> str:
    """More to set in the fence: that there is news, and how far older news is published."""
    values[":shard"] = state.shard
    mark = marks.take_mark(state.chat_id)
    if mark is None:
        return ", unpublished = :shard"
    values[":mark"] = mark
    return ", unpublished = :shard, published_through = :mark"


class PositionTaken(StoreError):
    """The transaction was not done and never will be: another entry stands at one of its positions."""


async def commit(dynamo: Dynamo, actions: list[Action], token: str, entries: Sequence[Put]) -> None:
    """Done when it returns. Not done: `TransactionCanceled`, `PositionTaken` or `StoreUnavailable`.

    `entries`: those of the actions that put entries. If the answer is lost, the log is asked: they stand
    there exactly if all of it was done. If they do not, the request may still be on its way, so the identical
    one goes out again under the same token, which DynamoDB does at most once. Only when that leads nowhere in
    time is it `OutcomeUnknown`.
    """
    time = asyncio.get_running_loop().time
    deadline = time() + RESOLVE_SECONDS_MAX
    was_lost = False
    while True:
        canceled: TransactionCanceled | None = None
        try:
            return await dynamo.transact(actions, token)
        except OutcomeUnknown:
            was_lost = True
        except TransactionCanceled as error:
            canceled = error
        except StoreUnavailable:
            if not was_lost:
                raise
        if canceled is not None and not was_lost:
            raise canceled
        standing = await _standing(dynamo, entries)
        if standing == len(entries):
            return None
        if canceled is not None and standing == 0:
            raise canceled
        if time() > deadline:
            raise OutcomeUnknown("DynamoDB did not say what became of a transaction")
        await asyncio.sleep(RESOLVE_PAUSE_SECONDS)


async def _standing(dynamo: Dynamo, entries: Sequence[Put]) -> int | None:
    """How many of these are at their positions, None if that cannot be read; `PositionTaken` for others.

    Compared as wholes: two nodes may give the same id to different messages at one position.
    """
    ours = {sequence_of(put.item): put.item for put in entries}
    places: list[Item] = [
        {"chat_id": put.item["chat_id"], "sequence": sequence_of(put.item)} for put in entries
    ]
    try:
        found = await dynamo.batch_get(MESSAGES, places)
    except StoreUnavailable:
        return None
    if any(item != ours[sequence_of(item)] for item in found):
        raise PositionTaken("another entry stands at this position")
    return len(found)
