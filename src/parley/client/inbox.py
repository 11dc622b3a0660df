"""One chat as it comes in: from frames in any order to entries in the one order. Pure.

`resolved` moves only over positions that follow each other and are each an entry or a declared void.
What comes too early is held within a budget; what does not fit is dropped and read again from the log.
`processed` follows when the consumer asks for the next entry: a crash in the consumer shows the entry again.

When the server says that the log was started over (`reset`), so does the inbox: entries come again from
sequence 1, what was not yet taken of the old log is forgotten, and `restarts` counts it. To a consumer
another epoch, or a sequence that does not ascend, means: forget what you have of this chat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from parley.client.keeping import Cursor
from parley.errors import Refusal
from parley.wire.frames import Entry, MessageBatch, SyncRequest

CHAT_BYTES_MAX = 4 * 1024 * 1024
CHAT_ENTRIES_MAX = 4_000
RECENT_IDS_MAX = 1_024
POSITION_BYTES = 200
"""What a position costs in memory beside its content."""


class Found(NamedTuple):
    """A resolved position. Without an `entry` there is nothing to show: a void, or an unknown kind."""

    sequence: int
    message_id: str | None
    entry: Entry | None

    @property
    def size(self) -> int:
        return POSITION_BYTES if self.entry is None else POSITION_BYTES + len(self.entry.content)


class Budget:
    """A limit on what one or several inboxes keep. What is held out of order never takes more than half."""

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
        self.processed = cursor
        self.epoch = cursor.epoch
        self.resolved = cursor.sequence
        self.resolved_id = cursor.message_id
        self.restarts = 0
        self.failure: Refusal | None = None
        # Until a page has confirmed the position, nobody knows whether the log is still the same one.
        self.doubtful = True
        self._told = (0, 0)
        self.budget = budget
        self._ready: deque[Found] = deque()
        self._held: dict[int, Found] = {}
        self._held_epoch = 0
        self._taken: Found | None = None
        self._recent: dict[str, None] = {}

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def wants_sync(self) -> bool:
        """Whether the log must be asked: something is missing that is not in hand."""
        if self.failure is not None:
            return False
        return self.doubtful or (
            self._told > (self.epoch, self.resolved) and self.resolved + 1 not in self._held
        )

    @property
    def has_room(self) -> bool:
        return not self.budget.full

    def sync_request(self, request_id: int, limit: int) -> SyncRequest:
        return SyncRequest(
            id=request_id,
            chat_id=self.chat_id,
            last_acked_sequence=self.resolved,
            epoch=self.epoch or None,
            last_message_id=self.resolved_id,
            limit=limit,
        )

    def trust(self, epoch: int) -> None:
        """The overview says that nothing is missing: good enough for one of many chats."""
        if self.epoch in (0, epoch):
            self.epoch, self.doubtful = epoch, False

    def connected(self) -> None:
        """What an earlier connection told may have been told by another server: the log itself must say.

        The overview will not: it tells what changed since the last one, not what did not arrive here.
        """
        self.doubtful = self.doubtful or self._told > (self.epoch, self.resolved)
        self._told = (0, 0)

    def note_head(self, head: int, epoch: int | None = None) -> None:
        """Somebody on this connection said where the log ends, or at least goes."""
        at = (self.epoch if epoch is None else epoch, head)
        self._told = max(self._told, at)
        if self.epoch and (at[0] > self.epoch or (at[0] == self.epoch and head < self.resolved)):
            self.doubtful = True

    def live(self, epoch: int, found: Sequence[Found]) -> None:
        """A `messages` frame. One of an older epoch is of a log that is gone."""
        if not found or epoch < self.epoch:
            return
        self._told = max(self._told, (epoch, found[-1].sequence))
        if self.epoch and epoch > self.epoch:
            self.doubtful = True
            return
        self._hold_only(epoch)
        for position in found:
            self._place(position)
        self._advance()

    def page(self, batch: MessageBatch, found: Sequence[Found]) -> bool:
        """A `message_batch` frame, positions ascending. Whether it told anything new."""
        before = (self.epoch, self.resolved, self.doubtful, self.restarts)
        self._told = max(self._told, (batch.epoch, batch.head))
        if batch.reset:
            self._restart(batch.epoch)
        elif self.epoch and batch.epoch != self.epoch:
            # No answer to what was asked: begin at 0 and ask again.
            self._restart(batch.epoch)
            self.doubtful = True
            return True
        self.epoch = batch.epoch
        self.doubtful = False
        for position in found:
            if position.sequence == self.resolved + 1:
                self._resolve(position)
        self._hold_only(batch.epoch)
        self._drop_stale_held()
        self._advance()
        return before != (self.epoch, self.resolved, self.doubtful, self.restarts)

    def take(self) -> Entry | None:
        """The next entry, or None for now. Asking says that the one before is processed."""
        self.done()
        while self._ready:
            position = self._ready.popleft()
            self.budget.entries -= 1
            self.budget.ready_bytes -= position.size
            self._advance()
            if position.entry is not None:
                self._taken = position
                return position.entry
            self._process(position)
        return None

    def done(self) -> None:
        """The entry that was taken last is processed."""
        if self._taken is not None:
            self._process(self._taken)
            self._taken = None

    def put_back(self) -> None:
        """The entry that was taken last was not processed: it comes again."""
        if self._taken is not None:
            self._make_ready(self._taken, first=True)
            self._taken = None

    def release(self) -> None:
        """Give the budget back."""
        self._clear()

    def _place(self, position: Found) -> None:
        if position.sequence <= self.resolved:
            self._compare(position)
        elif position.sequence == self.resolved + 1 and not self.doubtful and self.has_room:
            self._resolve(position)
        elif position.sequence not in self._held and not self.budget.held_full:
            self._held[position.sequence] = position
            self.budget.entries += 1
            self.budget.held += 1
            self.budget.held_bytes += position.size

    def _compare(self, position: Found) -> None:
        """Something else where this inbox stands means that this is not the log it knows."""
        if position.sequence == self.resolved and None not in (position.message_id, self.resolved_id):
            self.doubtful = self.doubtful or position.message_id != self.resolved_id

    def _advance(self) -> None:
        """Move over what is held and follows."""
        while not self.doubtful and self._held and (position := self._held.get(self.resolved + 1)):
            self._unhold(position)
            self._resolve(position)

    def _resolve(self, position: Found) -> None:
        self.resolved = position.sequence
        self.resolved_id = position.message_id
        self._make_ready(self._unless_repeated(position))

    def _unless_repeated(self, position: Found) -> Found:
        """The same message at a second position is not shown again."""
        if position.message_id is None:
            return position
        if position.message_id in self._recent:
            return position._replace(entry=None)
        self._recent[position.message_id] = None
        if len(self._recent) > RECENT_IDS_MAX:
            del self._recent[next(iter(self._recent))]
        return position

    def _make_ready(self, position: Found, *, first: bool = False) -> None:
        if first:
            self._ready.appendleft(position)
        else:
            self._ready.append(position)
        self.budget.entries += 1
        self.budget.ready_bytes += position.size

    def _process(self, position: Found) -> None:
        self.processed = Cursor(self.epoch, position.sequence, position.message_id)

    def _unhold(self, position: Found) -> None:
        del self._held[position.sequence]
        self.budget.entries -= 1
        self.budget.held -= 1
        self.budget.held_bytes -= position.size

    def _hold_only(self, epoch: int) -> None:
        if self._held_epoch != epoch:
            self._drop_held(list(self._held.values()))
            self._held_epoch = epoch

    def _drop_held(self, positions: Iterable[Found]) -> None:
        for position in positions:
            self._unhold(position)

    def _drop_stale_held(self) -> None:
        self._drop_held([held for held in self._held.values() if held.sequence <= self.resolved])

    def _restart(self, epoch: int) -> None:
        self._clear()
        self.epoch = epoch
        self.resolved = 0
        self.resolved_id = None
        self.processed = Cursor(epoch)
        self.restarts += 1

    def _clear(self) -> None:
        self._drop_held(list(self._held.values()))
        self.budget.entries -= len(self._ready)
        self.budget.ready_bytes -= sum(position.size for position in self._ready)
        self._ready.clear()
        self._taken = None
        self._recent.clear()
