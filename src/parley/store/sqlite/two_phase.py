"""Allocate, then write once: the sequencing of the sources, made safe by sealing.

Phase 1 takes numbers from the counter and remembers them as open; phase 2 writes the entries at those
numbers. A number whose draft is not written after all becomes a void, under the same unique index that
makes positions write-once: whoever comes second loses. Readers stop before the first open number, so
phase 1 first seals whatever is open and not under way here: what is acknowledged is never behind a
number that nobody will write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from parley.errors import BLOCKED, NOT_A_MEMBER, Refusal
from parley.model import AppendResult, Draft, Outcome, Persisted
from parley.store.sqlite import changes
from parley.store.sqlite.appending import CLOSE, Batch
from parley.store.sqlite.states import ChatState, ChatStates, Execute
from parley.store.sqlite.writer import Transaction

TAKE = (
    "UPDATE chat_counters SET sequence_counter = sequence_counter + 1, updated_at = ?, change = ?"
    " WHERE chat_id = ? RETURNING sequence_counter"
)
OPEN = "INSERT INTO open_allocations (chat_no, sequence, allocated_at_ms) VALUES (?, ?, ?)"
HIGHER = "SELECT 1 FROM entries WHERE chat_no = ? AND sequence > ? LIMIT 1"
IS_RESOLVED = "SELECT 1 FROM entries WHERE chat_no = ? AND sequence = ?"


class Allocated(Struct):
    """What phase 1 decided: an outcome, or the number to write at."""

    outcomes: list[Outcome | None]
    sequences: list[int]
    sealed: list[Persisted]


class UnderWay:
    """The numbers that this process has taken and may still write."""

    def __init__(self) -> None:
        self._numbers: set[tuple[int, int]] = set()

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    @contextmanager
    def taking(self) -> Iterator[Callable[[int, int], None]]:
        """Numbers taken through the answer count as under way until the end of the block."""
        mine: list[tuple[int, int]] = []

        def take(chat_no: int, sequence: int) -> None:
            mine.append((chat_no, sequence))
            self._numbers.add((chat_no, sequence))

        try:
            yield take
        finally:
            self._numbers.difference_update(mine)


class Written(Struct):
    """What phase 2 did. `retry` names the drafts whose number was sealed before they were written."""

    result: AppendResult
    retry: list[int]


def allocate(
    transaction: Transaction,
    states: ChatStates,
    drafts: list[Draft],
    now_ms: int,
    under_way: UnderWay,
    take: Callable[[int, int], None],
) -> Allocated:
    """Phase 1: answer retries and strangers, take a number for everybody else."""
    batch = Batch(transaction, states, now_ms, 0, 0)
    allocated = Allocated([], [], [])
    certain: set[tuple[str, str, bytes | None]] = set()
    changing: set[str] = set()
    for draft in drafts:
        outcome, state = _decide_early(batch, draft, changing)
        sequence = 0
        twin = draft.chat_id, draft.sender_id, draft.client_key
        if outcome is None and state is not None and twin not in certain:
            if state.open:
                batch.seal_abandoned(state, under_way)
            sequence = _take(batch, state, now_ms)
            take(state.chat_no, sequence)
            # A twin of what may still be refused needs a number of its own, or it would lose its place.
            if draft.client_key and not draft.after_key and draft.chat_id not in changing:
                certain.add(twin)
        allocated.outcomes.append(outcome)
        allocated.sequences.append(sequence)
    batch.insert()
    allocated.sealed = list(batch.persisted.values())
    return allocated


def _decide_early(batch: Batch, draft: Draft, changing: set[str]) -> tuple[Outcome | None, ChatState | None]:
    """The source's steps 1 and 2: the key first, then membership; what is left takes a number.

    Behind a change of the same chat in the same batch nobody knows yet who will be a member: phase 2 decides.
    """
    state = batch.states.within(batch.execute, draft.chat_id)
    if state is None:
        return NOT_A_MEMBER, None
    outcome = batch.answer_stored(draft, state)
    if draft.chat_id in changing:
        outcome = None if isinstance(outcome, Refusal) else outcome
    elif outcome is None:
        outcome = _refuse_early(batch, draft, state)
    if outcome is None:
        outcome = state.trouble
    if outcome is None and draft.change is not None:
        changing.add(draft.chat_id)
    return outcome, state


def _refuse_early(batch: Batch, draft: Draft, state: ChatState) -> Refusal | None:
    """Who may not write takes no number: a stranger must not leave voids in somebody's chat."""
    person = state.person(batch.execute, draft.sender_id)
    if person is not None and person.is_blocked:
        return BLOCKED
    if draft.change is None:
        return None if person else NOT_A_MEMBER
    decided = changes.decide(batch.execute, draft, state, person)
    return decided if isinstance(decided, Refusal) else None


