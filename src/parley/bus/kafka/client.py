"""The options of every connection to the brokers, and the log of the client library."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Coroutine
from typing import Any, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from parley.config import KafkaConfig
from parley.errors import ConfigError

REQUEST_MS_MAX = 10_000
"""How long a broker may take to answer before the client treats it as lost."""
METADATA_MS_MAX = 30_000
"""How soon clients notice a new partition."""
RETRY_MS = 100
CLOSE_SECONDS_MAX = 2.0
FIRST_ANSWER_SECONDS_MAX = 1.0
"""How long a start that is cancelled still waits for the answer to the client's first request."""

PROTOCOLS = {"plaintext": "PLAINTEXT", "tls": "SSL", "sasl_tls": "SASL_SSL"}

log = structlog.get_logger("parley.kafka")


def options(kafka: KafkaConfig) -> dict[str, Any]:
    """The options of every aiokafka client; ConfigError when they cannot be used."""
    _capture_library_log()
    found: dict[str, Any] = {
        "bootstrap_servers": kafka.brokers,
        "client_id": "parley",
        "request_timeout_ms": REQUEST_MS_MAX,
        "metadata_max_age_ms": METADATA_MS_MAX,
        "retry_backoff_ms": RETRY_MS,
        "security_protocol": PROTOCOLS[kafka.security],
    }
    if kafka.security != "plaintext":
        found["ssl_context"] = _tls(kafka.ca)
    if kafka.security == "sasl_tls":
        found["sasl_mechanism"] = "SCRAM-SHA-512"
        found["sasl_plain_username"] = kafka.username
        found["sasl_plain_password"] = kafka.password
    return found


def _tls(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities or None)
    except OSError as error:
        raise ConfigError(f"kafka.ca cannot be used: {authorities}: {error.strerror or error}") from error


class Startable(Protocol):
    """A consumer, a producer or an admin client of aiokafka."""

    async def start(self) -> None: ...


async def start_client(client: Startable) -> None:
    """Cancelled during its first request, aiokafka would leave that connection open: so let it end first."""
    starting = asyncio.ensure_future(client.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await to_its_end(_give_up(starting))
        raise


async def _give_up(starting: asyncio.Future[None]) -> None:
    await asyncio.wait([starting], timeout=FIRST_ANSWER_SECONDS_MAX)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for the end of this work, however often the caller is cancelled meanwhile; be cancelled then.

    A client whose closing is cancelled halfway leaves its connections open.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


async def close_consumer(consumer: AIOKafkaConsumer) -> None:
    await to_its_end(_close_consumer(consumer))


async def _close_consumer(consumer: AIOKafkaConsumer) -> None:
    """Without a broker, `stop` may raise the cancellation of its own tasks and leave connections open."""
    await _finish_connecting(consumer._client)
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait([stopping], timeout=CLOSE_SECONDS_MAX)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    if stopping.cancelled() or stopping.exception() is not None:
        if consumer._fetcher is not None:  # it would connect again
            await consumer._fetcher.close()
        await consumer._client.close()


async def close_producer(producer: AIOKafkaProducer) -> None:
    """What is not sent by then is given up."""
    await to_its_end(_close_producer(producer))


async def _close_producer(producer: AIOKafkaProducer) -> None:
    """Without a broker, `stop` would wait for ever for what is not sent."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await producer.flush()
            await _finish_connecting(producer.client)
            await producer.stop()
    except TimeoutError:
        producer._closed = True
        await asyncio.wait([asyncio.ensure_future(producer._sender.close())], timeout=CLOSE_SECONDS_MAX)
        await producer.client.close()


async def close_admin(admin: AIOKafkaAdminClient) -> None:
    await to_its_end(admin.close())


async def _finish_connecting(client: AIOKafkaClient) -> None:
    """Wait until no connection is being made: cancelled by a close, it would be left open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_ANSWER_SECONDS_MAX), client._get_conn_lock:
            return


class _KafkaLogHandler(logging.Handler):
    """The library logs an unreachable broker many times a second; our own code logs it once."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            log.error(record.getMessage(), exc_info=record.exc_info)
        else:
            log.debug(record.getMessage())


def _capture_library_log() -> None:
    logger = logging.getLogger("aiokafka")
    if not any(isinstance(handler, _KafkaLogHandler) for handler in logger.handlers):
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(_KafkaLogHandler())
