"""The connection to Redis: calls are short and never raise; a circuit breaker skips them during an outage."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import structlog
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from parley.concurrency import cancellable
from parley.core.backoff import backoff
from parley.ephemeral.callbacks import Callbacks
from parley.ephemeral.circuit import Circuit
from parley.errors import ConfigError

CALL_SECONDS_MAX = 0.5
CALLS_AT_ONCE_MAX = 8
CONNECTIONS_MAX = 2 * CALLS_AT_ONCE_MAX
"""Some may still be closing."""

RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 2.0
QUIET_SECONDS_MAX = 5.0
"""After this long without a message the subscriber pings Redis."""

T = TypeVar("T")
Value = str | int | float
PassedOver = Callable[[str], None]
Script = Callable[[Sequence[str], Sequence[Value]], Awaitable[Any]]

log = structlog.get_logger("parley.ephemeral")


def client_of(url: str, seconds_max: float = CALL_SECONDS_MAX, retries: int = 0) -> Redis:
    """A client that waits at most `seconds_max` for a connection or an answer."""
    try:
        pool = ConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            socket_timeout=seconds_max,
            socket_connect_timeout=seconds_max,
            retry=Retry(NoBackoff(), retries, supported_errors=(RedisConnectionError,)),
        )
    except ValueError:
        # The library's message may contain a part of the password.
        raise ConfigError("redis.url must be like redis://host:6379/0 or rediss://host:6379/0") from None
    return Redis.from_pool(pool)


class RedisClient:
    """One client for everything in Redis, with a circuit breaker."""

    def __init__(self, url: str) -> None:
        # Redis may have closed an idle connection: that is no outage, and the client opens a new one. The
        # subscriber must notice every lost connection, so it does not retry.
        self.redis = client_of(url, retries=1)
        self.listening = client_of(url)
        self._circuit = Circuit()
        self._call_slots = asyncio.Semaphore(CALLS_AT_ONCE_MAX)
        self._return_callbacks = Callbacks[None]()

    @property
    def available(self) -> bool:
        return not self._circuit.is_open

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        """Call `returned` whenever Redis is back, perhaps without its data. Returns how to stop it."""
        return self._return_callbacks.add(lambda _: returned())

    def script(self, text: str) -> Script:
        """A script, called by its hash. It is uploaded when Redis does not know it."""
        registered = self.redis.register_script(text)
        return lambda keys, values: registered(keys=keys, args=values)

    async def call(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None if it does not arrive in time, or while the circuit is open."""
        async with self._call_slots:
            if not self._circuit.allows(asyncio.get_running_loop().time()):
                return None
            try:
                async with asyncio.timeout(CALL_SECONDS_MAX):
                    answer = await cancellable(ask())
            except Exception as error:  # of any kind: no connect or send may fail because of it
                self.lost(error)
                return None
            self.worked()
            return answer

    def lost(self, error: Exception) -> None:
        """A call or a connection failed."""
        if self._circuit.failed(asyncio.get_running_loop().time()):
            log.warning("redis lost", error=f"{type(error).__name__}: {str(error) or 'no answer in time'}")

    def worked(self) -> None:
        """Redis has answered. After a failure: it is back, perhaps without its data."""
        if self._circuit.worked(asyncio.get_running_loop().time()):
            log.info("redis is back")
            self._return_callbacks.notify(None)

    async def close(self) -> None:
        await self.redis.aclose()
        await self.listening.aclose()


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Parts for several small calls instead of a big one: a script blocks Redis while it runs."""
    return (items[start : start + size] for start in range(0, len(items), size))


class RedisChannels:
    """Subscribes to all channels over one connection, and notices first when Redis is lost or back."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._receivers: dict[bytes, Callable[[bytes], None]] = {}
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self.is_listening = False

    def subscribe(self, name: str, receive: Callable[[bytes], None]) -> None:
        """Call `receive` with every message of this channel. Call it before `start`."""
        self._receivers[name.encode()] = receive

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen_forever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # of any kind: it retries
                self._client.lost(error)
            finally:
                self.is_listening = False
            await asyncio.sleep(backoff(self._failures, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX))
            self._failures += 1

    async def _listen(self) -> None:
        """Deliver messages until the connection fails."""
        async with self._client.listening.pubsub() as pubsub:
            await cancellable(pubsub.subscribe(*self._receivers))
            for _ in self._receivers:
                await self._next(pubsub)
            self._failures = 0
            self.is_listening = True
            self._client.worked()
            while True:
                message = await cancellable(pubsub.get_message(timeout=QUIET_SECONDS_MAX))
                if message is None:
                    await cancellable(pubsub.ping())
                    message = await self._next(pubsub)
                self._deliver(message)

    async def _next(self, pubsub: PubSub) -> dict[str, Any]:
        """The next message, which may be the answer to a ping; TimeoutError if none comes."""
        message: dict[str, Any] | None = await cancellable(pubsub.get_message(timeout=CALL_SECONDS_MAX))
        if message is None:
            raise TimeoutError("redis does not answer")
        return message

    def _deliver(self, message: dict[str, Any]) -> None:
        if message["type"] == "message":
            self._receivers[message["channel"]](message["data"])
