"""Few at a time, and fair: the work of a person waits for their own, and for one of each other person."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley.errors import SHUTTING_DOWN, Refused


class FairTurns:
    """At most `at_once_max` turns, one of a person; people who wait are served round about."""

    def __init__(self, at_once_max: int) -> None:
        self._at_once_max = at_once_max
        self._busy: set[str] = set()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """By person, in the order of their turns. None is empty."""
        self._is_closed = False

    @asynccontextmanager
    async def turn(self, person: str) -> AsyncIterator[None]:
        """Inside, it is this person's turn. Refused once it is closed, also while it waits."""
        if self._is_closed:
            raise Refused(SHUTTING_DOWN)
        begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(person, deque()).append(begins)
        self._serve()
        try:
            await begins
        except asyncio.CancelledError:
            if begins.done() and not begins.cancelled():  # in the moment in which it began
                self._end(person)
            raise
        try:
            yield
        finally:
            self._end(person)

    def _serve(self) -> None:
        for person in [person for person in self._queues if person not in self._busy]:
            if len(self._busy) >= self._at_once_max:
                return
            queue = self._queues.pop(person)
            while queue and (begins := queue.popleft()).done():
                pass  # who asked is gone
            if not begins.done():
                self._busy.add(person)
                begins.set_result(None)
            if queue:
                self._queues[person] = queue

    def _end(self, person: str) -> None:
        self._busy.discard(person)
        if person in self._queues:
            self._queues[person] = self._queues.pop(person)  # behind all others
        self._serve()

    def close(self) -> None:
        """Nobody waits any more. Turns that have begun go on."""
        self._is_closed = True
        waiting = [begins for queue in self._queues.values() for begins in queue if not begins.done()]
        self._queues.clear()
        for begins in waiting:
            begins.set_exception(Refused(SHUTTING_DOWN))
