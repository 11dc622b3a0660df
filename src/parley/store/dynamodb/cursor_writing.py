"""Writing noted positions, each under a condition that lets it only rise: other nodes write them too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct, field

from parley.clock import MS_PER_DAY, iso
from parley.errors import OutcomeUnknown, StoreError
from parley.model import Moved, ReceiptKind
from parley.store.dynamodb.changes import DELIVERY, USERS
from parley.store.dynamodb.client import ConditionFailed, Dynamo, Item
from parley.store.dynamodb.states import number
from parley.store.dynamodb.together import is_key, repeated, together
from parley.store.notes import NOTHING, Mark, Notes
from parley.wire.limits import SESSION_DAYS

DEVICES = "user_device_cursors"
SESSIONS = "sessions"
WRITES_AT_ONCE_MAX = 32
SEPARATOR = "\x1f"
"""Between a device and a chat; no device_id has it, for it cannot be printed."""

PLACES_REMEMBERED_MAX = 50_000

Place = tuple[str, str]
"""A person and a chat."""
Tell = Callable[[list[Moved]], None]
Write = Callable[[], Awaitable[None]]
Again = Callable[[Notes], None]


class Advance(Struct):
    """What was noted for one person in one chat."""

    user_id: str
    chat_id: str
    devices: dict[str, Mark] = field(default_factory=dict)
    read: Mark | None = None

    @property
    def acked(self) -> Mark | None:
        """The furthest of the devices; what was read was also received."""
        marks = [*self.devices.values(), *([self.read] if self.read is not None else [])]
        return max(marks, key=lambda mark: mark[0], default=None)

    def note_again(self, notes: Notes) -> None:
        for device_id, mark in self.devices.items():
            notes.note_acked(self.user_id, device_id, self.chat_id, mark)
        if self.read is not None:
            notes.note_read(self.user_id, self.chat_id, self.read)


class Reached:
    """How far people are known to be: positions only rise, so this is never too high, and spares writes.

    A write whose condition fails costs as much as any. Most people read what was delivered before.
    """

    def __init__(self) -> None:
        self._known: dict[Place, tuple[int, int]] = {}

    def above(self, place: Place, acked: Mark | None, read: Mark | None) -> tuple[Mark | None, Mark | None]:
        """Those of the two marks that may still rise."""
        known = self._known.get(place, (0, 0))
        return (
            acked if acked is not None and acked[0] > known[0] else None,
            read if read is not None and read[0] > known[1] else None,
        )

    def note(self, place: Place, acked: Mark | None, read: Mark | None) -> None:
        before = self._known.pop(place, (0, 0))
        self._known[place] = max(before[0], (acked or NOTHING)[0]), max(before[1], (read or NOTHING)[0])
        if len(self._known) > PLACES_REMEMBERED_MAX:
            del self._known[next(iter(self._known))]


class CursorWriter:
    """`tell`: hears of each person's position that rose, right after it did."""

    def __init__(self, dynamo: Dynamo, tell: Tell) -> None:
        self._dynamo = dynamo
        self._tell = tell
        self._gate = asyncio.Semaphore(WRITES_AT_ONCE_MAX)
        self._reached = Reached()
        self._in_doubt: set[Place] = set()
        """People and chats of whose last write nobody knows: it may have raised what stands there now."""

    async def write(self, notes: Notes) -> tuple[Notes, StoreError | None]:
        """Write everything; what could not be written, and why."""
        failed, first = Notes(), list[StoreError]()

        async def write_one(write: Write, again: Again) -> None:
            try:
                async with self._gate:
                    await write()
            except StoreError as error:
                first.append(error)
                again(failed)

        await together(lambda one: write_one(*one), self._writes(notes), WRITES_AT_ONCE_MAX)
        return failed, first[0] if first else None

    def _writes(self, notes: Notes) -> list[tuple[Write, Again]]:
        """Each thing to write, and how it is noted again."""
        writes: list[tuple[Write, Again]] = [
            (partial(self._write_advance, one), one.note_again) for one in _advances(notes)
        ]
        for token_hash, now_ms in notes.used.items():
            again = partial(Notes.note_used, token_hash=token_hash, now_ms=now_ms)
            writes.append((partial(self._write_used, token_hash, now_ms), again))
        for user_id, now_ms in notes.seen.items():
            again = partial(Notes.note_seen, user_id=user_id, now_ms=now_ms)
            writes.append((partial(self._write_seen, user_id, now_ms), again))
        return writes

    async def _write_advance(self, advance: Advance) -> None:
        if not is_key(advance.user_id, advance.chat_id):
            return  # nobody could have such a row
        for device_id, mark in advance.devices.items():
            await repeated(partial(self._raise_device, advance, device_id, mark[0]))
        rose: list[Moved] = []
        try:
            await repeated(partial(self._raise_person, advance, rose))
        finally:
            if rose:
                self._tell(rose)

    async def _raise_device(self, advance: Advance, device_id: str, sequence: int) -> None:
        try:
            await self._dynamo.update(
                DEVICES,
                device_key(advance.user_id, device_id, advance.chat_id),
                "SET last_acked_sequence = :at, device_id = :device, chat_id = :chat",
                {":at": sequence, ":device": device_id, ":chat": advance.chat_id},
                condition="attribute_not_exists(user_id) OR last_acked_sequence < :at",
            )
        except ConditionFailed:
            return  # it is there already, or further

    async def _raise_person(self, advance: Advance, rose: list[Moved]) -> None:
        """Both positions at once; if one does not rise, the other alone. The row must be there."""
        place = advance.user_id, advance.chat_id
        acked, read = self._reached.above(place, advance.acked, advance.read)
        while acked is not None or read is not None:
            try:
                await self._dynamo.update(
                    DELIVERY,
                    {"user_id": advance.user_id, "chat_id": advance.chat_id},
                    _setting(acked, read),
                    _values(acked, read),
                    condition=_rising(acked, read),
                )
            except (OutcomeUnknown, asyncio.CancelledError):
                self._in_doubt.add(place)
                raise
            except ConditionFailed as failed:
                there = failed.item or {}
                if place in self._in_doubt:
                    rose += _moved(advance, *_ours(acked, read, there))
                self._reached.note(place, _at(there, "last_acked_sequence"), _at(there, "read_up_to"))
                before, (acked, read) = (acked, read), self._reached.above(place, acked, read)
                if not there or before == (acked, read):
                    break  # there is no such row, or none that Parley wrote
            else:
                rose += _moved(advance, acked, read)
                self._reached.note(place, acked, read)
                acked = read = None
        self._in_doubt.discard(place)

    async def _write_seen(self, user_id: str, now_ms: int) -> None:
        if not is_key(user_id):
            return
        try:
            await repeated(
                lambda: self._dynamo.update(
                    USERS,
                    {"user_id": user_id},
                    "SET last_seen = :now",
                    {":now": iso(now_ms)},
                    condition="attribute_exists(user_id)"
                    " AND (attribute_not_exists(last_seen) OR last_seen < :now)",
                )
            )
        except ConditionFailed:
            return  # they were seen later still, or do not exist

    async def _write_used(self, token_hash: bytes, now_ms: int) -> None:
        try:
            await repeated(
                lambda: self._dynamo.update(
                    SESSIONS,
                    {"token_hash": token_hash},
                    "SET last_used_at_ms = :now, expires_at_ms = :until",
                    {":now": now_ms, ":until": now_ms + SESSION_DAYS * MS_PER_DAY},
                    condition="attribute_exists(token_hash) AND last_used_at_ms < :now",
                )
            )
        except ConditionFailed:
            return  # it was used later still, or it has ended


