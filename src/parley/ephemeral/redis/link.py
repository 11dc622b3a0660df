"""The way to Redis: every call is short, none raises, and one that cannot work is not made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import structlog
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from parley.ephemeral.circuit import Circuit
from parley.ephemeral.listeners import Listeners
from parley.errors import ConfigError

CALL_SECONDS_MAX = 0.5
CALLS_AT_ONCE_MAX = 8
CONNECTIONS_MAX = 2 * CALLS_AT_ONCE_MAX
"""Some may still be closing."""

T = TypeVar("T")
Value = str | int | float
Script = Callable[[Sequence[str], Sequence[Value]], Awaitable[Any]]

log = structlog.get_logger("parley.ephemeral")


def client_of(url: str, seconds_max: float = CALL_SECONDS_MAX, retries: int = 0) -> Redis:
    """A client that waits for nothing longer than so much."""
    try:
        pool = ConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            socket_timeout=seconds_max,
            socket_connect_timeout=seconds_max,
            retry=Retry(NoBackoff(), retries, supported_errors=(RedisConnectionError,)),
        )
    except ValueError:
        # What the library says about it may hold a part of the password.
        raise ConfigError("redis.url must be like redis://host:6379/0 or rediss://host:6379/0") from None
    return Redis.from_pool(pool)


class Link:
    """One client for all that is kept in Redis, and whether it is worth asking."""

    def __init__(self, url: str) -> None:
        # A connection may have been closed while it lay idle: that is no outage, and a new one is made. Who
        # listens must hear of every connection that is lost, so nothing is repeated there.
        self.client = client_of(url, retries=1)
        self.listening = client_of(url)
        self._circuit = Circuit()
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE_MAX)
        self._listeners = Listeners[None]()

    @property
    def available(self) -> bool:
        return not self._circuit.is_open

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        """Called whenever Redis may have forgotten what it was told."""
        return self._listeners.add(lambda _: returned())

    def script(self, text: str) -> Script:
        """A script that is sent by its hash, and whole when Redis does not know it (any more)."""
        registered = self.client.register_script(text)
        return lambda keys, values: registered(keys=keys, args=values)

    async def call(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None when there is none in time, or none is to be expected."""
        async with self._turns:
            if not self._circuit.allows(asyncio.get_running_loop().time()):
                return None
            try:
                async with asyncio.timeout(CALL_SECONDS_MAX):
                    answer = await ask()
            except Exception as error:  # whatever it is, nobody's connect or send may fail by it
                self.lost(error)
                return None
            self.worked()
            return answer

    def lost(self, error: Exception) -> None:
        """Something failed that would not have if Redis were well."""
        if self._circuit.failed(asyncio.get_running_loop().time()):
            log.warning("redis lost", error=f"{type(error).__name__}: {str(error) or 'no answer in time'}")

    def worked(self) -> None:
        """Redis has answered. After a failure that means that it is back, perhaps without its data."""
        if self._circuit.worked(asyncio.get_running_loop().time()):
            log.info("redis is back")
            self._listeners.tell(None)

    async def close(self) -> None:
        await self.client.aclose()
        await self.listening.aclose()


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """A script holds up everybody else for as long as it runs: many small ones instead of a big one."""
    return (items[start : start + size] for start in range(0, len(items), size))
