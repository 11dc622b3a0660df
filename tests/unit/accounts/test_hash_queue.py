"""Hashes take turns by where they come from, and few wait."""

import asyncio
import threading

import pytest

from parley.accounts.hash_queue import (
    HASH_THREADS,
    HASHES_WAITING_MAX,
    HASHES_WAITING_PER_CLIENT_MAX,
    HashQueue,
)
from parley.errors import Refused


class Turns:
    """Work that waits until it is let go on, and the order in which it ran."""

    def __init__(self) -> None:
        self.queue = HashQueue()
        self.ran: list[str] = []
        self._allowed = threading.Semaphore(0)
        self._tasks: list[asyncio.Task[str]] = []

    def wait(self, client: str, count: int = 1) -> None:
        for _ in range(count):
            self._tasks.append(asyncio.create_task(self.queue.run(client, lambda: self._work(client))))

    def _work(self, client: str) -> str:
        self._allowed.acquire()
        self.ran.append(client)
        return client

    async def finish(self) -> list[str]:
        """What became of each: its client, or the code that it was refused with."""
        self._allowed.release(len(self._tasks))
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.queue.close()
        return [each.refusal.code if isinstance(each, Refused) else str(each) for each in results]


async def test_a_client_with_one_hash_overtakes_a_flood() -> None:
    """It is next, after those that have begun and one of the flood."""
    turns = Turns()
    turns.wait("flood", 50)
    await asyncio.sleep(0)
    turns.wait("owner")
    await asyncio.sleep(0)
    await turns.finish()
    assert turns.ran.index("owner") <= HASH_THREADS + 1


async def test_two_floods_share_the_threads() -> None:
    """Neither is done before the other has had as many turns, give or take those that run at once."""
    turns = Turns()
    turns.wait("one", 20)
    turns.wait("two", 20)
    await asyncio.sleep(0)
    await turns.finish()
    first = turns.ran[:20]
    assert abs(first.count("one") - first.count("two")) <= 2 * HASH_THREADS


async def test_one_client_cannot_fill_the_queue() -> None:
    """What is beyond its share is refused at once, and somebody else still gets in."""
    turns = Turns()
    turns.wait("flood", HASHES_WAITING_MAX + 50)
    await asyncio.sleep(0)
    turns.wait("owner")
    results = await turns.finish()
    assert results.count("flood") == HASHES_WAITING_PER_CLIENT_MAX + HASH_THREADS
    assert results[-1] == "owner"


async def test_many_clients_cannot_fill_the_queue() -> None:
    """When all places are taken, the longest queue gives up its last one for who has none."""
    turns = Turns()
    for number in range(4):
        turns.wait(f"flood{number}", HASHES_WAITING_MAX // 4 + HASH_THREADS)
    await asyncio.sleep(0)
    turns.wait("owner")
    results = await turns.finish()
    assert results[-1] == "owner"
    assert results.count("busy") > 0


async def test_no_more_than_the_limit_waits() -> None:
    """However many clients there are: then a newcomer is refused like everybody."""
    turns = Turns()
    for number in range(HASHES_WAITING_MAX + HASH_THREADS):
        turns.wait(f"client{number}")
    await asyncio.sleep(0)
    turns.wait("late")
    results = await turns.finish()
    assert results[-1] == "busy"
    assert results.count("busy") == 1


async def test_a_failure_is_the_callers_own() -> None:
    """An error of the work reaches the one who waits for it, and the queue goes on."""
    queue = HashQueue()

    def fail() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        await queue.run("ann", fail)
    assert await queue.run("ann", lambda: "done") == "done"
    queue.close()


async def test_who_has_gone_takes_no_turn() -> None:
    """A cancelled caller's hash is not computed."""
    turns = Turns()
    turns.wait("flood", HASH_THREADS)
    turns.wait("gone")
    turns.wait("ann")
    await asyncio.sleep(0)
    turns._tasks[HASH_THREADS].cancel()
    await turns.finish()
    assert sorted(turns.ran) == ["ann"] + ["flood"] * HASH_THREADS


async def test_a_queue_that_closes_refuses_what_waits() -> None:
    """Nobody waits for ever."""
    turns = Turns()
    turns.wait("ann", HASH_THREADS + 1)
    await asyncio.sleep(0)
    turns.queue.close()
    assert "shutting_down" in await turns.finish()