def _take(batch: Batch, state: ChatState, now_ms: int) -> int:
    transaction = batch.transaction
    row: Any = batch.execute(TAKE, (batch.created_at, transaction.change, state.chat_id)).fetchone()
    assert row is not None, "the state was read in this transaction"
    sequence = int(row[0])
    batch.execute(OPEN, (state.chat_no, sequence, now_ms))
    state.open.add(sequence)
    state.allocated = sequence
    return sequence


def write(
    transaction: Transaction,
    states: ChatStates,
    drafts: list[Draft],
    allocated: Allocated,
    now_ms: int,
    first_id: int,
) -> Written:
    """Phase 2: write each draft at its number if nothing has changed, else leave a void there."""
    batch = Batch(transaction, states, now_ms, first_id, len(drafts))
    retry: list[int] = []
    for index, draft in enumerate(drafts):
        outcome = allocated.outcomes[index]
        if outcome is None:
            outcome = _write_one(batch, draft, allocated.sequences[index])
            if outcome is None:
                retry.append(index)
        batch.outcomes.append(outcome or NOT_A_MEMBER)
    batch.insert()
    for news in batch.persisted.values():
        state = states.within(batch.execute, news.chat_id)
        assert state is not None
        transaction.executemany(CLOSE, [(state.chat_no, stored.sequence) for stored in news.positions])
        _touch(transaction, news.chat_id)
    return Written(batch.result(), retry)


def _write_one(batch: Batch, draft: Draft, sequence: int) -> Outcome | None:
    """This draft's outcome; None when its number was sealed meanwhile."""
    state = batch.states.within(batch.execute, draft.chat_id)
    assert state is not None
    if sequence and batch.execute(IS_RESOLVED, (state.chat_no, sequence)).fetchone():
        return batch.answer_stored(draft, state)
    outcome = batch.answer_twin(draft, state) or batch.answer_stored(draft, state)
    if outcome is None and not sequence:
        return None  # its twin, which held the number, was refused: take one of its own
    if outcome is None:
        decided = batch.decide(draft, state)
        if not isinstance(decided, Refusal):
            if draft.change is not None:
                if _is_overtaken(batch, state, sequence):
                    batch.void(state, sequence)
                    return None
                changes.apply(batch.transaction, draft, state, sequence, batch.created_at)
            return batch.place(draft, state, decided, sequence)
        outcome = decided
    if sequence:
        batch.void(state, sequence)
    return outcome


def _is_overtaken(batch: Batch, state: ChatState, sequence: int) -> bool:
    """Whether a higher number is written: a change there would count for what was decided without it."""
    if any(row[0] == state.chat_no and row[1] > sequence for row in batch.rows):
        return True
    return batch.execute(HIGHER, (state.chat_no, sequence)).fetchone() is not None


def _touch(transaction: Transaction, chat_id: str) -> None:
    """The head may have moved: overviews must say so."""
    transaction.execute(
        "UPDATE chat_counters SET change = ? WHERE chat_id = ?", (transaction.change, chat_id)
    )


def seal(
    transaction: Transaction, states: ChatStates, allocated_before_ms: int, now_ms: int
) -> list[Persisted]:
    """Voids at every number that was taken before a time and not written since."""
    batch = Batch(transaction, states, now_ms, 0, 0)
    stale: list[Any] = transaction.execute(
        "SELECT chat_id, chat_no, sequence FROM open_allocations JOIN chats USING (chat_no)"
        " WHERE allocated_at_ms <= ? ORDER BY chat_no, sequence",
        (allocated_before_ms,),
    ).fetchall()
    for chat_id, chat_no, sequence in stale:
        state = states.within(transaction.execute, chat_id)
        assert state is not None
        if not _is_resolved(transaction.execute, chat_no, sequence):
            batch.void(state, sequence)
        transaction.execute(CLOSE, (chat_no, sequence))
    batch.insert()
    for chat_id in batch.persisted:
        _touch(transaction, chat_id)
    return list(batch.persisted.values())


def _is_resolved(execute: Execute, chat_no: int, sequence: int) -> bool:
    return execute(IS_RESOLVED, (chat_no, sequence)).fetchone() is not None
