"""The `Log` port on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

import apsw

from parley import ids
from parley.clock import Clock
from parley.errors import (
    STORE_UNAVAILABLE,
    EntriesTrimmed,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    refusal_of,
)
from parley.model import AppendResult, ChatType, Draft, Head, Outcome, Page, Persisted
from parley.store.log_telemetry import (
    NOT_TRACED,
    count_appended,
    count_resolved,
    log_allocated,
    log_races,
    trace_heads,
)
from parley.store.paging import (
    Row,
    contiguous,
    contiguous_down,
    fitting,
    hole,
    page_of,
    readable,
    stored_entry,
)
from parley.store.sqlite import two_phase
from parley.store.sqlite.append import FIND_ARCHIVED_KEY, FIND_KEY, CounterMoved, append_atomic
from parley.store.sqlite.chat_state import SqliteChatState, SqliteChatStates
from parley.store.sqlite.damage import DAMAGE, note
from parley.store.sqlite.reads import Reads
from parley.store.sqlite.writer import Transaction, Writer
from parley.store.two_phase import FaultPoint
from parley.telemetry import Metrics
from parley.wire.limits import PAGE_BYTES_MAX

SEAL_AFTER_MS = 2_000
SEALED_RETRIES_MAX = 5
ROWS_PER_LOOK = 64
"""How many rows are read before their size is looked at."""
HEADS_PER_SLICE = 32
"""So many are looked up without giving way to others; those that are not in memory take 20 µs each."""
FOREVER_MS = 2**62

AFTER = (
    "SELECT sequence, wire FROM entries WHERE chat_no = ? AND sequence > ? AND sequence <= ?"
    " ORDER BY sequence LIMIT ?"
)
BEFORE = (
    "SELECT sequence, wire FROM entries WHERE chat_no = ? AND sequence < ? ORDER BY sequence DESC LIMIT ?"
)

FIND_MESSAGE = (
    "SELECT chat_id, sequence FROM (SELECT chat_no, sequence FROM entries WHERE message_id = ?1 UNION ALL"
    " SELECT chat_no, sequence FROM archived_messages WHERE message_id = ?1) JOIN chats USING (chat_no)"
)


class SqliteLog:
    def __init__(
        self,
        *,
        reads: Reads,
        writer: Writer,
        states: SqliteChatStates,
        clock: Clock,
        make_ids: ids.Ids,
        metrics: Metrics,
        sequencing: str,
        fault_point: FaultPoint,
    ) -> None:
        self._reads = reads
        self._writer = writer
        self._states = states
        self._clock = clock
        self._ids = make_ids
        self._metrics = metrics
        self._fault_point = fault_point
        self._under_way = two_phase.NumbersUnderWay()
        self._append = self._append_two_phase if sequencing == "two_phase" else self._append_atomic
        self._is_atomic = sequencing == "atomic"

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        heads = trace_heads(drafts, self._known_head) if self._is_atomic else NOT_TRACED
        try:
            result = await self._append(list(drafts))
        except StoreDamaged:
            self._metrics.sequence_allocation_errors.inc()
            if len(drafts) == 1:
                raise
            result = await self._append_apart(list(drafts))
        except StoreError:
            self._metrics.sequence_allocation_errors.inc()
            raise
        count_appended(self._metrics, drafts, result, self._is_atomic, heads)
        return result

    def _known_head(self, chat_id: str) -> int | None:
        state = self._states.known(chat_id)
        return None if state is None else state.head

    async def _append_apart(self, drafts: list[Draft]) -> AppendResult:
        """One by one, in their order: only what meets the damage is refused."""
        whole = AppendResult([], [])
        for draft in drafts:
            try:
                result = await self._append([draft])
            except StoreError as error:
                result = AppendResult([refusal_of(error)], [])
            whole.outcomes += result.outcomes
            whole.persisted += result.persisted
        return whole

    async def _append_atomic(self, drafts: list[Draft]) -> AppendResult:
        now_ms = self._clock()
        first = self._ids.reserve(now_ms, len(drafts))
        started, conflicts = self._metrics.now(), 0

        def write(transaction: Transaction) -> AppendResult:
            nonlocal conflicts
            try:
                return append_atomic(transaction, self._states, drafts, now_ms, first)
            except CounterMoved:
                conflicts += 1
                raise

        result = await self._writer.run(write, lambda done: self._settle(done.persisted), _chats_of(drafts))
        if result.persisted:
            self._metrics.time_allocation(self._metrics.now() - started)
        self._metrics.conflicts.add(conflicts, 1)
        return result

    async def _append_two_phase(self, drafts: list[Draft]) -> AppendResult:
        """Again for those whose number was sealed while they waited; what is written stays written."""
        outcomes: list[Outcome] = [STORE_UNAVAILABLE] * len(drafts)
        persisted: list[Persisted] = []
        left, refusal = list(range(len(drafts))), STORE_UNAVAILABLE
        for _ in range(SEALED_RETRIES_MAX):
            try:
                with self._under_way.taking() as take:
                    written = await self._allocate_and_write([drafts[index] for index in left], take)
            except StoreError as error:
                if not persisted:
                    raise
                refusal = refusal_of(error)
                break
            persisted += written.result.persisted
            for place, index in enumerate(left):
                outcomes[index] = written.result.outcomes[place]
            left = [left[place] for place in written.retry]
            if not left:
                break
        for index in left:
            outcomes[index] = refusal
        return AppendResult(outcomes, persisted)

    async def _allocate_and_write(
        self, drafts: list[Draft], take: Callable[[int, int], None]
    ) -> two_phase.Written:
        """Two transactions. `take` is called with every number that is allocated."""
        now_ms = self._clock()
        started = self._metrics.now()
        allocated = await self._writer.run(
            lambda tx: two_phase.allocate(tx, self._states, drafts, now_ms, self._under_way, take),
            lambda done: self._settle(done.sealed),
            _chats_of(drafts),
        )
        taken = sum(1 for sequence in allocated.sequences if sequence)
        if taken:
            self._metrics.time_allocation(self._metrics.now() - started)
        log_allocated(drafts, allocated.sequences)
        pause = self._fault_point("after_allocate")
        if pause is not None:
            await pause
        first = self._ids.reserve(now_ms, len(drafts))
        written = await self._writer.run(
            lambda tx: two_phase.write(tx, self._states, drafts, allocated, self._clock(), first),
            lambda done: self._settle(done.result.persisted, are_voids_sealed=False),
            _chats_of(drafts),
        )
        log_races(drafts, allocated.sequences, written.result.outcomes)
        stored = sum(
            1 for news in written.result.persisted for stored in news.positions if stored.wire is not None
        )
        self._metrics.conflicts.add(taken - stored, taken)
        written.result.persisted = allocated.sealed + written.result.persisted
        return written

    async def seal(self) -> list[Persisted]:
        return await self._seal(self._clock() - SEAL_AFTER_MS)

    async def seal_all(self) -> list[Persisted]:
        """At start no other process can still write what was allocated, whatever the clock says."""
        return await self._seal(FOREVER_MS)

    async def _seal(self, before_ms: int) -> list[Persisted]:
        if self._reads.row("SELECT 1 FROM open_allocations LIMIT 1") is None:
            return []
        return await self._writer.run(
            lambda tx: two_phase.seal(tx, self._states, before_ms, self._clock()), self._settle
        )

    def _settle(self, persisted: list[Persisted], *, are_voids_sealed: bool = True) -> None:
        """The commit is durable: count it, and let readers see it."""
        count_resolved(self._metrics, persisted, are_voids_sealed=are_voids_sealed)
        self._states.settle(persisted)

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        state = self._state(chat_id)
        if after >= state.head:
            return self._page(state, [], after)
        if after < state.trimmed:
            raise EntriesTrimmed((chat_id, after + 1))
        rows = self._bounded(chat_id, after + 1, AFTER, (state.chat_no, after, state.head, limit))
        whole = contiguous(rows, after)
        if limit > 0 and not whole:
            raise self._missing(chat_id, after + 1)
        return self._page(state, self._readable(chat_id, whole), after)

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        state = self._state(chat_id)
        end = max(1, min(before, state.head + 1))
        if 1 < end <= state.trimmed + 1:
            raise EntriesTrimmed((chat_id, end - 1))
        rows = self._bounded(chat_id, end - 1, BEFORE, (state.chat_no, end, limit))
        rows = contiguous_down(rows, end)
        if limit > 0 and end > 1 and not rows:
            raise self._missing(chat_id, end - 1)
        rows = self._readable(chat_id, rows)
        rows.reverse()
        return self._page(state, rows, end - 1 - len(rows))

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        found = {}
        for count, chat_id in enumerate(chat_ids):
            if count % HEADS_PER_SLICE == HEADS_PER_SLICE - 1:
                await asyncio.sleep(0)
            state = self._states.get(chat_id)
            if state is not None:
                found[chat_id] = Head(state.epoch, state.head)
        return found

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        state = self._state(chat_id)
        row = self._reads.row(FIND_KEY, (state.chat_no, client_key))
        if row is None and state.has_archived_keys:
            archived = self._reads.row(FIND_ARCHIVED_KEY, (state.chat_no, client_key))
            if archived is not None:
                raise EntriesTrimmed((chat_id, archived[0]))
        if not row:
            return None
        stored_entry(chat_id, row[0])
        return bytes(row[0])

    async def find_message(self, message_id: str, chat_ids: Sequence[str] | None) -> tuple[str, int] | None:
        key = ids.message_key(message_id)
        if key is None:
            return None
        row = self._reads.row(FIND_MESSAGE, (key,))
        return (row[0], row[1]) if row and (chat_ids is None or row[0] in chat_ids) else None

    def _state(self, chat_id: str) -> SqliteChatState:
        return self._states.get(chat_id) or _NOWHERE

    def _bounded(self, chat_id: str, first: int, sql: str, values: tuple[int, ...]) -> list[Row]:
        """The rows that fit into one page; at least one, however large. Those before damage are read."""
        rows: list[Row] = []
        size = seen = 0
        try:
            left = self._reads.execute(sql, values)
            while True:
                rows.extend(islice(left, ROWS_PER_LOOK))
                size += sum([len(wire) for _, wire in rows[seen:] if wire is not None])
                if len(rows) == seen or size > PAGE_BYTES_MAX:
                    break
                seen = len(rows)
        except apsw.Error as error:
            if not rows or not isinstance(error, DAMAGE):
                with self._reads.about(chat_id, f"position {first}"):
                    raise
        return fitting(rows)

    def _readable(self, chat_id: str, rows: list[Row]) -> list[Row]:
        try:
            return readable(chat_id, rows)
        except StoreDamaged as error:
            raise self._noted(error) from error

    def _missing(self, chat_id: str, sequence: int) -> StoreError:
        """Nothing is at a position that memory knows: another program has moved it, or it is lost."""
        self._states.forget_all()
        state = self._state(chat_id)
        if sequence <= state.trimmed:
            return EntriesTrimmed((chat_id, sequence))
        if sequence > state.head:
            return StoreUnavailable(f"another program has changed the log of {chat_id}")
        return self._noted(hole(chat_id, sequence))

    def _noted(self, error: StoreDamaged) -> StoreDamaged:
        note(self._metrics, error)
        return error

    @staticmethod
    def _page(state: SqliteChatState, rows: list[Row], after: int) -> Page:
        return page_of(state.chat_id, state.epoch, rows, after, state.head)


def _chats_of(drafts: Sequence[Draft]) -> str:
    """As the place of damage: a batch of several chats is tried again chat by chat."""
    chat_ids = {draft.chat_id for draft in drafts}
    return next(iter(chat_ids)) if len(chat_ids) == 1 else ""


_NOWHERE = SqliteChatState("", -1, 0, ChatType.GROUP, False)
"""A chat that does not exist reads as an empty one; who may read is decided before."""
