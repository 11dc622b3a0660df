"""How the drafts of one chat become entries: what both ways of taking a number have in common.

Optimistic: nothing is looked up for a draft that is new, and the conditions of the write catch what is not.
One bad draft is an outcome of its own and never fails its neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from parley.clock import Clock, iso
from parley.core.idempotency import answer_again
from parley.errors import (
    BLOCKED,
    DUPLICATE_ID,
    NOT_A_MEMBER,
    OUT_OF_TURN,
    OUTCOME_UNKNOWN,
    Refusal,
    StoreUnavailable,
)
from parley.model import Appended, Draft, Outcome, Persisted, Stored
from parley.store.dynamodb import changes
from parley.store.dynamodb.actions import Action
from parley.store.dynamodb.client import Dynamo, Reason
from parley.store.dynamodb.entries import (
    KEYS,
    MESSAGES,
    encode_entry,
    encode_json,
    entry_in,
    entry_of,
    is_live,
    key_of,
    put_entry,
    put_key,
)
from parley.store.dynamodb.message_ids import CHANCE_BITS, message_id
from parley.store.dynamodb.states import PEOPLE_REMEMBERED_MAX, ChatState, ChatStates, Known
from parley.store.dynamodb.values import Item
from parley.wire.frames import Entry
from parley.wire.limits import KIB, MESSAGE_BYTES_MAX

MESSAGES_PER_TRANSACTION_MAX = 49
"""100 actions: the fence, 49 entries, 49 keys, and one that a change of the fence may need."""
TRANSACTION_BYTES_MAX = 4_000_000
CONTENT_BYTES_PER_TRANSACTION_MAX = 3_300_000
"""As it travels: a control character is six bytes in JSON, and too long a request is not even read."""
ITEM_BYTES_BESIDE_CONTENT_MAX = 6 * KIB
"""Ids of up to 1 KiB each, names, times and types."""
assert MESSAGES_PER_TRANSACTION_MAX * (MESSAGE_BYTES_MAX + 2) <= CONTENT_BYTES_PER_TRANSACTION_MAX
assert (
    CONTENT_BYTES_PER_TRANSACTION_MAX + 2 * MESSAGES_PER_TRANSACTION_MAX * ITEM_BYTES_BESIDE_CONTENT_MAX
    < TRANSACTION_BYTES_MAX
), "the entries and the keys of a full transaction fit"


class Placed(Struct):
    """A draft with its position in the log, not yet written."""

    index: int
    draft: Draft
    entry: Entry

    @property
    def outcome(self) -> Appended:
        entry = self.entry
        return Appended(
            message_id=entry.message_id,
            sequence=entry.sequence,
            epoch=entry.epoch,
            created_at=entry.created_at,
        )

    @property
    def stored(self) -> Stored:
        draft = self.draft
        return Stored(self.entry.sequence, encode_entry(self.entry), draft.change, draft.request_id)


class Work:
    """One append to one chat: what is still to do, and what became of the rest."""

    def __init__(self, chat_id: str, drafts: list[Draft]) -> None:
        self.chat_id = chat_id
        self.drafts = drafts
        self.todo = deque(range(len(drafts)))
        self.outcomes: dict[int, Outcome] = {}
        self.positions: list[Stored] = []
        self.epoch = 0
        self.published: int | None = None
        self.conflicts = 0

    def refuse_rest(self, refusal: Refusal) -> None:
        """Whatever has no outcome yet was certainly not written: see `leave_open`."""
        for index in range(len(self.drafts)):
            self.outcomes.setdefault(index, refusal)
        self.todo.clear()

    def leave_open(self, placed: list[Placed]) -> None:
        """Nobody knows what became of these: neither acknowledged nor refused."""
        for one in placed:
            self.outcomes[one.index] = OUTCOME_UNKNOWN

    def put_back(self, indices: list[int]) -> None:
        """These are to be done again, in their old order."""
        self.todo = deque(sorted([*indices, *self.todo]))

    @property
    def news(self) -> Persisted | None:
        if not self.positions:
            return None
        positions = sorted(self.positions, key=lambda at: at.sequence)
        return Persisted(self.chat_id, self.epoch, positions, self.published)


class Run(NamedTuple):
    """The next drafts that go into one transaction, and those that will be answered with one of them."""

    indices: list[int]
    twins: list[tuple[int, int]]
    known: Known


class Desk:
    """Decides about drafts, with whatever has to be read for it."""

    def __init__(
        self, dynamo: Dynamo, states: ChatStates, clock: Clock, random_bits: Callable[[int], int]
    ) -> None:
        self.dynamo = dynamo
        self.states = states
        self.clock = clock
        self.random_bits = random_bits

    async def next_run(self, work: Work, state: ChatState, answered: dict[int, Outcome]) -> Run:
        """Take drafts from what is to do, until a transaction is full or a change wants its own."""
        first = work.drafts[work.todo[0]]
        if first.change is not None or state.is_stale:
            await self.states.refresh(state)  # what a change may do must not rest on memory
        known = await self.states.know(state, _people(work))
        run = Run([], [], known)
        keys: dict[bytes, int] = {}
        content_bytes = 0
        while work.todo and len(run.indices) < MESSAGES_PER_TRANSACTION_MAX:
            draft = work.drafts[work.todo[0]]
            content_bytes += len(encode_json(draft.content))
            is_full = draft.change is not None or content_bytes > CONTENT_BYTES_PER_TRANSACTION_MAX
            if is_full and run.indices:
                break
            index = work.todo.popleft()
            await self._sort_in(work, state, run, keys, index, answered)
            if draft.change is not None and run.indices:
                break
        return run

    async def _sort_in(
        self,
        work: Work,
        state: ChatState,
        run: Run,
        keys: dict[bytes, int],
        index: int,
        answered: dict[int, Outcome],
    ) -> None:
        """One draft: answered already, a twin of an earlier one, refused, or part of the run."""
        draft = work.drafts[index]
        twin = keys.get(draft.client_key) if draft.client_key is not None else None
        if index in answered:
            work.outcomes[index] = answered[index]
        elif twin is not None:
            if work.drafts[twin].sender_id == draft.sender_id:
                run.twins.append((index, twin))
            else:
                work.outcomes[index] = taken(draft, run.known)
        else:
            refusal = await self.decide(draft, state, run.known, keys, work) or state.trouble
            if refusal is None:
                run.indices.append(index)
                if draft.client_key is not None:
                    keys[draft.client_key] = index
            else:  # a retry is answered with its original, whatever has changed since
                work.outcomes[index] = await self.answer_stored(draft, state, run.known) or refusal

    async def decide(
        self, draft: Draft, state: ChatState, known: Known, keys: dict[bytes, int], work: Work
    ) -> Refusal | None:
        """Why this draft may not be written now; None when it may."""
        refusal = await self.decide_member(draft, state, known)
        after = draft.after_key
        if refusal is not None or after is None or state.last_keys.get(draft.sender_id) == after:
            return refusal
        earlier = keys.get(after)
        if earlier is not None:
            is_stored = work.drafts[earlier].sender_id == draft.sender_id
        else:
            key = await self.find_key(draft.chat_id, after)
            is_stored = key is not None and key["sender_id"] == draft.sender_id
        return None if is_stored else OUT_OF_TURN

    async def decide_member(self, draft: Draft, state: ChatState, known: Known) -> Refusal | None:
        """Whether its sender may write this, as far as the membership goes."""
        if draft.sender_id in known.blocked:
            return BLOCKED
        if draft.change is not None:
            return await changes.decide(self.dynamo, draft, state, known)
        return None if draft.sender_id in known.roles else NOT_A_MEMBER

    async def find_key(self, chat_id: str, key: bytes) -> Item | None:
        """An idempotency key that still counts, read strongly."""
        found = await self.dynamo.get(KEYS, key_of(chat_id, key))
        return found if found is not None and is_live(found, self.clock()) else None

    async def answer_stored(self, draft: Draft, state: ChatState, known: Known) -> Outcome | None:
        """The outcome of a draft whose id is in the log already: the original, for its sender alone."""
        if draft.client_key is None:
            return None
        key = await self.find_key(draft.chat_id, draft.client_key)
        return None if key is None else await self.answer_key(draft, state, known, key)

    async def answer_duplicate(self, draft: Draft, state: ChatState, known: Known, reason: Reason) -> Outcome:
        """The same when the write has met the key."""
        key = reason.item
        if key is None and draft.client_key is not None:
            key = await self.find_key(draft.chat_id, draft.client_key)
        if key is None:
            raise StoreUnavailable("an id was taken, and now it is not")
        return await self.answer_key(draft, state, known, key)

    async def answer_key(self, draft: Draft, state: ChatState, known: Known, key: Item) -> Outcome:
        if key["sender_id"] != draft.sender_id:
            return taken(draft, known)
        place: Item = {"chat_id": draft.chat_id, "sequence": key["sequence"]}
        item = await self.dynamo.get(MESSAGES, place)
        original = entry_in(item) if item is not None else None
        if original is None:  # its entry has been trimmed: the key still knows where it was
            return Appended(
                message_id=str(key["message_id"]),
                sequence=int(key["sequence"] or 0),
                epoch=state.epoch,
                created_at=str(key["created_at"]),
                deduplicated=True,
            )
        return answer_again(draft, original)

    def place(self, work: Work, state: ChatState, indices: list[int], numbers: list[int]) -> list[Placed]:
        """Give drafts their positions and everything that travels with them."""
        now_ms = self.clock()
        created_at = iso(now_ms)
        state.id_ms = max(state.id_ms, now_ms)
        placed = []
        for index, sequence in zip(indices, numbers, strict=True):
            draft = work.drafts[index]
            name = message_id(state.id_ms, state.tag, sequence, self.random_bits(CHANCE_BITS))
            placed.append(Placed(index, draft, entry_of(draft, sequence, state.epoch, name, created_at)))
        return placed

    def puts(self, placed: list[Placed]) -> list[Action]:
        """Entries, then keys. `keyed` knows this order."""
        now_ms = self.clock()
        entries: list[Action] = [put_entry(one.entry) for one in placed]
        keys: list[Action] = [
            put_key(one.draft, one.draft.client_key, one.entry, now_ms)
            for one in placed
            if one.draft.client_key is not None
        ]
        return entries + keys

    def settle(self, work: Work, state: ChatState, run: Run, placed: list[Placed]) -> None:
        """It is durable: tell everybody what became of their drafts."""
        work.epoch, work.published = state.epoch, state.published
        if len(state.last_keys) > PEOPLE_REMEMBERED_MAX:
            state.last_keys.clear()
        for one in placed:
            work.outcomes[one.index] = one.outcome
            work.positions.append(one.stored)
            if one.draft.client_key is not None:
                state.last_keys[one.draft.sender_id] = one.draft.client_key
        self.answer_twins(work, run)

    @staticmethod
    def answer_twins(work: Work, run: Run) -> None:
        """Twins hear what became of the first; if it was not written now, they are decided by themselves."""
        for index, first in run.twins:
            outcome = work.outcomes.get(first)
            if outcome is OUTCOME_UNKNOWN:
                work.outcomes[index] = outcome
            elif isinstance(outcome, Appended) and not outcome.deduplicated:
                work.outcomes[index] = again(work.drafts[index], work.drafts[first], outcome)
            else:
                work.put_back([index])


def keyed(placed: list[Placed]) -> list[Placed]:
    """Those with a client's id, in the order of their keys in `Desk.puts`."""
    return [one for one in placed if one.draft.client_key is not None]


def taken(draft: Draft, known: Known) -> Refusal:
    """Only a member learns that an id is taken; to anybody else the chat does not exist."""
    if draft.sender_id in known.blocked:
        return BLOCKED
    return DUPLICATE_ID if draft.sender_id in known.roles else NOT_A_MEMBER


def again(draft: Draft, first: Draft, outcome: Appended) -> Appended:
    """The answer to a draft whose id was used by an earlier one of the same sender."""
    return Appended(
        message_id=outcome.message_id,
        sequence=outcome.sequence,
        epoch=outcome.epoch,
        created_at=outcome.created_at,
        deduplicated=True,
        conflict=(first.content, first.content_type) != (draft.content, draft.content_type),
    )


def _people(work: Work) -> set[str]:
    """Whose roles the next drafts ask for."""
    people: set[str] = set()
    for index in work.todo:
        draft = work.drafts[index]
        people.add(draft.sender_id)
        if draft.change is not None and draft.change.user_id:
            people.add(draft.change.user_id)
    return people
