"""The `Cursors` port of a store that nodes share: positions are noted in memory and written a moment later.

Only the highest of each position is written. An engine brings the writes: `CursorWriter`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import structlog
from msgspec import Struct, field

from parley.clock import iso
from parley.concurrency import map_concurrently
from parley.errors import StoreError
from parley.model import CursorMove, ReceiptKind
from parley.store.notes import NOTHING, Mark, Notes, notify_all

FLUSH_AFTER_SECONDS = 2.0
"""Acks may arrive every second; only the last one of this period is written."""
WRITES_AT_ONCE_MAX = 32
POSITIONS_REMEMBERED_MAX = 50_000

NO_NOTES = Notes()

UserInChat = tuple[str, str]
Write = Callable[[], Awaitable[None]]
NoteAgain = Callable[[Notes], None]
Report = Callable[[list[CursorMove]], None]

log = structlog.get_logger("parley.store")


class BufferedCursors(ABC):
    rides_with_appends = False

    def __init__(self, make_writer: Callable[[Report], CursorWriter]) -> None:
        self._listeners: list[Callable[[list[CursorMove]], None]] = []
        self._writer = make_writer(self._report)
        self._notes: dict[str, Notes] = {}
        """By person, so that a flush for one person waits for no other."""
        self._being_written: dict[str, Notes] = {}
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """By person: the lock, and how many hold it or wait for it."""
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    def subscribe(self, notify: Callable[[list[CursorMove]], None]) -> None:
        self._listeners.append(notify)

    def note_acked(self, user_id: str, device_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes_of(user_id).note_acked(user_id, device_id, chat_id, (sequence, now_ms))

    def note_read(self, user_id: str, chat_id: str, sequence: int, now_ms: int) -> None:
        self._notes_of(user_id).note_read(user_id, chat_id, (sequence, now_ms))

    def _notes_of(self, user_id: str) -> Notes:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_SECONDS, self._start_flush)
        return self._notes.setdefault(user_id, Notes())

    def _report(self, moved: list[CursorMove]) -> None:
        notify_all(self._listeners, moved)

    # Writing

    async def flush(self, user_id: str | None = None) -> None:
        people = [user_id] if user_id is not None else dict.fromkeys([*self._notes, *self._being_written])
        errors = await map_concurrently(self._flush_person, people, WRITES_AT_ONCE_MAX)
        for error in errors:
            if error is not None:
                raise error

    async def _flush_person(self, user_id: str) -> StoreError | None:
        async with self._lock(user_id):
            return await self._write(user_id)

    @contextlib.asynccontextmanager
    async def _lock(self, user_id: str) -> AsyncIterator[None]:
        """One write per person at a time: the holder knows that every earlier write is done."""
        lock, users = self._locks.get(user_id, (asyncio.Lock(), 0))
        self._locks[user_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(user_id)
            if users > 1:
                self._locks[user_id] = lock, users - 1

    async def _write(self, user_id: str) -> StoreError | None:
        """Write the notes of a person. Notes whose write fails or is cancelled are noted again."""
        if user_id not in self._notes:
            return None
        self._being_written[user_id] = left = self._notes.pop(user_id)
        try:
            left, error = await self._writer.write(left)
        finally:
            del self._being_written[user_id]
            if left:
                self._notes_of(user_id).merge(left)
        return error

    async def forget_device(self, user_id: str, device_id: str) -> None:
        """First raises the person's position to that of the device.

        Another node may still write its own notes of the device.
        """
        async with self._lock(user_id):
            error = await self._write(user_id)
            if error is not None:
                raise error
            await self._delete_device(user_id, device_id)
            self._notes.get(user_id, NO_NOTES).forget_device(user_id, device_id)

    @abstractmethod
    async def _delete_device(self, user_id: str, device_id: str) -> None:
        """Delete its positions, durably."""

    def _start_flush(self) -> None:
        self._timer = None
        self._flushing = asyncio.ensure_future(self._flush_or_warn())

    async def _flush_or_warn(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            log.warning("positions not written yet", reason=str(error), people=len(self._notes))

    async def close(self) -> None:
        """Write the notes, if the store can be reached."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self._flush_or_warn()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Reading

    async def position(self, user_id: str, device_id: str, chat_id: str) -> int:
        """Includes notes that are not written yet."""
        noted = self.acked_of(user_id, device_id, chat_id)
        return max(noted, await self._stored_position(user_id, device_id, chat_id))

    @abstractmethod
    async def _stored_position(self, user_id: str, device_id: str, chat_id: str) -> int: ...

    def acked_of(self, user_id: str, device_id: str, chat_id: str) -> int:
        """The position of a device, from notes only."""
        device = user_id, device_id, chat_id
        return max(0, *(notes.acked.get(device, NOTHING)[0] for notes in self._noted(user_id)))

    def read_of(self, user_id: str, chat_id: str) -> int:
        """How far a person has read, from notes only."""
        person = user_id, chat_id
        return max(0, *(notes.read.get(person, NOTHING)[0] for notes in self._noted(user_id)))

    def _noted(self, user_id: str) -> tuple[Notes, Notes]:
        return self._notes.get(user_id, NO_NOTES), self._being_written.get(user_id, NO_NOTES)


