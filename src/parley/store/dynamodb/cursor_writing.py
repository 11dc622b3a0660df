"""Writing noted positions, each under a condition that lets it only rise: other nodes write them too."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec import Struct, field

from parley.clock import MS_PER_DAY, iso
from parley.errors import StoreError
from parley.store.dynamodb.changes import DELIVERY
from parley.store.dynamodb.client import ConditionFailed, Dynamo, Item
from parley.store.dynamodb.together import is_key, repeated, together
from parley.store.notes import Mark, Notes
from parley.wire.limits import SESSION_DAYS

DEVICES = "user_device_cursors"
SESSIONS = "sessions"
WRITES_AT_ONCE_MAX = 32
SEPARATOR = "\x1f"
"""Between a device and a chat; no device_id has it, for it cannot be printed."""

Used = tuple[bytes, int]
"""A session by its token's hash, and when it was used."""


class Moved(Struct):
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


class CursorWriter:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._gate = asyncio.Semaphore(WRITES_AT_ONCE_MAX)

    async def write(self, notes: Notes) -> tuple[Notes, StoreError | None]:
        """Write everything; what could not be written, and why."""
        failed, first = Notes(), list[StoreError]()
        things: list[Moved | Used] = [*_moved(notes), *notes.used.items()]

        async def write_one(thing: Moved | Used) -> None:
            try:
                async with self._gate:
                    await (self._write_moved(thing) if isinstance(thing, Moved) else self._write_used(*thing))
            except StoreError as error:
                first.append(error)
                _note_again(failed, thing)

        await together(write_one, things, WRITES_AT_ONCE_MAX)
        return failed, first[0] if first else None

    async def _write_moved(self, moved: Moved) -> None:
        if not is_key(moved.user_id, moved.chat_id):
            return  # nobody could have such a row
        for device_id, mark in moved.devices.items():
            await repeated(partial(self._raise_device, moved, device_id, mark[0]))
        await repeated(partial(self._raise_person, moved))

    async def _raise_device(self, moved: Moved, device_id: str, sequence: int) -> None:
        try:
            await self._dynamo.update(
                DEVICES,
                device_key(moved.user_id, device_id, moved.chat_id),
                "SET last_acked_sequence = :at, device_id = :device, chat_id = :chat",
                {":at": sequence, ":device": device_id, ":chat": moved.chat_id},
                condition="attribute_not_exists(user_id) OR last_acked_sequence < :at",
            )
        except ConditionFailed:
            return  # it is there already, or further

    async def _raise_person(self, moved: Moved) -> None:
        """Both positions at once; if one does not rise, the other alone. The row must be there."""
        acked, read = moved.acked, moved.read
        while acked is not None or read is not None:
            try:
                await self._dynamo.update(
                    DELIVERY,
                    {"user_id": moved.user_id, "chat_id": moved.chat_id},
                    _setting(acked, read),
                    _values(acked, read),
                    condition=_rising(acked, read),
                )
                return
            except ConditionFailed as failed:
                acked = _above(acked, failed.item, "last_acked_sequence")
                read = _above(read, failed.item, "read_up_to")

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
    return {"user_id": user_id, "device_chat": f"{device_id}{SEPARATOR}{chat_id}"}


def _moved(notes: Notes) -> list[Moved]:
    moved: dict[tuple[str, str], Moved] = {}
    for (user_id, device_id, chat_id), mark in notes.acked.items():
        moved.setdefault((user_id, chat_id), Moved(user_id, chat_id)).devices[device_id] = mark
    for (user_id, chat_id), mark in notes.read.items():
        moved.setdefault((user_id, chat_id), Moved(user_id, chat_id)).read = mark
    return list(moved.values())


def _note_again(notes: Notes, thing: Moved | Used) -> None:
    if not isinstance(thing, Moved):
        notes.note_used(*thing)
        return
    for device_id, mark in thing.devices.items():
        notes.note_acked(thing.user_id, device_id, thing.chat_id, mark)
    if thing.read is not None:
        notes.note_read(thing.user_id, thing.chat_id, thing.read)


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


def _above(mark: Mark | None, item: Item | None, name: str) -> Mark | None:
    """The mark, if it is above what stands there."""
    if mark is None or item is None:
        return None
    there = item.get(name)
    return mark if not isinstance(there, int) or mark[0] > there else None
