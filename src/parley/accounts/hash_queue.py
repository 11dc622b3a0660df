"""Passwords are hashed on two threads, and those who wait take turns by where they come from.

A hash costs tens of milliseconds on purpose, so a flood of guesses fills any queue. Here every client (an
address) has a queue of its own and the queues are served in turn: a flood waits for itself, and a login from
elsewhere is next but one. When too many wait in total, the longest queue gives up its last place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from parley.errors import BUSY, SHUTTING_DOWN, Refused

T = TypeVar("T")

HASH_THREADS = 2
HASHES_WAITING_MAX = 256
HASHES_WAITING_PER_CLIENT_MAX = 192
assert HASHES_WAITING_PER_CLIENT_MAX < HASHES_WAITING_MAX, "one client never fills the queue"

Waiting = tuple[Callable[[], object], asyncio.Future[Any]]


class HashQueue:
    """Refuses with `BUSY` what would have to wait too long."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(HASH_THREADS, "parley-argon2")
        self._queues: dict[str, deque[Waiting]] = {}
        """By client, in the order of their turns. None is empty."""
        self._waiting = 0
        self._running = 0

    async def run(self, client: str, work: Callable[[], T]) -> T:
        """What `work` returns, on a thread, when the client has its turn."""
        self._make_room(client)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append((work, done))
        self._waiting += 1
        self._start()
        return await done

    def _make_room(self, client: str) -> None:
        mine = len(self._queues.get(client, ()))
        if mine >= HASHES_WAITING_PER_CLIENT_MAX:
            raise Refused(BUSY)
        if self._waiting < HASHES_WAITING_MAX:
            return
        longest = max(self._queues, key=lambda one: len(self._queues[one]))
        if len(self._queues[longest]) <= mine + 1:
            raise Refused(BUSY)
        _, done = self._queues[longest].pop()
        self._waiting -= 1
        if not done.done():
            done.set_exception(Refused(BUSY))

    def _start(self) -> None:
        """Give free threads to those whose turn it is."""
        while self._running < HASH_THREADS and self._queues:
            client = next(iter(self._queues))
            queue = self._queues.pop(client)
            work, done = queue.popleft()
            self._waiting -= 1
            if queue:
                self._queues[client] = queue  # behind all others
            if not done.done():
                self._running += 1
                hashing = asyncio.get_running_loop().run_in_executor(self._threads, work)
                hashing.add_done_callback(partial(self._finish, done))

    def _finish(self, done: asyncio.Future[Any], hashed: asyncio.Future[object]) -> None:
        self._running -= 1
        error = Refused(SHUTTING_DOWN) if hashed.cancelled() else hashed.exception()
        if done.done():
            pass  # the caller is gone
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(hashed.result())
        self._start()

    def close(self) -> None:
        waiting = [done for queue in self._queues.values() for _, done in queue if not done.done()]
        self._queues.clear()
        for done in waiting:
            done.set_exception(Refused(SHUTTING_DOWN))
        self._threads.shutdown(wait=False, cancel_futures=True)
