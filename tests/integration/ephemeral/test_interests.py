"""Interests in a Redis that was restarted, or that does not answer."""

from redis.asyncio import Redis

from parley.clock import wall_clock
from parley.ephemeral.redis.engine import RedisEphemeral
from tests.fakes import KEYS
from tests.integration.ephemeral.own_redis import OwnRedis
from tests.services import fresh_prefix, redis_url
from tests.waiting import eventually

FAR_MS = 60_000


async def test_a_tenure_of_another_run_of_the_server_is_over() -> None:
    """A Redis that was restarted, or a replica that took over, may lack the last of what was registered."""
    prefix = fresh_prefix()
    engine = RedisEphemeral(redis_url(), KEYS, wall_clock, prefix=prefix)
    redis = Redis.from_url(redis_url())
    try:
        assert await engine.interests.begin("n1.a")
        assert await engine.interests.renew("n1.a") is True
        await redis.hset(f"{prefix}tenures", "n1.a", f"{wall_clock() + FAR_MS} 0123456789abcdef")
        assert await engine.interests.renew("n1.a") is False
        assert await engine.interests.register("n1.a", ["chat_1"]) is None
    finally:
        await redis.aclose()
        await engine.close()


async def test_without_redis_nothing_is_claimed(own_redis: OwnRedis) -> None:
    """Every answer says that nobody knows; when Redis is back, empty, the tenure is over."""
    engine = RedisEphemeral(own_redis.url, KEYS, wall_clock)
    try:
        assert await engine.interests.begin("n1.a")
        await own_redis.kill()
        assert await engine.interests.renew("n1.a") is None
        assert await engine.interests.register("n1.a", ["chat_1"]) is None
        assert await engine.interests.tenures(["chat_1"]) is None
        assert await engine.interests.end("n1.a") is False
        assert await engine.interests.begin("n1.b") is False
        assert await engine.interests.is_suspected() is False
        await own_redis.start_empty()

        async def is_answered() -> bool:
            return await engine.interests.renew("n1.a") is False

        await eventually(is_answered)
    finally:
        await engine.close()
