"""Deadlines by name, without a clock."""

from __future__ import annotations

import heapq

Key = tuple[str, str]
"""What is due, and for whom."""


class Timers:
    """Each key has at most one deadline; setting it again replaces it."""

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def set(self, key: Key, at_ms: int) -> None:
        if self._at.get(key) != at_ms:
            self._at[key] = at_ms
            heapq.heappush(self._heap, (at_ms, key))
            self._forget_replaced()

    def cancel(self, key: Key) -> None:
        self._at.pop(key, None)

    def pending(self, key: Key) -> bool:
        return key in self._at

    def due(self, now_ms: int) -> list[Key]:
        """The keys whose time has come, earliest first; each is told once."""
        keys = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._at[key]
            keys.append(key)
        return keys

    def next_ms(self) -> int | None:
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _forget_replaced(self) -> None:
        """Replaced deadlines stay in the heap until they surface, unless they come to outnumber the rest."""
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._at):
            self._heap = [(at_ms, key) for key, at_ms in self._at.items()]
            heapq.heapify(self._heap)