class Advance(Struct):
    """The notes of one person in one chat."""

    user_id: str
    chat_id: str
    devices: dict[str, Mark] = field(default_factory=dict)
    read: Mark | None = None

    @property
    def acked(self) -> Mark | None:
        """The highest position of the devices. A read position also counts as received."""
        marks = [*self.devices.values(), *([self.read] if self.read is not None else [])]
        return max(marks, key=lambda mark: mark[0], default=None)

    def note_again(self, notes: Notes) -> None:
        for device_id, mark in self.devices.items():
            notes.note_acked(self.user_id, device_id, self.chat_id, mark)
        if self.read is not None:
            notes.note_read(self.user_id, self.chat_id, self.read)


class CursorWriter(ABC):
    """Writes notes, many at once. It reports a person's positions right after they rose."""

    def __init__(self) -> None:
        self._gate = asyncio.Semaphore(WRITES_AT_ONCE_MAX)

    async def write(self, notes: Notes) -> tuple[Notes, StoreError | None]:
        """Write all notes. Returns those that could not be written, and the first error."""
        failed, errors = Notes(), list[StoreError]()

        async def write_one(write: Write, note_again: NoteAgain) -> None:
            try:
                async with self._gate:
                    await write()
            except StoreError as error:
                errors.append(error)
                note_again(failed)

        await map_concurrently(lambda one: write_one(*one), self._writes(notes), WRITES_AT_ONCE_MAX)
        return failed, errors[0] if errors else None

    def _writes(self, notes: Notes) -> list[tuple[Write, NoteAgain]]:
        """Each write, and how to note it again."""
        advances: dict[UserInChat, Advance] = {}
        for (user_id, device_id, chat_id), mark in notes.acked.items():
            advances.setdefault((user_id, chat_id), Advance(user_id, chat_id)).devices[device_id] = mark
        for (user_id, chat_id), mark in notes.read.items():
            advances.setdefault((user_id, chat_id), Advance(user_id, chat_id)).read = mark
        return [(partial(self.write_advance, one), one.note_again) for one in advances.values()]

    @abstractmethod
    async def write_advance(self, advance: Advance) -> None:
        """Raise the positions of one person in one chat, and report those that rose."""


class KnownPositions:
    """A cache of lower bounds of positions, from reads and writes. It saves writes that cannot raise one.

    A write whose condition fails costs as much as any other, and most reads raise no delivered position.
    """

    def __init__(self) -> None:
        self._known: dict[UserInChat, tuple[int, int]] = {}

    def above(
        self, place: UserInChat, acked: Mark | None, read: Mark | None
    ) -> tuple[Mark | None, Mark | None]:
        """Those of the two marks that may still rise."""
        known = self._known.get(place, (0, 0))
        return (
            acked if acked is not None and acked[0] > known[0] else None,
            read if read is not None and read[0] > known[1] else None,
        )

    def add(self, place: UserInChat, acked: Mark | None, read: Mark | None) -> None:
        before = self._known.pop(place, (0, 0))
        self._known[place] = max(before[0], (acked or NOTHING)[0]), max(before[1], (read or NOTHING)[0])
        if len(self._known) > POSITIONS_REMEMBERED_MAX:
            del self._known[next(iter(self._known))]


def moved(advance: Advance, acked: Mark | None, read: Mark | None) -> list[CursorMove]:
    kinds = ((ReceiptKind.DELIVERED, acked), (ReceiptKind.READ, read))
    return [
        CursorMove(advance.user_id, advance.chat_id, kind, mark[0], iso(mark[1]))
        for kind, mark in kinds
        if mark is not None
    ]
