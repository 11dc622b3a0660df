"""The options of every connection to the brokers, and the log of the client library."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Any, Protocol

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient

from parley.config import KafkaConfig
from parley.errors import ConfigError

REQUEST_MS_MAX = 10_000
"""How long a broker may take to answer before the client treats it as lost."""
METADATA_MS_MAX = 30_000
"""How soon clients notice a new partition."""
RETRY_MS = 100
CLOSE_SECONDS_MAX = 5.0
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
        await asyncio.wait([starting], timeout=FIRST_ANSWER_SECONDS_MAX)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        raise


async def finish_connecting(client: AIOKafkaClient) -> None:
    """Wait until no connection is being made: cancelled by a close, it would be left open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_ANSWER_SECONDS_MAX), client._get_conn_lock:
            return


async def close_consumer(consumer: AIOKafkaConsumer) -> None:
    """Without a broker, `stop` may raise the cancellation of its own tasks and leave connections open."""
    await finish_connecting(consumer._client)
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait([stopping], timeout=CLOSE_SECONDS_MAX)
    if not stopping.done() or stopping.cancelled() or stopping.exception() is not None:
        stopping.cancel()
        await consumer._client.close()


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
