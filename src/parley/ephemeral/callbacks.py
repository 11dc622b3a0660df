"""A list of callbacks. If one fails, the others are still called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

Value = TypeVar("Value")

log = structlog.get_logger("parley.ephemeral")


class Callbacks(Generic[Value]):
    def __init__(self) -> None:
        self._callbacks: list[Callable[[Value], None]] = []

    def add(self, callback: Callable[[Value], None]) -> Callable[[], None]:
        """Call it from now on. Returns a function that removes it, and that may be called twice."""
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    def notify(self, value: Value) -> None:
        """Call each with the value; log one that fails."""
        for callback in list(self._callbacks):
            try:
                callback(value)
            except Exception:
                log.exception("a callback failed")
