"""How a batch of drafts becomes entries, inside one transaction.

Optimistic: nothing is looked up for a draft that is new, and the unique indexes catch what is not.
Only then does the writer run the batch again, carefully: with every key looked up first. One bad draft
is an outcome of its own and never fails its neighbours.
"""

from __future__ import annotations

from collections.abc import Container
from copy import copy
from typing import Any

import apsw

from parley import ids
from parley.clock import iso
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
from parley.errors import Refusal
from parley.model import Appended, AppendResult, Draft, Kind, Outcome, Persisted, StoredEntry
from parley.store.entries import entry_of
from parley.store.paging import stored_entry
from parley.store.sqlite import changes, schema
from parley.store.sqlite.chat_state import SqliteChatState, SqliteChatStates, user_no
from parley.store.sqlite.writer import Transaction
from parley.wire.codec import encode_entry
from parley.wire.frames import Entry

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
FIND_ARCHIVED_KEY = (
    "SELECT sequence, message_id, archived_keys.created_at, user_id FROM archived_keys"
    " JOIN user_numbers ON user_no = sender_no WHERE chat_no = ? AND client_id = ?"
)

MESSAGE = Kind.MESSAGE.value
PLACE = Verdict.PLACE
STRANGER = AppendFacts(role=None)

Row = tuple[int, int, int, int | None, bytes | None, bytes | None, bytes | None]


class Collision(Exception):
    """A row was not what an optimistic batch took it for: the writer runs it again, carefully."""


class CounterMoved(Collision):
    """A counter was not where memory had it: another program wrote, and the append decides again."""


def append_atomic(
    transaction: Transaction, states: SqliteChatStates, drafts: list[Draft], now_ms: int, first_id: int
) -> AppendResult:
    """Entries, keys and heads in one transaction: no gap can form."""
    batch = AppendBatch(transaction, states, now_ms, first_id, len(drafts), transaction.is_careful)
    before: dict[SqliteChatState, int] = {}
    for draft in drafts:
        state = states.within(batch.execute, draft.chat_id)
        decision = batch.decide(draft, state, state.trouble if state is not None else None)
        if decision is not PLACE:
            batch.outcomes.append(batch.answer(draft, state, decision))
            continue
        assert state is not None
        if state not in before:
            before[state] = state.allocated
            if state.open:
                batch.seal_abandoned(state)
        state.allocated += 1
        batch.outcomes.append(batch.place(draft, state, state.allocated))
    try:
        batch.insert()
    except apsw.ConstraintError as error:
        raise Collision("a client id was not new") from error
    if before:  # each counter moves from where memory has it, or the batch runs again
        now, change = batch.created_at, transaction.change
        moves = [(state.allocated, now, change, state.chat_id, old) for state, old in before.items()]
        changes_before = transaction.connection.total_changes()
        transaction.executemany(ADVANCE, moves)
        if transaction.connection.total_changes() - changes_before != len(moves):
            raise CounterMoved("a counter was not where memory had it")
    return AppendResult(batch.outcomes, list(batch.persisted.values()))


