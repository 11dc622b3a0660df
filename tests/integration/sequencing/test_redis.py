"""Redis as the keeper of counters: what survives, what is noticed when it does not, and what doctor says."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from parley.errors import ConfigError, CounterMissingError, InconsistentCounterError, StoreUnavailable
from parley.sequencing.redis import (
    UNKNOWN_SETTINGS,
    RedisAllocator,
    connect,
    durability_problems,
    key_of,
    problems_in,
)
from tests.contracts.allocators import new_chat
from tests.services import OwnServices, redis_url
from tests.waiting import eventually

DURABLE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


async def test_counters_survive_a_kill(tmp_path: Path) -> None:
    """Redis with an append-only file is killed again and again under load, and no number comes twice."""
    with OwnServices(tmp_path) as services:
        await asyncio.to_thread(services.up, "redis")
        allocator = RedisAllocator(services.environment("redis")["PARLEY_REDIS_URL"], answer_seconds=5)
        await allocator.create("a")
        given: list[int] = []
        takers = [asyncio.create_task(take_for_ever(allocator, given)) for _ in range(8)]
        for _ in range(3):
            await eventually(partial(has_grown, given, len(given) + 200))
            await asyncio.to_thread(services.kill, "redis")
            await asyncio.to_thread(services.start, "redis")
        for taker in takers:
            taker.cancel()
        ends = await asyncio.gather(*takers, return_exceptions=True)
        last = await last_given(allocator)
        await allocator.close()
    assert {type(end) for end in ends} == {asyncio.CancelledError}, "no counter was ever missing or behind"
    assert len(set(given)) == len(given)
    assert last is not None
    assert max(given) <= last


def has_grown(given: list[int], enough: int) -> bool:
    return len(given) >= enough


async def last_given(allocator: RedisAllocator) -> int | None:
    """A connection to a Redis that was killed may only notice it now."""
    while True:
        try:
            return await allocator.last("a")
        except StoreUnavailable:
            await asyncio.sleep(0.01)


async def take_for_ever(allocator: RedisAllocator, given: list[int]) -> None:
    """As an ingest node does: the floor is the highest number that it has seen."""
    while True:
        try:
            given.append(await allocator.allocate("a", 1, max(given, default=0)))
        except StoreUnavailable:
            await asyncio.sleep(0.01)


async def test_lost_data_is_noticed_and_recovered() -> None:
    """A Redis that lost its counters, or brought back old ones, gives nothing until they are restored."""
    url = await asyncio.to_thread(redis_url)
    allocator, redis, chat = RedisAllocator(url), connect(url), new_chat()
    await allocator.create(chat)
    head = await allocator.allocate(chat, 20, 0)
    await redis.delete(key_of(chat))
    with pytest.raises(CounterMissingError):
        await allocator.allocate(chat, 1, head)
    await redis.set(key_of(chat), 11)
    with pytest.raises(
        InconsistentCounterError, match="Counter exists with value 11 but max message sequence is 20"
    ):
        await allocator.allocate(chat, 1, head)
    assert await redis.get(key_of(chat)) == b"11"
    assert await allocator.restore(chat, head) == head
    assert await allocator.allocate(chat, 1, head) == head + 1
    await redis.delete(key_of(chat))
    await allocator.close()
    await redis.aclose()


async def test_a_counter_stands_behind_the_prefix_of_its_deployment() -> None:
    """What one deployment loses or flushes by its prefix is its own, and no other key is touched."""
    url = await asyncio.to_thread(redis_url)
    allocator, redis, chat = RedisAllocator(url, prefix="blue:"), connect(url), new_chat()
    await allocator.create(chat)
    assert await allocator.allocate(chat, 3, 0) == 3
    assert await redis.get(f"blue:seq:{chat}") == b"3"
    assert await redis.exists(f"seq:{chat}") == 0
    await redis.delete(f"blue:seq:{chat}")
    await allocator.close()
    await redis.aclose()


@pytest.mark.parametrize("first", ["allocate", "last", "restore", "create"])
async def test_a_counter_of_before_the_prefix_is_adopted(first: str) -> None:
    """It is renamed, whoever asks first: no number is given twice, and none by the old name again."""
    url = await asyncio.to_thread(redis_url)
    allocator, redis, chat = RedisAllocator(url, prefix="blue:"), connect(url), new_chat()
    await redis.set(f"seq:{chat}", 7)
    arguments = {"allocate": (chat, 1, 7), "last": (chat,), "restore": (chat, 5), "create": (chat,)}
    answer = await getattr(allocator, first)(*arguments[first])
    assert answer == {"allocate": 8, "last": 7, "restore": 7, "create": None}[first]
    before = RedisAllocator(url)
    with pytest.raises(CounterMissingError):
        await before.allocate(chat, 1, 7)
    assert await redis.get(f"blue:seq:{chat}") == (b"8" if first == "allocate" else b"7")
    await redis.delete(f"blue:seq:{chat}")
    for each in (allocator, before):
        await each.close()
    await redis.aclose()


async def test_what_is_no_counter_gives_nothing() -> None:
    """A key that some other program has written over is an error, for itself and for nobody beside it."""
    url = await asyncio.to_thread(redis_url)
    allocator, redis, chats = RedisAllocator(url), connect(url), [new_chat() for _ in range(4)]
    await redis.set(key_of(chats[0]), "nonsense")
    await redis.rpush(key_of(chats[1]), "a list")
    await redis.set(key_of(chats[2]), "1.5")
    await allocator.create(chats[3])
    asked = [allocator.allocate(chat, 1, 0) for chat in chats]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3 + [int]
    assert await redis.get(key_of(chats[0])) == b"nonsense"
    assert await redis.get(key_of(chats[2])) == b"1.5"
    await redis.delete(*map(key_of, chats))
    await allocator.close()
    await redis.aclose()


async def test_scripts_are_loaded_again() -> None:
    """A Redis that forgot the scripts is told them again, without a failed call."""
    url = await asyncio.to_thread(redis_url)
    allocator, redis, chat = RedisAllocator(url), connect(url), new_chat()
    await allocator.create(chat)
    await allocator.allocate(chat, 1, 0)
    await redis.script_flush()
    assert await allocator.allocate(chat, 1, 0) == 2
    await redis.delete(key_of(chat))
    await allocator.close()
    await redis.aclose()


def test_durable_settings_are_well() -> None:
    """Settings that keep every counter are no problem."""
    assert problems_in(DURABLE) == []


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("appendonly", "no", "appendonly"),
        ("appendfsync", "everysec", "power failure"),
        ("appendfsync", "no", "power failure"),
        ("maxmemory-policy", "allkeys-lru", "evicted"),
    ],
)
def test_each_loose_setting_is_named(name: str, value: str, word: str) -> None:
    """An operator reads what is wrong and what to set instead."""
    [problem] = problems_in({**DURABLE, name: value})
    assert word in problem
    assert name in problem


async def test_a_real_redis_tells_its_settings(tmp_path: Path) -> None:
    """What the server says of itself is what is judged, also after it was changed."""
    with OwnServices(tmp_path) as services:
        await asyncio.to_thread(services.up, "redis")
        url = services.environment("redis")["PARLEY_REDIS_URL"]
        assert await durability_problems(url) == []
        redis = connect(url)
        await redis.config_set("appendfsync", "everysec")
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        assert len(await durability_problems(url)) == 2
        await forbid_config(redis)
        assert await durability_problems(url.replace("redis://", "redis://guest:secret@")) == [
            UNKNOWN_SETTINGS
        ]
        await redis.aclose()


async def forbid_config(redis: Redis) -> None:
    """As managed services do."""
    await redis.acl_setuser(
        "guest", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"], commands=["-config"]
    )


async def test_a_wrong_password_is_not_repeated() -> None:
    """Neither an address that cannot be read nor a refused password shows what it holds."""
    url = await asyncio.to_thread(redis_url)
    allocator = RedisAllocator(url.replace("redis://", "redis://guest:hunter2@"))
    with pytest.raises(StoreUnavailable) as refused:
        await allocator.allocate("a", 1, 0)
    assert "hunter2" not in f"{refused.value} {refused.value.__cause__!r}"
    await allocator.close()
    for address in ("redis://:hunter2@[", "hunter2", "redis://host:hunter2/0"):
        with pytest.raises(ConfigError) as unreadable:
            RedisAllocator(address)
        assert "hunter2" not in f"{unreadable.value} {unreadable.value.__cause__!r}"