def device_key(user_id: str, device_id: str, chat_id: str) -> Item:
    return {"user_id": user_id, "device_chat": f"{device_prefix(device_id)}{chat_id}"}


def device_prefix(device_id: str) -> str:
    """What the keys of all rows of a device begin with."""
    return f"{device_id}{SEPARATOR}"


def _advances(notes: Notes) -> list[Advance]:
    advances: dict[tuple[str, str], Advance] = {}
    for (user_id, device_id, chat_id), mark in notes.acked.items():
        advances.setdefault((user_id, chat_id), Advance(user_id, chat_id)).devices[device_id] = mark
    for (user_id, chat_id), mark in notes.read.items():
        advances.setdefault((user_id, chat_id), Advance(user_id, chat_id)).read = mark
    return list(advances.values())


def _moved(advance: Advance, acked: Mark | None, read: Mark | None) -> list[Moved]:
    kinds = ((ReceiptKind.DELIVERED, acked), (ReceiptKind.READ, read))
    return [
        Moved(advance.user_id, advance.chat_id, kind, mark[0], iso(mark[1]))
        for kind, mark in kinds
        if mark is not None
    ]


def _at(item: Item, name: str) -> Mark:
    return number(item, name), 0


def _ours(acked: Mark | None, read: Mark | None, item: Item) -> tuple[Mark | None, Mark | None]:
    """Those of the two that stand there as they would if an attempt in doubt was done."""
    is_acked = acked is not None and (
        (item.get("last_acked_sequence"), item.get("delivered_at")) == (acked[0], iso(acked[1]))
    )
    is_read = read is not None and ((item.get("read_up_to"), item.get("read_at")) == (read[0], iso(read[1])))
    return acked if is_acked else None, read if is_read else None


def _setting(acked: Mark | None, read: Mark | None) -> str:
    parts = []
    if acked is not None:
        parts.append("last_acked_sequence = :acked, delivered_at = :delivered_at")
    if read is not None:
        parts.append("read_up_to = :read, read_at = :read_at")
    return f"SET {', '.join(parts)} ADD revision :one"


def _values(acked: Mark | None, read: Mark | None) -> Item:
    values: Item = {":one": 1}
    if acked is not None:
        values |= {":acked": acked[0], ":delivered_at": iso(acked[1])}
    if read is not None:
        values |= {":read": read[0], ":read_at": iso(read[1])}
    return values


def _rising(acked: Mark | None, read: Mark | None) -> str:
    parts = ["attribute_exists(user_id)"]
    if acked is not None:
        parts.append("(attribute_not_exists(last_acked_sequence) OR last_acked_sequence < :acked)")
    if read is not None:
        parts.append("(attribute_not_exists(read_up_to) OR read_up_to < :read)")
    return " AND ".join(parts)
