"""Allocate, then write once: the sequencing of the sources, made safe by sealing.

Phase 1 takes numbers from the counter and remembers them as open; phase 2 writes the entries at those
numbers. A number whose draft is not written after all becomes a void, under the same unique index that
makes positions write-once: the second write fails. Readers stop before the first open number, so
phase 1 first seals every number that is open and not under way here: what is acknowledged is never behind a
number that will not be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from parley.core.append import Verdict
from parley.errors import STORE_UNAVAILABLE, Refusal
from parley.model import AppendResult, Draft, Outcome, Persisted
from parley.store.sqlite.append import CLOSE, AppendBatch
from parley.store.sqlite.chat_state import Execute, SqliteChatState, SqliteChatStates
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


class NumbersUnderWay:
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
    states: SqliteChatStates,
    drafts: list[Draft],
    now_ms: int,
    under_way: NumbersUnderWay,
    take: Callable[[int, int], None],
) -> Allocated:
    """Phase 1: answer retries and strangers, take a number for every other draft.

    Predecessors may still be under way, so they are left to phase 2. So is what depends on an earlier draft
    of the batch: who is a member behind a change, and what becomes of a draft whose id was used before it.
    """
    batch = AppendBatch(transaction, states, now_ms, 0, 0, look_up=True)
    allocated = Allocated([], [], [])
    numbered: dict[tuple[str, bytes | None], str] = {}
    certain: set[tuple[str, bytes | None]] = set()
    changing: set[str] = set()
    for draft in drafts:
        state = states.within(batch.execute, draft.chat_id)
        own, after = (draft.chat_id, draft.client_key), (draft.chat_id, draft.after_key)
        trouble = state.trouble if state is not None else None
        decision = batch.decide(draft, state, trouble, assume_predecessor=True)
        if isinstance(decision, Refusal) and numbered.get(after) != draft.sender_id:
            decision = batch.decide(draft, state, trouble)  # no number: which of its faults comes first?
        is_open = draft.chat_id in changing or (draft.client_key is not None and own in numbered)
        outcome, sequence = None, 0
        if decision is Verdict.ANSWER or (isinstance(decision, Refusal) and not is_open):
            outcome = batch.answer(draft, state, decision)
        elif own not in certain or numbered[own] != draft.sender_id:
            assert state is not None
            if draft.change is not None:
                changing.add(draft.chat_id)
            if state.open:
                batch.seal_abandoned(state, under_way)
            sequence = _take(batch, state, now_ms)
            take(state.chat_no, sequence)
            numbered.setdefault(own, draft.sender_id)
            # A twin of what may still be refused needs a number of its own, or it would lose its place.
            if draft.client_key and not draft.after_key and draft.chat_id not in changing:
                certain.add(own)
        allocated.outcomes.append(outcome)
        allocated.sequences.append(sequence)
    batch.insert()
    allocated.sealed = list(batch.persisted.values())
    return allocated


def _take(batch: AppendBatch, state: SqliteChatState, now_ms: int) -> int:
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
    states: SqliteChatStates,
    drafts: list[Draft],
    allocated: Allocated,
    now_ms: int,
    first_id: int,
) -> Written:
    """Phase 2: write each draft at its number if nothing has changed, else leave a void there."""
    batch = AppendBatch(transaction, states, now_ms, first_id, len(drafts), look_up=True)
    retry: list[int] = []
    for index, draft in enumerate(drafts):
        outcome = allocated.outcomes[index]
        if outcome is None:
            outcome = _write_one(batch, draft, allocated.sequences[index])
            if outcome is None:
                retry.append(index)
        batch.outcomes.append(outcome or STORE_UNAVAILABLE)
    batch.insert()
    for news in batch.persisted.values():
        state = states.within(batch.execute, news.chat_id)
        assert state is not None
        transaction.executemany(CLOSE, [(state.chat_no, stored.sequence) for stored in news.positions])
        _touch(transaction, news.chat_id)
    return Written(AppendResult(batch.outcomes, list(batch.persisted.values())), retry)


def _write_one(batch: AppendBatch, draft: Draft, sequence: int) -> Outcome | None:
    """This draft's outcome; None when it has no number of its own, or its number was sealed meanwhile."""
    state = batch.states.within(batch.execute, draft.chat_id)
    assert state is not None
    decision = batch.decide(draft, state)
    if not sequence or _is_resolved(batch.execute, state, sequence):
        return batch.answer(draft, state, decision) if decision is Verdict.ANSWER else None
    if decision is not Verdict.PLACE:
        batch.void(state, sequence)
        return batch.answer(draft, state, decision)
    if draft.change is not None and _is_overtaken(batch, state, sequence):
        batch.void(state, sequence)
        return None
    return batch.place(draft, state, sequence)


def _is_overtaken(batch: AppendBatch, state: SqliteChatState, sequence: int) -> bool:
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
    transaction: Transaction, states: SqliteChatStates, allocated_before_ms: int, now_ms: int
) -> list[Persisted]:
    """Voids at every number that was taken before a time and not written since."""
    batch = AppendBatch(transaction, states, now_ms, 0, 0, look_up=False)
    stale: list[Any] = transaction.execute(
        "SELECT chat_id, chat_no, sequence FROM open_allocations JOIN chats USING (chat_no)"
        " WHERE allocated_at_ms <= ? ORDER BY chat_no, sequence",
        (allocated_before_ms,),
    ).fetchall()
    for chat_id, chat_no, sequence in stale:
        state = states.within(transaction.execute, chat_id)
        assert state is not None
        if not _is_resolved(transaction.execute, state, sequence):
            batch.void(state, sequence)
        transaction.execute(CLOSE, (chat_no, sequence))
    batch.insert()
    for chat_id in batch.persisted:
        _touch(transaction, chat_id)
    return list(batch.persisted.values())


def _is_resolved(execute: Execute, state: SqliteChatState, sequence: int) -> bool:
    """Whether a position is written, here or in the cold tier: then nothing is written there again."""
    return sequence <= state.trimmed or execute(IS_RESOLVED, (state.chat_no, sequence)).fetchone() is not None
