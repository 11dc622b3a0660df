"""Reported positions that are not durable yet. They only rise: the highest one counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog

from parley.model import CursorMove

Mark = tuple[int, int]
"""A sequence, and when it was reported, in milliseconds since 1970."""
NOTHING: Mark = (-1, 0)

Key = TypeVar("Key", bound=tuple[str, ...])


log = structlog.get_logger("parley.store")


def notify_all(listeners: Iterable[Callable[[list[CursorMove]], None]], moves: list[CursorMove]) -> None:
    """The positions are durable, so an error of a listener must not fail their writers."""
    for notify in listeners:
        try:
            notify(moves)
        except Exception:
            log.exception("a listener failed on moved positions", positions=len(moves))


class Notes:
    __slots__ = ("acked", "read")

    def __init__(self) -> None:
        self.acked: dict[tuple[str, str, str], Mark] = {}
        """By person, device and chat."""
        self.read: dict[tuple[str, str], Mark] = {}
        """By person and chat."""

    def __bool__(self) -> bool:
        return bool(self.acked or self.read)

    def note_acked(self, user_id: str, device_id: str, chat_id: str, mark: Mark) -> None:
        _raise(self.acked, (user_id, device_id, chat_id), mark)

    def note_read(self, user_id: str, chat_id: str, mark: Mark) -> None:
        _raise(self.read, (user_id, chat_id), mark)

    def forget_device(self, user_id: str, device_id: str) -> None:
        """Drop the positions of a deleted device, so that they are not written later."""
        for device in [device for device in self.acked if device[:2] == (user_id, device_id)]:
            del self.acked[device]

    def delivered(self) -> dict[tuple[str, str], Mark]:
        """The furthest of each person's devices in each chat. A read position also counts as delivered."""
        furthest = dict(self.read)
        for (user_id, _, chat_id), mark in self.acked.items():
            _raise(furthest, (user_id, chat_id), mark)
        return furthest

    def merge(self, other: Notes) -> None:
        """Add the notes of `other`; the higher one of each position stays."""
        for device, mark in other.acked.items():
            _raise(self.acked, device, mark)
        for person, mark in other.read.items():
            _raise(self.read, person, mark)


def _raise(marks: dict[Key, Mark], key: Key, mark: Mark) -> None:
    if mark[0] > marks.get(key, NOTHING)[0]:
        marks[key] = mark
