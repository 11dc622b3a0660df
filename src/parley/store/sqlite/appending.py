"""How a batch of drafts becomes entries, inside one transaction.

Optimistic: nothing is looked up for a draft that is new, and the unique indexes catch what is not.
Only then does the writer run the batch again, carefully: with every key looked up first. One bad draft
is an outcome of its own and never fails its neighbours.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import apsw
import msgspec

from parley import ids
from parley.clock import iso
from parley.core.idempotency import answer_again
from parley.errors import BLOCKED, DUPLICATE_ID, NOT_A_MEMBER, OUT_OF_TURN, Refusal
from parley.model import Appended, AppendResult, Draft, Outcome, Persisted, Stored
from parley.store.sqlite import changes, schema
from parley.store.sqlite.states import ChatState, ChatStates
from parley.store.sqlite.writer import Transaction
from parley.wire.frames import Entry

encode_entry = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(Entry).decode

INSERT = (
    "INSERT INTO entries (chat_no, sequence, kind, sender_no, client_id, message_id, wire)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
ADVANCE = (
    "UPDATE chat_counters SET sequence_counter = ?, updated_at = ?, change = ?"
    " WHERE chat_id = ? AND sequence_counter = ?"
)
CLOSE = "DELETE FROM open_allocations WHERE chat_no = ? AND sequence = ?"
FIND_KEY = "SELECT wire FROM entries WHERE chat_no = ? AND client_id = ?"

Row = tuple[int, int, int, int | None, bytes | None, bytes | None, bytes | None]


class Batch:
    """One batch on its way: the drafts' outcomes so far and the rows that will make them true."""

    def __init__(
        self, transaction: Transaction, states: ChatStates, now_ms: int, first_id: int, size: int
    ) -> None:
        self.execute = transaction.execute
        self.transaction = transaction
        self.states = states
        self.created_at = iso(now_ms)
        self.outcomes: list[Outcome] = []
        self.rows: list[Row] = []
        self.planned: dict[tuple[int, bytes], tuple[Draft, Appended]] = {}
        self.persisted: dict[str, Persisted] = {}
        self.before: dict[str, int] = {}
        self._numbers = iter(range(first_id, first_id + size))
        self._message_ids = iter(ids.texts(ids.MESSAGE, first_id, size))

    def place(self, draft: Draft, state: ChatState, sender_no: int, sequence: int) -> Appended:
        """Give a draft its position and the bytes it will travel as."""
        message_id = next(self._message_ids)
        wire = encode_entry(
            Entry(
                chat_id=draft.chat_id,
                sequence=sequence,
                epoch=state.epoch,
                kind=draft.kind,
                message_id=message_id,
                sender_id=draft.sender_id,
                client_message_id=draft.client_message_id,
                content=draft.content,
                content_type=draft.content_type,
                created_at=self.created_at,
                server_timestamp=self.created_at,
                display_time=draft.display_time,
            )
        )
        key = draft.client_key
        kind = schema.MESSAGE if draft.change is None else schema.OTHER
        number = next(self._numbers).to_bytes(16, "big")
        self.rows.append((state.chat_no, sequence, kind, sender_no, key, number, wire))
        appended = Appended(
            message_id=message_id, sequence=sequence, epoch=state.epoch, created_at=self.created_at
        )
        if key is not None:
            self.planned[state.chat_no, key] = draft, appended
            state.last_keys[draft.sender_id] = key
        self.note(state, Stored(sequence, wire, draft.change, draft.request_id))
        return appended

    def note(self, state: ChatState, position: Stored) -> None:
        news = self.persisted.get(state.chat_id)
        if news is None:
            news = self.persisted[state.chat_id] = Persisted(state.chat_id, state.epoch, [])
        news.positions.append(position)

    def void(self, state: ChatState, sequence: int) -> None:
        self.rows.append((state.chat_no, sequence, schema.VOID, None, None, None, None))
        self.note(state, Stored(sequence, None))

    def seal_abandoned(self, state: ChatState, under_way: Container[tuple[int, int]] = ()) -> None:
        """Void what the counter has given away and nobody here will write.

        Done before anything is written above it: what is acknowledged is never behind an open number.
        """
        abandoned = [s for s in state.open if (state.chat_no, s) not in under_way]
        for sequence in sorted(abandoned):
            self.void(state, sequence)
            self.execute(CLOSE, (state.chat_no, sequence))
        state.open.difference_update(abandoned)

    def decide(self, draft: Draft, state: ChatState) -> int | Refusal:
        """The sender's number, or why this draft may not be written now."""
        person = state.person(self.execute, draft.sender_id)
        if person is not None and person.is_blocked:
            return BLOCKED
        if draft.change is not None:
            return changes.decide(self.execute, draft, state, person)
        if person is None:
            return NOT_A_MEMBER
        after = draft.after_key
        if (
            after is None
            or state.last_keys.get(draft.sender_id) == after
            or self._is_stored(draft, state, after)
        ):
            return person.number
        return OUT_OF_TURN

    def _is_stored(self, draft: Draft, state: ChatState, after: bytes) -> bool:
        twin = self.planned.get((state.chat_no, after))
        if twin is not None:
            return twin[0].sender_id == draft.sender_id
        found = self.find(state, after)
        return found is not None and found.sender_id == draft.sender_id

    def find(self, state: ChatState, key: bytes) -> Entry | None:
        row: Any = self.execute(FIND_KEY, (state.chat_no, key)).fetchone()
        return decode_entry(row[0]) if row else None

    def answer_twin(self, draft: Draft, state: ChatState) -> Outcome | None:
        """The outcome of a draft whose id was used earlier in this batch."""
        if draft.client_key is None:
            return None
        twin = self.planned.get((state.chat_no, draft.client_key))
        if twin is None:
            return None
        first, appended = twin
        if first.sender_id != draft.sender_id:
            return self._taken(draft, state)
        conflict = (first.content, first.content_type) != (draft.content, draft.content_type)
        return msgspec.structs.replace(appended, deduplicated=True, conflict=conflict)

    def answer_stored(self, draft: Draft, state: ChatState) -> Outcome | None:
        """The outcome of a draft whose id is in the log already: the original, for its sender alone."""
        if draft.client_key is None:
            return None
        found = self.find(state, draft.client_key)
        if found is None:
            return None
        if found.sender_id != draft.sender_id:
            return self._taken(draft, state)
        return answer_again(draft, found)

    def _taken(self, draft: Draft, state: ChatState) -> Refusal:
        """Only a member learns that an id is taken; to anybody else the chat does not exist."""
        return DUPLICATE_ID if state.person(self.execute, draft.sender_id) else NOT_A_MEMBER

    def insert(self) -> None:
        """Write the rows; ConstraintError when one of them is not new."""
        self.transaction.executemany(INSERT, self.rows)

    def result(self) -> AppendResult:
        return AppendResult(self.outcomes, list(self.persisted.values()))


