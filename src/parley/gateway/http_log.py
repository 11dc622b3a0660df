"""What aiohttp wants to log of its own accord, in our words: a client's fault is no trace of ours."""

from __future__ import annotations

import logging

import structlog
from aiohttp import http_exceptions, web

log = structlog.get_logger("parley.http")

CLIENT_FAULTS = (
    http_exceptions.HttpProcessingError,
    web.HTTPException,
    web.RequestPayloadError,
    ConnectionError,
    TimeoutError,
    EOFError,
)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, CLIENT_FAULTS):
            log.debug("broken request", error=type(error).__name__)
        elif record.levelno >= logging.ERROR:
            log.error(record.getMessage(), exc_info=record.exc_info)
        else:
            log.debug(record.getMessage())


def http_logger() -> logging.Logger:
    """A logger for aiohttp that ends in ours."""
    logger = logging.getLogger("parley.http")
    logger.propagate = False
    logger.handlers = [_Handler()]
    return logger
