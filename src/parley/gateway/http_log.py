"""Passes aiohttp's own log records to our log; a client's fault is logged without a traceback."""

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


class _HttpLogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, CLIENT_FAULTS):
            log.debug("broken request", error=type(error).__name__)
        elif record.levelno >= logging.ERROR:
            log.error(record.getMessage(), exc_info=record.exc_info)
        else:
            log.debug(record.getMessage())


def http_logger() -> logging.Logger:
    """The logger that aiohttp gets; its records go to ours."""
    logger = logging.getLogger("parley.http")
    logger.propagate = False
    logger.handlers = [_HttpLogHandler()]
    return logger