def append_atomic(
    transaction: Transaction, states: ChatStates, drafts: list[Draft], now_ms: int, first_id: int
) -> AppendResult:
    """Entries, keys and heads in one transaction: no gap can form."""
    batch = Batch(transaction, states, now_ms, first_id, len(drafts))
    look_up = transaction.is_careful
    for draft in drafts:
        batch.outcomes.append(_plan(batch, draft, look_up))
    try:
        batch.insert()
    except apsw.ConstraintError as error:
        raise Collision("a client id was not new") from error
    _advance(batch)
    result = batch.result()
    result.conflicts = int(look_up)
    return result


class Collision(Exception):
    """A row was not what an optimistic batch took it for: the writer runs it again, carefully."""


def _plan(batch: Batch, draft: Draft, look_up: bool) -> Outcome:
    state = batch.states.within(batch.execute, draft.chat_id)
    if state is None:
        return NOT_A_MEMBER
    outcome = batch.answer_twin(draft, state) or (batch.answer_stored(draft, state) if look_up else None)
    if outcome is not None:
        return outcome
    decided = batch.decide(draft, state)
    if isinstance(decided, int) and state.trouble is not None:
        decided = state.trouble
    if isinstance(decided, Refusal):
        # A retry is answered with its original, whatever has changed since.
        return (None if look_up else batch.answer_stored(draft, state)) or decided
    if draft.chat_id not in batch.before:
        batch.before[draft.chat_id] = state.allocated
        if state.open:
            batch.seal_abandoned(state)
    sequence = state.allocated = state.allocated + 1
    if draft.change is not None:
        changes.apply(batch.transaction, draft, state, sequence, batch.created_at)
    return batch.place(draft, state, decided, sequence)


def _advance(batch: Batch) -> None:
    """Move every counter from exactly where memory says it is."""
    if not batch.before:
        return
    change, now, states = batch.transaction.change, batch.created_at, batch.states
    moves = []
    for chat_id, before in batch.before.items():
        state = states.known(chat_id)
        assert state is not None
        moves.append((state.allocated, now, change, chat_id, before))
    connection = batch.transaction.connection
    moved_before = connection.total_changes()
    batch.transaction.executemany(ADVANCE, moves)
    if connection.total_changes() - moved_before != len(moves):
        raise Collision("a counter was not where memory had it")
