"""The `Allocator` on Redis: a key `seq:{chat_id}` per chat, and scripts that never create one by accident.

INCR alone would restart a lost counter at 1. All allocations of one turn of the event loop go into one script
call, and so into one write to the disk. docs/sequencing.md says how Redis must be configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from parley.errors import ConfigError, CounterMissingError, InconsistentCounterError, StoreUnavailable
from parley.sequencing.batches import AllocationBatcher, Outcome
from parley.sequencing.bodies import Allocation

CONNECTIONS_MAX = 16
BATCH_CHATS_MAX = 500
BATCHES_AT_ONCE_MAX = 4
assert BATCHES_AT_ONCE_MAX < CONNECTIONS_MAX, "no batch waits for a connection: that would lose the order"
ANSWER_SECONDS_MAX = 2.0
CONNECT_SECONDS_MAX = 1.0

T = TypeVar("T")

FIND = """
local function find(key, plain)
  local last = redis.pcall('GET', key)
  if last or key == plain or redis.pcall('RENAMENX', plain, key) ~= 1 then return last end
  return redis.pcall('GET', key)
end
"""
"""The counter of a chat. `plain`: its name before `redis.prefix` was put before it; it is renamed, so that
whoever still asks for the old name finds no counter and takes no number."""

ALLOCATE = (
    FIND
    + """
local function allocate(key, plain, count, floor)
  local last = find(key, plain)
  if not last then return {'missing', 0} end
  local number = tonumber(last)
  if not number then return {'invalid', 0} end
  if number < floor then return {'behind', number} end
  local new = redis.pcall('INCRBY', key, count)
  if type(new) ~= 'number' then return {'invalid', 0} end
  return {'allocated', new}
end
local outcomes = {}
for i = 1, #KEYS / 2 do
  outcomes[i] = allocate(KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return outcomes
"""
)
"""Allocates for each key. A key that holds no number fails alone: Redis rolls nothing back."""

CREATE = FIND + "if not find(KEYS[1], KEYS[2]) then redis.call('SET', KEYS[1], 0) end"

LAST = FIND + "return find(KEYS[1], KEYS[2])"

RESTORE = (
    FIND
    + """
local last = find(KEYS[1], KEYS[2])
if last and tonumber(last) >= tonumber(ARGV[1]) then return tonumber(last) end
redis.call('SET', KEYS[1], ARGV[1])
return tonumber(ARGV[1])
"""
)


def connect(url: str) -> Redis:
    """A client that repeats nothing by itself. Callers limit its time with `answered`.

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
        # The library's message may contain a part of the password.
        raise ConfigError("redis.url must be like redis://host:6379/0") from None
    return Redis.from_pool(pool)


async def answered(command: Awaitable[T], seconds: float = ANSWER_SECONDS_MAX) -> T:
    """The answer of Redis; StoreUnavailable if it does not arrive in time."""
    try:
        async with asyncio.timeout(seconds):
            return await command
    except (RedisError, TimeoutError) as error:
        raise StoreUnavailable(f"Redis did not answer: {str(error) or type(error).__name__}") from error


def key_of(chat_id: str) -> str:
    return f"seq:{chat_id}"


class RedisAllocator:
    """If an answer is lost, its numbers are lost too: the caller gets StoreUnavailable, no number twice.

    `prefix` begins every key.
    """

    def __init__(self, url: str, *, prefix: str = "", answer_seconds: float = ANSWER_SECONDS_MAX) -> None:
        self._redis = connect(url)
        self._prefix = prefix
        self._answer_seconds = answer_seconds
        self._batcher = AllocationBatcher(
            self._allocate, size_max=BATCH_CHATS_MAX, at_once_max=BATCHES_AT_ONCE_MAX
        )
        self._script = self._redis.register_script(ALLOCATE)
        self._create = self._redis.register_script(CREATE)
        self._last = self._redis.register_script(LAST)
        self._restore = self._redis.register_script(RESTORE)

    async def create(self, chat_id: str) -> None:
        await self._answered(self._create(keys=self._keys(chat_id)))

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        if count < 1:
            raise ValueError("count must be at least 1")
        return await self._batcher.allocate(Allocation(chat_id, count, floor))

    async def last(self, chat_id: str) -> int | None:
        found = await self._answered(self._last(keys=self._keys(chat_id)))
        return None if found is None else int(found)

    async def restore(self, chat_id: str, at_least: int) -> int:
        return int(await self._answered(self._restore(keys=self._keys(chat_id), args=[at_least])))

    async def close(self) -> None:
        await self._redis.aclose()

    async def _allocate(self, batch: list[Allocation]) -> list[Outcome]:
        keys = [key for allocation in batch for key in self._keys(allocation.chat_id)]
        numbers = [number for allocation in batch for number in (allocation.count, allocation.floor)]
        outcomes = await self._answered(self._script(keys=keys, args=numbers))
        return [_outcome(allocation, *outcome) for allocation, outcome in zip(batch, outcomes, strict=True)]

    def _keys(self, chat_id: str) -> list[str]:
        """The key of a counter, and the name that it may still have."""
        return [self._prefix + key_of(chat_id), key_of(chat_id)]

    async def _answered(self, command: Awaitable[Any]) -> Any:
        return await answered(command, self._answer_seconds)


def _outcome(allocation: Allocation, verdict: bytes, number: int) -> Outcome:
    if verdict == b"allocated":
        return number
    if verdict == b"missing":
        return CounterMissingError(f"{allocation.chat_id} has no counter in Redis")
    if verdict == b"behind":
        return InconsistentCounterError(number, allocation.floor)
    return StoreUnavailable(f"the counter {key_of(allocation.chat_id)} in Redis holds no number")


UNKNOWN_SETTINGS = (
    "Redis does not show its settings: make sure that appendonly is yes, appendfsync is always"
    " and maxmemory-policy is noeviction"
)


def problems_in(settings: Mapping[str, str]) -> list[str]:
    """What is wrong with these settings for counters that must survive a restart; empty if nothing is."""
    problems = []
    if settings.get("appendonly") != "yes":
        problems.append("appendonly is off: a restart loses every counter; set appendonly yes")
    elif settings.get("appendfsync") != "always":
        problems.append(
            f"appendfsync is {settings.get('appendfsync')}: a power failure can lose the last writes to"
            " counters; set appendfsync always"
        )
    policy = settings.get("maxmemory-policy")
    if policy != "noeviction":
        problems.append(f"maxmemory-policy is {policy}: counters can be evicted; set it to noeviction")
    return problems


async def durability_problems(url: str) -> list[str]:
    """What is wrong with the Redis at this address; StoreUnavailable when it does not answer."""
    redis = connect(url)
    try:
        found = await answered(redis.config_get("appendonly", "appendfsync", "maxmemory-policy"))
    except StoreUnavailable as error:
        if isinstance(error.__cause__, ResponseError):
            return [UNKNOWN_SETTINGS]  # managed services disable CONFIG
        raise
    finally:
        await redis.aclose()
    return problems_in({name or "": value or "" for name, value in found.items()})
