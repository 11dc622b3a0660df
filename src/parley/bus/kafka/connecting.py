"""How brokers are reached, the same for everybody in this room, and what their library may say in the log."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer

from parley.config import Kafka
from parley.errors import ConfigError

REQUEST_MS_MAX = 10_000
"""How long a broker may take for an answer before it counts as gone."""
METADATA_MS_MAX = 30_000
"""How soon a partition that was added is noticed."""
RETRY_MS = 100
CLOSE_SECONDS_MAX = 5.0

PROTOCOLS = {"plaintext": "PLAINTEXT", "tls": "SSL", "sasl_tls": "SASL_SSL"}

log = structlog.get_logger("parley.kafka")


def options(kafka: Kafka) -> dict[str, Any]:
    """What every client of aiokafka is made with; ConfigError when it cannot be used."""
    _listen_to_library()
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


async def close_consumer(consumer: AIOKafkaConsumer) -> None:
    """Without a broker the library lets the end of its own tasks out as ours, its connections still open."""
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait([stopping], timeout=CLOSE_SECONDS_MAX)
    if not stopping.done() or stopping.cancelled() or stopping.exception() is not None:
        stopping.cancel()
        await consumer._client.close()


class _Handler(logging.Handler):
    """A broker that is away is told of many times a second: whoever needed it says so once, elsewhere."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            log.error(record.getMessage(), exc_info=record.exc_info)
        else:
            log.debug(record.getMessage())


def _listen_to_library() -> None:
    logger = logging.getLogger("aiokafka")
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(_Handler())
