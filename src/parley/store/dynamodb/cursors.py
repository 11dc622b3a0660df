"""The `Cursors` port on DynamoDB: how far devices have received and people have read.

Positions are noted in memory, and only the highest of each is written, a moment later. Other nodes write the
same rows, so every write has the condition that the position rises.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from parley.clock import iso
from parley.errors import OutcomeUnknown
from parley.model import CursorMove
from parley.store.buffered_cursors import (
    Advance,
    BufferedCursors,
    CursorWriter,
    KnownPositions,
    Report,
    UserInChat,
    moved,
)
from parley.store.dynamodb.driver import (
    ConditionFailed,
    Dynamo,
    Item,
    is_valid_key,
    number,
    retry_unknown,
)
from parley.store.dynamodb.schema import DELIVERY, DEVICES, device_key, device_prefix
from parley.store.notes import Mark


class DynamoCursors(BufferedCursors):
    def __init__(self, dynamo: Dynamo) -> None:
        super().__init__(lambda report: DynamoCursorWriter(dynamo, report))
        self._dynamo = dynamo

    async def _delete_device(self, user_id: str, device_id: str) -> None:
        """Another node may still write its own notes of the device."""
        if not is_valid_key(user_id):
            return
        rows = await self._dynamo.query_all(
            DEVICES,
            "user_id = :user AND begins_with(device_chat, :device)",
            {":user": user_id, ":device": device_prefix(device_id)},
            projection="user_id, device_chat",
        )
        await retry_unknown(lambda: self._dynamo.batch_delete(DEVICES, rows))

    async def _stored_position(self, user_id: str, device_id: str, chat_id: str) -> int:
        if not is_valid_key(user_id, chat_id):
            return 0
        row = await self._dynamo.get(DEVICES, device_key(user_id, device_id, chat_id))
        return number(row, "last_acked_sequence") if row is not None else 0


class DynamoCursorWriter(CursorWriter):
    """Calls `report` with a person's positions right after they rose."""

    def __init__(self, dynamo: Dynamo, report: Report) -> None:
        super().__init__()
        self._dynamo = dynamo
        self._report = report
        self._known = KnownPositions()
        self._unknown: set[UserInChat] = set()
        """The outcome of the last write is unknown: it may have written the stored position."""

    async def write_advance(self, advance: Advance) -> None:
        if not is_valid_key(advance.user_id, advance.chat_id):
            return  # no such row can exist
        for device_id, mark in advance.devices.items():
            await retry_unknown(partial(self._raise_device, advance, device_id, mark[0]))
        rose: list[CursorMove] = []
        try:
            await retry_unknown(partial(self._raise_person, advance, rose))
        finally:
            if rose:
                self._report(rose)

    async def _raise_device(self, advance: Advance, device_id: str, sequence: int) -> None:
        with contextlib.suppress(ConditionFailed):  # the stored position is this one or higher
            await self._dynamo.update(
                DEVICES,
                device_key(advance.user_id, device_id, advance.chat_id),
                "SET last_acked_sequence = :at, device_id = :device, chat_id = :chat",
                {":at": sequence, ":device": device_id, ":chat": advance.chat_id},
                condition="attribute_not_exists(user_id) OR last_acked_sequence < :at",
            )

    async def _raise_person(self, advance: Advance, rose: list[CursorMove]) -> None:
        """Raise both positions in one write; if one does not rise, only the other. The row must exist."""
        place = advance.user_id, advance.chat_id
        acked, read = self._known.above(place, advance.acked, advance.read)
        while acked is not None or read is not None:
            expression, values, condition = _raising(acked, read)
            try:
                await self._dynamo.update(
                    DELIVERY,
                    {"user_id": advance.user_id, "chat_id": advance.chat_id},
                    expression,
                    values,
                    condition=condition,
                )
            except (OutcomeUnknown, asyncio.CancelledError):
                self._unknown.add(place)
                raise
            except ConditionFailed as failed:
                item = failed.item or {}
                if place in self._unknown:
                    rose += moved(advance, *_written_before(acked, read, item))
                known = (number(item, "last_acked_sequence"), 0), (number(item, "read_up_to"), 0)
                self._known.add(place, *known)
                before, (acked, read) = (acked, read), self._known.above(place, acked, read)
                if not item or before == (acked, read):
                    break  # there is no such row, or Parley did not write it
            else:
                rose += moved(advance, acked, read)
                self._known.add(place, acked, read)
                acked = read = None
        self._unknown.discard(place)


def _raising(acked: Mark | None, read: Mark | None) -> tuple[str, Item, str]:
    """Expression, values and condition of the update that raises these positions."""
    settings, values, conditions = list[str](), Item({":one": 1}), ["attribute_exists(user_id)"]
    if acked is not None:
        settings.append("last_acked_sequence = :acked, delivered_at = :delivered_at")
        values |= {":acked": acked[0], ":delivered_at": iso(acked[1])}
        conditions.append("(attribute_not_exists(last_acked_sequence) OR last_acked_sequence < :acked)")
    if read is not None:
        settings.append("read_up_to = :read, read_at = :read_at")
        values |= {":read": read[0], ":read_at": iso(read[1])}
        conditions.append("(attribute_not_exists(read_up_to) OR read_up_to < :read)")
    return f"SET {', '.join(settings)} ADD revision :one", values, " AND ".join(conditions)


def _written_before(acked: Mark | None, read: Mark | None, item: Item) -> tuple[Mark | None, Mark | None]:
    """Those of the two that are stored with our position and time: an earlier attempt wrote them."""
    is_acked = acked is not None and (
        (item.get("last_acked_sequence"), item.get("delivered_at")) == (acked[0], iso(acked[1]))
    )
    is_read = read is not None and ((item.get("read_up_to"), item.get("read_at")) == (read[0], iso(read[1])))
    return acked if is_acked else None, read if is_read else None
