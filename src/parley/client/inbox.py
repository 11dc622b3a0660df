"""One chat's log as it arrives: frames in any order go in, entries in the log's order come out. Pure.

`resolved` moves only over positions that follow each other and are each an entry or a declared void.
Positions that arrive early are held within a budget; those that do not fit are dropped and requested again.
`processed` moves when the application takes the next entry: after a crash the entry comes again.

When the server says that the log was started over (`reset`), the inbox starts over too: entries come again
from sequence 1, entries of the old log that were not taken are dropped, and `restarts` counts it. An
application that sees another epoch, or a sequence that does not ascend, forgets what it has of the chat. It
does the same when a page shows that what it has read is not what the log holds (`LogDifference`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from parley.client.log_proof import LogDifference, LogProof
from parley.client.storage import Cursor
from parley.errors import Refusal
from parley.model import Kind
from parley.wire.frames import Entry, MessageBatch, SyncRequest

CHAT_BYTES_MAX = 4 * 1024 * 1024
CHAT_ENTRIES_MAX = 4_000
RECENT_IDS_MAX = 1_024
SLOT_BYTES = 200
"""What a slot costs in memory besides its content."""
KNOWN_KINDS = frozenset(kind.value for kind in Kind)


class Slot(NamedTuple):
    """A resolved position of the log. It has no `entry` if it is a void or of an unknown kind.

    `logged`: what the log has there, of any kind. `log_hash`: the hash of the log with it, once resolved.
    """

    sequence: int
    message_id: str | None
    entry: Entry | None
    logged: Entry | None = None
    log_hash: bytes | None = None

    @property
    def size(self) -> int:
        return SLOT_BYTES if self.entry is None else SLOT_BYTES + len(self.entry.content)


def slots_of(entries: Sequence[Entry], voids: Sequence[int]) -> list[Slot]:
    """Every position of a frame, ascending."""
    slots = [
        Slot(entry.sequence, entry.message_id, entry if entry.kind in KNOWN_KINDS else None, entry)
        for entry in entries
    ]
    if voids:
        slots.extend(Slot(sequence, None, None) for sequence in voids)
        slots.sort(key=lambda slot: slot.sequence)
    return slots


class Budget:
    """A limit on the memory of one or several inboxes. Held slots never take more than half of it."""

    __slots__ = ("bytes_max", "entries", "entries_max", "held", "held_bytes", "ready_bytes")

    def __init__(self, bytes_max: int = CHAT_BYTES_MAX, entries_max: int = CHAT_ENTRIES_MAX) -> None:
        self.bytes_max = bytes_max
        self.entries_max = entries_max
        self.entries = 0
        self.held = 0
        self.ready_bytes = 0
        self.held_bytes = 0

    @property
    def full(self) -> bool:
        return self.entries >= self.entries_max or self.ready_bytes + self.held_bytes >= self.bytes_max

    @property
    def held_full(self) -> bool:
        is_half = self.held >= self.entries_max // 2 or self.held_bytes >= self.bytes_max // 2
        return is_half or self.full


class Inbox:
    def __init__(self, chat_id: str, cursor: Cursor, budget: Budget) -> None:
        self.chat_id = chat_id
        self.budget = budget
        self.processed = cursor
        self.epoch = cursor.epoch
        self.resolved = cursor.sequence
        self.resolved_id = cursor.message_id
        self.restarts = 0
        self.difference: LogDifference | None = None
        """Set when a page shows that what was read is not what the log holds."""
        self._proof = LogProof(chat_id, cursor.sequence, cursor.log_hash)
        self.failure: Refusal | None = None
        """Why reading this chat has ended."""
        self.unverified = True
        """Whether `resolved` may belong to another log; a page of the log shows it."""
        self.request_id: int | None = None
        """The sync request that is not yet answered."""
        self.failed_requests = 0
        self._known_head = (0, 0)
        """The furthest epoch and sequence that this connection has mentioned."""
        self._ready: deque[Slot] = deque()
        self._held: dict[int, Slot] = {}
        self._held_epoch = 0
        self._taken: Slot | None = None
        self._recent_ids: dict[str, None] = {}

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def has_room(self) -> bool:
        return not self.budget.full

    @property
    def wants_sync(self) -> bool:
        """Whether a page of the log is needed: something is missing that is not held."""
        if self.failure is not None:
            return False
        return self.unverified or (
            self._known_head > (self.epoch, self.resolved) and self.resolved + 1 not in self._held
        )

    def sync_request(self, request_id: int, limit: int) -> SyncRequest:
        self.request_id = request_id
        return SyncRequest(
            id=request_id,
            chat_id=self.chat_id,
            last_acked_sequence=self.resolved,
            epoch=self.epoch or None,
            last_message_id=self.resolved_id,
            limit=limit,
        )

    # Input from the server

    def connected(self) -> None:
        """Forget the head of the last connection, which may have been to another server.

        If it was not reached, a page must be requested: the next overview lists only changes since the last
        one.
        """
        self.unverified = self.unverified or self._known_head > (self.epoch, self.resolved)
        self._known_head = (0, 0)

    def verify(self, epoch: int) -> None:
        """The overview shows that nothing is missing. When all chats are read, that saves a page."""
        if self.epoch in (0, epoch):
            self.epoch, self.unverified = epoch, False

    def note_head(self, head: int, epoch: int | None = None) -> None:
        """The log reaches at least to `head`, in this epoch or in the given one."""
        at = (self.epoch if epoch is None else epoch, head)
        self._known_head = max(self._known_head, at)
        if self.epoch and (at[0] > self.epoch or (at[0] == self.epoch and head < self.resolved)):
            self.unverified = True

    def receive_live(self, epoch: int, slots: Sequence[Slot]) -> None:
        """A `messages` frame. A frame of an older epoch belongs to a lost log."""
        if not slots or epoch < self.epoch:
            return
        self._known_head = max(self._known_head, (epoch, slots[-1].sequence))
        if self.epoch and epoch > self.epoch:
            self.unverified = True
            return
        self._hold_only(epoch)
        for slot in slots:
            self._place(slot)
        self._resolve_held()

    def receive_page(self, batch: MessageBatch, slots: Sequence[Slot]) -> bool:
        """A `message_batch` frame, positions ascending. Returns whether it changed anything."""
        before = (self.epoch, self.resolved, self.unverified, self.restarts)
        self._known_head = max(self._known_head, (batch.epoch, batch.head))
        if batch.reset:
            self._restart(batch.epoch)
        elif self.epoch and batch.epoch != self.epoch:
            # The page belongs to another log than the requested one: start again from 0.
            self._restart(batch.epoch)
            self.unverified = True
            return True
        self.epoch = batch.epoch
        self.unverified = False
        for slot in slots:
            if slot.sequence == self.resolved + 1:
                self._resolve(slot)
        if self._differs(batch):
            return True
        self._hold_only(batch.epoch)
        self._drop_held(held for held in list(self._held.values()) if held.sequence <= self.resolved)
        self._resolve_held()
        return before != (self.epoch, self.resolved, self.unverified, self.restarts)

    # Input from the application

    def take(self) -> Entry | None:
        """The next entry, or None for now. Taking it marks the previous one as processed."""
        self.mark_processed()
        while self._ready:
            slot = self._ready.popleft()
            self.budget.entries -= 1
            self.budget.ready_bytes -= slot.size
            self._resolve_held()
            if slot.entry is not None:
                self._taken = slot
                return slot.entry
            self.processed = self._cursor(slot)
        return None

    def mark_processed(self) -> None:
        """The last taken entry is processed."""
        if self._taken is not None:
            self.processed = self._cursor(self._taken)
            self._taken = None

    def _cursor(self, slot: Slot) -> Cursor:
        return Cursor(self.epoch, slot.sequence, slot.message_id, slot.log_hash)

    def put_back(self) -> None:
        """The last taken entry was not processed: it comes again."""
        if self._taken is not None:
            self._ready.appendleft(self._taken)
            self.budget.entries += 1
            self.budget.ready_bytes += self._taken.size
            self._taken = None

    def clear(self) -> None:
        """Drop everything and give the budget back."""
        self._drop_held(list(self._held.values()))
        self.budget.entries -= len(self._ready)
        self.budget.ready_bytes -= sum(slot.size for slot in self._ready)
        self._ready.clear()
        self._taken = None
        self._recent_ids.clear()

    def _place(self, slot: Slot) -> None:
        if slot.sequence <= self.resolved:
            is_last = slot.sequence == self.resolved and None not in (slot.message_id, self.resolved_id)
            if is_last and slot.message_id != self.resolved_id:
                self.unverified = True
        elif slot.sequence == self.resolved + 1 and not self.unverified and self.has_room:
            self._resolve(slot)
        elif slot.sequence not in self._held and not self.budget.held_full:
            self._held[slot.sequence] = slot
            self.budget.entries += 1
            self.budget.held += 1
            self.budget.held_bytes += slot.size

    def _resolve_held(self) -> None:
        """Resolve held slots that follow."""
        while not self.unverified and self._held and (slot := self._held.get(self.resolved + 1)):
            self._drop_held([slot])
            self._resolve(slot)

    def _resolve(self, slot: Slot) -> None:
        """Resolve the next position. A message at a second position is not shown again."""
        self.resolved = slot.sequence
        self.resolved_id = slot.message_id
        if slot.message_id is not None:
            is_repeated = slot.message_id in self._recent_ids
            self._recent_ids[slot.message_id] = None
            if len(self._recent_ids) > RECENT_IDS_MAX:
                del self._recent_ids[next(iter(self._recent_ids))]
            if is_repeated:
                slot = slot._replace(entry=None)
        value = self._proof.add(slot.sequence, slot.logged)
        slot = Slot(slot.sequence, slot.message_id, slot.entry, None, value)
        self._ready.append(slot)
        self.budget.entries += 1
        self.budget.ready_bytes += slot.size

    def _differs(self, batch: MessageBatch) -> bool:
        """Whether a page shows that what was read is not what the log holds. Then it is read again."""
        if self.resolved != batch.to_sequence:
            return False
        difference = self._proof.compare(batch)
        if difference is None and self._ready:
            self._ready[-1] = self._ready[-1]._replace(log_hash=self._proof.value)
        self.difference = difference or self.difference
        if difference is None or difference.is_lasting:
            return False
        self._restart(batch.epoch, is_new_log=False)
        self.unverified = True
        return True

    def _hold_only(self, epoch: int) -> None:
        if self._held_epoch != epoch:
            self._drop_held(list(self._held.values()))
            self._held_epoch = epoch

    def _drop_held(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            del self._held[slot.sequence]
            self.budget.entries -= 1
            self.budget.held -= 1
            self.budget.held_bytes -= slot.size

    def _restart(self, epoch: int, *, is_new_log: bool = True) -> None:
        self.clear()
        self._proof.start_over(is_new_log=is_new_log)
        self.epoch = epoch
        self.resolved = 0
        self.resolved_id = None
        self.processed = Cursor(epoch)
        self.restarts += 1
