"""The `Cursors` port on Cassandra: how far devices have received and people have read.

A person's position is written with itself as the time of the write. So of two writes the higher position
stays, whichever comes first, and no condition is needed. A device can be forgotten and start again from
below, so its position is written on the condition that it rises.
"""

from __future__ import annotations

from functools import partial

from parley.clock import iso
from parley.model import CursorMove
from parley.store.buffered_cursors import (
    Advance,
    BufferedCursors,
    CursorWriter,
    KnownPositions,
    Report,
    moved,
)
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.schema import DELIVERY, DEVICES

READ_PLACE = (
    f"SELECT has_left, last_acked_sequence, read_up_to FROM {DELIVERY} WHERE user_id = ? AND chat_id = ?"
)
RAISE_ACKED = (
    f"UPDATE {DELIVERY} USING TIMESTAMP ? SET last_acked_sequence = ?, delivered_at = ?"
    " WHERE user_id = ? AND chat_id = ?"
)
RAISE_READ = (
    f"UPDATE {DELIVERY} USING TIMESTAMP ? SET read_up_to = ?, read_at = ? WHERE user_id = ? AND chat_id = ?"
)
AT_DEVICE = "user_id = ? AND device_id = ? AND chat_id = ?"
READ_DEVICE = f"SELECT chat_id, last_acked_sequence FROM {DEVICES} WHERE {AT_DEVICE}"
ADD_DEVICE = (
    f"INSERT INTO {DEVICES} (user_id, device_id, chat_id, last_acked_sequence)"
    " VALUES (?, ?, ?, ?) IF NOT EXISTS"
)
RAISE_DEVICE = f"UPDATE {DEVICES} SET last_acked_sequence = ? WHERE {AT_DEVICE} IF last_acked_sequence < ?"
READ_DEVICE_CHATS = f"SELECT chat_id FROM {DEVICES} WHERE user_id = ? AND device_id = ?"
FORGET_DEVICE = f"DELETE FROM {DEVICES} WHERE {AT_DEVICE} IF EXISTS"


class CassandraCursors(BufferedCursors):
    def __init__(self, cassandra: Cassandra) -> None:
        super().__init__(lambda report: CassandraCursorWriter(cassandra, report))
        self._cassandra = cassandra

    async def _delete_device(self, user_id: str, device_id: str) -> None:
        if not is_key(user_id, device_id):
            return
        for row in await self._cassandra.rows(READ_DEVICE_CHATS, user_id, device_id):
            place = (user_id, device_id, row["chat_id"])
            await self._cassandra.resolve(
                partial(self._cassandra.cas, (FORGET_DEVICE, place)), partial(self._is_forgotten, *place)
            )

    async def _is_forgotten(self, user_id: str, device_id: str, chat_id: str) -> bool:
        return await self._cassandra.row(READ_DEVICE, user_id, device_id, chat_id, is_serial=True) is None

    async def _stored_position(self, user_id: str, device_id: str, chat_id: str) -> int:
        if not is_key(user_id, device_id, chat_id):
            return 0
        row = await self._cassandra.row(READ_DEVICE, user_id, device_id, chat_id)
        return 0 if row is None else int(row["last_acked_sequence"] or 0)


class CassandraCursorWriter(CursorWriter):
    def __init__(self, cassandra: Cassandra, report: Report) -> None:
        super().__init__()
        self._cassandra = cassandra
        self._report = report
        self._known = KnownPositions()

    async def write_advance(self, advance: Advance) -> None:
        user_id, chat_id = advance.user_id, advance.chat_id
        if not is_key(user_id, chat_id):
            return  # no such row can exist
        for device_id, mark in advance.devices.items():
            if is_key(device_id):
                await self._raise_device((user_id, device_id, chat_id), mark[0])
        place = user_id, chat_id
        acked, read = self._known.above(place, advance.acked, advance.read)
        row = await self._cassandra.row(READ_PLACE, *place) if acked or read else None
        if row is None or row["has_left"] is None:
            return  # the person has never been in the chat
        self._known.add(place, (row["last_acked_sequence"] or 0, 0), (row["read_up_to"] or 0, 0))
        acked, read = self._known.above(place, acked, read)
        rose: list[CursorMove] = []
        try:
            if acked is not None:
                await self._cassandra.write(RAISE_ACKED, acked[0], acked[0], iso(acked[1]), *place)
                rose += moved(advance, acked, None)
            if read is not None:
                await self._cassandra.write(RAISE_READ, read[0], read[0], iso(read[1]), *place)
                rose += moved(advance, None, read)
            self._known.add(place, acked, read)
        finally:
            if rose:
                self._report(rose)

    async def _raise_device(self, place: tuple[str, str, str], sequence: int) -> None:
        async def is_there() -> bool:
            row = await self._cassandra.row(READ_DEVICE, *place, is_serial=True)
            return row is not None and (row["last_acked_sequence"] or 0) >= sequence

        raised = (RAISE_DEVICE, (sequence, *place, sequence))
        cas = await self._cassandra.resolve(lambda: self._cassandra.cas(raised), is_there)
        if not cas.is_applied and cas.row.get("last_acked_sequence") is None:
            added = (ADD_DEVICE, (*place, sequence))
            await self._cassandra.resolve(lambda: self._cassandra.cas(added), is_there)