class AppendBatch:
    """One batch on its way: the drafts' outcomes so far and the rows that will make them true.

    `look_up`: whether the draft's own id is looked up before anything is decided.
    """

    def __init__(
        self,
        transaction: Transaction,
        states: SqliteChatStates,
        now_ms: int,
        first_id: int,
        size: int,
        look_up: bool,
    ) -> None:
        self.execute = transaction.execute
        self.transaction = transaction
        self.states = states
        self.now_ms = now_ms
        self.created_at = iso(now_ms)
        self.outcomes: list[Outcome] = []
        self.rows: list[Row] = []
        self.persisted: dict[str, Persisted] = {}
        self._look_up = look_up
        self._by_key: dict[tuple[int, bytes], bytes] = {}
        """Entries as they travel, by client id: those of this batch, and those found in the log."""
        names = ids.texts(ids.MESSAGE, first_id, size)
        numbers = [number.to_bytes(16, "big") for number in range(first_id, first_id + size)]
        self._message_ids = zip(names, numbers, strict=True)
        """As they travel, and as they are stored."""

    def decide(
        self,
        draft: Draft,
        state: SqliteChatState | None,
        trouble: Refusal | None = None,
        assume_predecessor: bool = False,
    ) -> Decision:
        """What becomes of a draft, as of the open transaction."""
        if state is None:
            return decide_append(draft, NO_CHAT)
        sender = state.sender(self.execute, draft.sender_id)
        key, after = draft.client_key, draft.after_key
        is_in_turn = assume_predecessor or (
            after is not None and state.last_keys.get(draft.sender_id) == after
        )
        if sender is None:
            known = STRANGER
        else:
            known = sender.facts_in_turn if is_in_turn else sender.facts
        look_up = self._look_up or state.has_archived_keys
        is_known_id = key is not None and (look_up or (state.chat_no, key) in self._by_key)
        if not is_known_id and trouble is None and draft.change is None and (after is None or is_in_turn):
            decision = decide_append(draft, known)  # usually it is placed
            if type(decision) is not Missing:
                return decision
        facts = copy(known)
        facts.trouble = trouble
        if is_known_id:
            facts.original = self._stored_by(draft, state, key)
        if draft.change is not None:
            facts.change = changes.change_facts(
                self.execute, draft.change, state, by_operator=draft.by_operator
            )
        while isinstance(decision := decide_append(draft, facts), Missing):
            match decision:
                case Missing.ORIGINAL:
                    facts.original = self._stored_by(draft, state, key)
                case Missing.PREDECESSOR:
                    facts.predecessor = self._stored_by(draft, state, after)
                case Missing.LAST_SENT:
                    assert sender is not None
                    facts.since_last_ms = state.since_last_ms(self.execute, sender.number, self.now_ms)
                case Missing.JOIN:
                    assert facts.change is not None
                    facts.change.join = changes.join_facts(self.execute, draft, state, self.created_at)
        return decision

    def _stored_by(self, draft: Draft, state: SqliteChatState, key: bytes | None) -> StoredBy:
        found = self._find(draft, state, key)
        return stored_by(found.sender_id if found is not None else None, draft)

    def _find(self, draft: Draft, state: SqliteChatState, key: bytes | None) -> Entry | None:
        """The entry under a client id, earlier in this batch or in the log.

        Of one that is archived, as far as its key tells: its content counts as the draft's.
        """
        assert key is not None
        wire = self._by_key.get((state.chat_no, key))
        if wire is None:
            row: Any = self.execute(FIND_KEY, (state.chat_no, key)).fetchone()
            if row:
                wire = self._by_key[state.chat_no, key] = row[0]
        if wire is not None:
            return stored_entry(draft.chat_id, wire)
        if state.has_archived_keys:
            archived: Any = self.execute(FIND_ARCHIVED_KEY, (state.chat_no, key)).fetchone()
            if archived:
                sequence, message_id, created_at, sender_id = archived
                number = int.from_bytes(message_id, "big")
                name = ids.texts(ids.MESSAGE, number, 1)[0]
                entry = entry_of(draft, sequence, state.epoch, name, created_at)
                entry.sender_id = sender_id
                return entry
        return None

    def answer(self, draft: Draft, state: SqliteChatState | None, decision: Decision) -> Outcome:
        """The outcome of a draft that is not placed."""
        if isinstance(decision, Refusal):
            return decision
        assert state is not None
        original = self._find(draft, state, draft.client_key)
        assert original is not None
        return answer_again(draft, original)

    def place(self, draft: Draft, state: SqliteChatState, sequence: int) -> Appended:
        """Give a draft its position and the bytes it will travel as, and do what it changes."""
        sender = state.senders.get(draft.sender_id)
        sender_no = sender.number if sender is not None else user_no(self.execute, draft.sender_id)
        if draft.change is not None:
            changes.apply(self.transaction, draft, state, sequence, self.created_at)
        message_id, number = next(self._message_ids)
        wire = encode_entry(entry_of(draft, sequence, state.epoch, message_id, self.created_at))
        key = draft.client_key
        kind = schema.MESSAGE if draft.kind == MESSAGE else schema.OTHER
        self.rows.append((state.chat_no, sequence, kind, sender_no, key, number, wire))
        if state.sent is not None and kind == schema.MESSAGE:
            state.sent[sender_no] = self.now_ms
        if key is not None:
            self._by_key[state.chat_no, key] = wire
            state.last_keys[draft.sender_id] = key
        self._note(state, StoredEntry(sequence, wire, draft.change, draft.request_id))
        return Appended(
            message_id=message_id, sequence=sequence, epoch=state.epoch, created_at=self.created_at
        )

    def _note(self, state: SqliteChatState, position: StoredEntry) -> None:
        news = self.persisted.get(state.chat_id)
        if news is None:
            news = self.persisted[state.chat_id] = Persisted(state.chat_id, state.epoch, [])
        news.positions.append(position)

    def void(self, state: SqliteChatState, sequence: int) -> None:
        self.rows.append((state.chat_no, sequence, schema.VOID, None, None, None, None))
        self._note(state, StoredEntry(sequence, None))

    def seal_abandoned(self, state: SqliteChatState, under_way: Container[tuple[int, int]] = ()) -> None:
        """Void the numbers that were allocated and will not be written.

        Done before anything is written above it: what is acknowledged is never behind an open number.
        """
        abandoned = [s for s in state.open if (state.chat_no, s) not in under_way]
        for sequence in sorted(abandoned):
            self.void(state, sequence)
            self.execute(CLOSE, (state.chat_no, sequence))
        state.open.difference_update(abandoned)

    def insert(self) -> None:
        """Write the rows; ConstraintError when one of them is not new."""
        self.transaction.executemany(INSERT, self.rows)
