"""A Redis of a test's own, to be killed, paused and emptied."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from tests.services import OwnServices


class OwnRedis:
    """A Redis of this test's own."""

    def __init__(self, services: OwnServices) -> None:
        self._services = services
        self.url = services.environment("redis")["PARLEY_REDIS_URL"]

    async def kill(self) -> None:
        await asyncio.to_thread(self._services.kill, "redis")

    async def start_empty(self) -> None:
        await asyncio.to_thread(self._services.reset, "redis")

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Redis]:
        """A plain client, as an operator has one."""
        redis = Redis.from_url(self.url)
        try:
            yield redis
        finally:
            await redis.aclose()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """It is there, and does nothing."""
        async with self.asked() as redis:
            process_id = int((await redis.info("server"))["process_id"])
        os.kill(process_id, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process_id, signal.SIGCONT)
