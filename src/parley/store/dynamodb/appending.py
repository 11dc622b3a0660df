"""How the drafts of one chat become entries: what both ways of taking a number have in common.

Optimistic: nothing is looked up for a draft that is new, and the conditions of the write catch what is not.
One bad draft is an outcome of its own and never fails its neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

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
    sequence_of,
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
        self.found: dict[bytes, Item] = {}
        """Ids that are in the log already: they stay there, however often this is tried."""

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


class Looks:
    """The ids that one run asks for, read together: one by one, a store that answers late takes too long.

    `has_refused`: some drafts cannot be written now, so that it counts which of them are stored already.
    """

    def __init__(self, desk: Desk, work: Work, state: ChatState) -> None:
        self._desk = desk
        self._work = work
        self._state = state
        self._found: dict[bytes, Item | None] = {**work.found}
        self.has_refused = False

    async def find(self, key: bytes) -> Item | None:
        if key not in self._found:
            wanted = {key, *self._likely()} - self._found.keys()
            found = await self._desk.find_keys(self._state.chat_id, wanted)
            self._found |= found
            self._work.found |= {key: item for key, item in found.items() if item is not None}
        return self._found[key]

    def _likely(self) -> set[bytes]:
        """What else will be asked for: ids to follow that neither memory nor these drafts know, or all."""
        drafts = self._work.drafts
        own = {draft.client_key for draft in drafts if draft.client_key is not None}
        if self.has_refused:
            return own
        return {
            after
            for draft in drafts
            if (after := draft.after_key) is not None
            and after not in own
            and self._state.last_keys.get(draft.sender_id) != after
        }


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
        refused: dict[int, Refusal] = {}
        looks = Looks(self, work, state)
        content_bytes = 0
        while work.todo and len(run.indices) < MESSAGES_PER_TRANSACTION_MAX:
            draft = work.drafts[work.todo[0]]
            content_bytes += len(encode_json(draft.content))
            is_full = draft.change is not None or content_bytes > CONTENT_BYTES_PER_TRANSACTION_MAX
            if is_full and run.indices:
                break
            index = work.todo.popleft()
            refusal = await self._sort_in(work, state, run, keys, index, answered, looks)
            if refusal is not None:
                refused[index] = refusal
                looks.has_refused = True
            if draft.change is not None and run.indices:
                break
        if refused:
            await self._answer_refused(work, state, known, refused, looks)
        return run

    async def _sort_in(
        self,
        work: Work,
        state: ChatState,
        run: Run,
        keys: dict[bytes, int],
        index: int,
        answered: dict[int, Outcome],
        looks: Looks,
    ) -> Refusal | None:
        """One draft: answered already, a twin of an earlier one, part of the run, or refused for this."""
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
            refusal = await self.decide(draft, state, run.known, keys, work, looks) or state.trouble
            if refusal is not None:
                return refusal
            run.indices.append(index)
            if draft.client_key is not None:
                keys[draft.client_key] = index
        return None

    async def _answer_refused(
        self, work: Work, state: ChatState, known: Known, refused: dict[int, Refusal], looks: Looks
    ) -> None:
        """A retry is answered with its original, whatever has changed since."""
        stored: dict[int, Item] = {}
        for index in refused:
            name = work.drafts[index].client_key
            key = await looks.find(name) if name is not None else None
            if key is not None:
                stored[index] = key
        pairs = [(work.drafts[index], key) for index, key in stored.items()]
        answers = await self.answer_keys(state, known, pairs)
        work.outcomes |= refused | dict(zip(stored, answers, strict=True))

    async def decide(
        self,
        draft: Draft,
        state: ChatState,
        known: Known,
        keys: dict[bytes, int],
        work: Work,
        looks: Looks,
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
            key = await looks.find(after)
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

    async def find_keys(self, chat_id: str, keys: Iterable[bytes]) -> dict[bytes, Item | None]:
        """The same for several, in one request."""
        by_name = {cast(str, key_of(chat_id, key)["client_message_id"]): key for key in keys}
        places: list[Item] = [{"chat_id": chat_id, "client_message_id": name} for name in sorted(by_name)]
        found: dict[bytes, Item | None] = dict.fromkeys(by_name.values())
        for item in await self.dynamo.batch_get(KEYS, places):
            if is_live(item, self.clock()):
                found[by_name[cast(str, item["client_message_id"])]] = item
        return found

    async def answer_duplicates(
        self, state: ChatState, known: Known, met: Sequence[tuple[Draft, Reason]]
    ) -> list[Outcome]:
        """The outcomes of drafts whose ids a write has met in the log: the originals."""
        pairs: list[tuple[Draft, Item]] = []
        for draft, reason in met:
            key = reason.item
            if key is None and draft.client_key is not None:
                key = await self.find_key(draft.chat_id, draft.client_key)
            if key is None:
                raise StoreUnavailable("an id was taken, and now it is not")
            pairs.append((draft, key))
        return await self.answer_keys(state, known, pairs)

    async def answer_keys(
        self, state: ChatState, known: Known, pairs: Sequence[tuple[Draft, Item]]
    ) -> list[Outcome]:
        """The outcomes of drafts whose ids are in the log already: the originals, for their senders alone.

        They are read together: one by one, a store that answers late takes longer than a sender waits.
        """
        numbers = sorted({cast(int, key["sequence"]) for _, key in pairs})
        places: list[Item] = [{"chat_id": state.chat_id, "sequence": number} for number in numbers]
        items = {sequence_of(item): item for item in await self.dynamo.batch_get(MESSAGES, places)}
        return [self._answer_key(draft, state, known, key, items) for draft, key in pairs]

    @staticmethod
    def _answer_key(
        draft: Draft, state: ChatState, known: Known, key: Item, items: dict[int, Item]
    ) -> Outcome:
        if key["sender_id"] != draft.sender_id:
            return taken(draft, known)
        item = items.get(cast(int, key["sequence"]))
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
