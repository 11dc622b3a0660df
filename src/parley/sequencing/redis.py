"""Numbers from Redis: one key `seq:{chat_id}` per chat, and scripts that never make one by accident.

INCR alone would start a lost counter again at 1. What is asked for in one turn of the loop is one script, and
one write to the disk. docs/sequencing.md says what Redis must be told to keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from parley.errors import ConfigError, CounterMissingError, InconsistentCounterError, StoreUnavailable
from parley.sequencing.batching import Batching, Outcome
from parley.sequencing.bodies import Allocation

CONNECTIONS_MAX = 16
BATCH_CHATS_MAX = 500
BATCHES_AT_ONCE_MAX = 4
assert BATCHES_AT_ONCE_MAX < CONNECTIONS_MAX, "no batch waits for a connection: who does waits without order"
ANSWER_SECONDS_MAX = 2.0
CONNECT_SECONDS_MAX = 1.0

T = TypeVar("T")

ALLOCATE = """
local function allocate(key, count, floor)
  local last = redis.pcall('GET', key)
  if not last then return {'missing', 0} end
  local number = tonumber(last)
  if not number then return {'strange', 0} end
  if number < floor then return {'behind', number} end
  local given = redis.pcall('INCRBY', key, count)
  if type(given) ~= 'number' then return {'strange', 0} end
  return {'given', given}
end
local outcomes = {}
for i, key in ipairs(KEYS) do outcomes[i] = allocate(key, ARGV[2 * i - 1], tonumber(ARGV[2 * i])) end
return outcomes
"""
"""A block for each key. A key that holds something else fails for itself: nothing undoes what others got."""

RESTORE = """
local last = redis.call('GET', KEYS[1])
if last and tonumber(last) >= tonumber(ARGV[1]) then return tonumber(last) end
redis.call('SET', KEYS[1], ARGV[1])
return tonumber(ARGV[1])
"""


def connect(url: str) -> Redis:
    """A client that repeats nothing by itself. Whoever uses it limits its time by `answered`.

    Its own `socket_timeout` stays off: on Python 3.11 it would swallow the cancellation of a caller.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=CONNECT_SECONDS_MAX,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:
        # What was said about it may hold a part of the password.
        raise ConfigError("redis.url must be like redis://host:6379/0") from None
    return Redis.from_pool(pool)


async def answered(command: Awaitable[T], seconds: float = ANSWER_SECONDS_MAX) -> T:
    """What Redis answers, in time; StoreUnavailable otherwise."""
    try:
        async with asyncio.timeout(seconds):
            return await command
    except (RedisError, TimeoutError) as error:
        raise StoreUnavailable(f"Redis did not answer: {str(error) or type(error).__name__}") from error


def key_of(chat_id: str) -> str:
    return f"seq:{chat_id}"


class RedisAllocator:
    """The `Allocator` port. When an answer is lost its numbers are too: StoreUnavailable, never twice."""

    def __init__(self, url: str, *, answer_seconds: float = ANSWER_SECONDS_MAX) -> None:
        self._redis = connect(url)
        self._answer_seconds = answer_seconds
        self._batching = Batching(self._allocate, size_max=BATCH_CHATS_MAX, at_once_max=BATCHES_AT_ONCE_MAX)
        self._script = self._redis.register_script(ALLOCATE)
        self._restore = self._redis.register_script(RESTORE)

    async def create(self, chat_id: str) -> None:
        await self._answered(self._redis.set(key_of(chat_id), 0, nx=True))

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        if count < 1:
            raise ValueError("a block has at least one number")
        return await self._batching.allocate(Allocation(chat_id, count, floor))

    async def last(self, chat_id: str) -> int | None:
        found = await self._answered(self._redis.get(key_of(chat_id)))
        return None if found is None else int(found)

    async def restore(self, chat_id: str, at_least: int) -> int:
        return int(await self._answered(self._restore(keys=[key_of(chat_id)], args=[at_least])))

    async def close(self) -> None:
        await self._redis.aclose()

    async def _allocate(self, batch: list[Allocation]) -> list[Outcome]:
        keys = [key_of(asked.chat_id) for asked in batch]
        numbers = [number for asked in batch for number in (asked.count, asked.floor)]
        outcomes = await self._answered(self._script(keys=keys, args=numbers))
        return [_outcome(asked, *outcome) for asked, outcome in zip(batch, outcomes, strict=True)]

    async def _answered(self, command: Awaitable[Any]) -> Any:
        return await answered(command, self._answer_seconds)


def _outcome(asked: Allocation, verdict: bytes, number: int) -> Outcome:
    if verdict == b"given":
        return number
    if verdict == b"missing":
        return CounterMissingError(f"{asked.chat_id} has no counter in Redis")
    if verdict == b"behind":
        return InconsistentCounterError(number, asked.floor)
    return StoreUnavailable(f"the key {key_of(asked.chat_id)} in Redis holds no number")
