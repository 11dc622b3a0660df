"""Pages of a log: contiguous, resolved and bounded in size, whatever rows the engine read."""

from __future__ import annotations

import msgspec

from parley.errors import StoreDamaged
from parley.model import Page
from parley.wire.codec import MALFORMED, decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_BYTES_MAX

skip = msgspec.json.Decoder(msgspec.Raw).decode
"""Reads to the end of a value, and makes nothing of it."""

Row = tuple[int, bytes | None]
"""A position and the JSON of its entry; None for a void."""


def fitting(rows: list[Row]) -> list[Row]:
    """The first rows up to the size of a page; at least one."""
    size = 0
    for count, (_, wire) in enumerate(rows):
        size += len(wire or b"")
        if size > PAGE_BYTES_MAX and count:
            return rows[:count]
    return rows


def contiguous(rows: list[Row], after: int) -> list[Row]:
    """The rows up to the first hole: a page never skips a missing position."""
    if not rows or rows[-1][0] == after + len(rows):
        return rows
    return [row for index, row in enumerate(rows) if row[0] == after + 1 + index]


def contiguous_down(rows: list[Row], end: int) -> list[Row]:
    """The same for rows that descend from just below `end`."""
    return [row for index, row in enumerate(rows) if row[0] == end - 1 - index]


def stored_entry(chat_id: str, wire: bytes, sequence: int = 0) -> Entry:
    """The entry of a row. StoreDamaged if it does not decode, without a word of what stands there."""
    try:
        return decode_entry(wire)
    except (*MALFORMED, TypeError) as error:
        where = f"position {sequence}" if sequence else "an entry"
        raise StoreDamaged(chat_id, f"{where} does not decode ({type(error).__name__})") from error


def readable(chat_id: str, rows: list[Row]) -> list[Row]:
    """The rows before the first that does not decode; StoreDamaged if that is the first of all."""
    return rows if _are_whole(rows) else _before_damage(chat_id, rows)


def _are_whole(rows: list[Row]) -> bool:
    """Whether all are JSON in UTF-8: at half the cost of decoding each, on every page that is read."""
    wires = [wire for _, wire in rows if wire is not None]
    try:
        b"".join(wires).decode()
        for wire in wires:
            skip(wire)
    except (*MALFORMED, TypeError):
        return False
    return True


def _before_damage(chat_id: str, rows: list[Row]) -> list[Row]:
    for count, (sequence, wire) in enumerate(rows):
        try:
            if wire is not None:
                stored_entry(chat_id, wire, sequence)
        except StoreDamaged:
            if not count:
                raise
            return rows[:count]
    return rows


def hole(chat_id: str, sequence: int) -> StoreDamaged:
    """Nothing is at a position that the log has."""
    return StoreDamaged(chat_id, f"position {sequence}: nothing is there")


def page_of(chat_id: str, epoch: int, rows: list[Row], after: int, head: int) -> Page:
    entries = [wire for _, wire in rows if wire is not None]
    voids = [sequence for sequence, wire in rows if wire is None] if len(entries) < len(rows) else []
    return Page(chat_id, epoch, entries, voids, after + 1, after + len(rows), head)
