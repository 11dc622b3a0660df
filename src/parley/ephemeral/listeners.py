"""Whoever wants to hear of something, each protected from the others' faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

Told = TypeVar("Told")

log = structlog.get_logger("parley.ephemeral")


class Listeners(Generic[Told]):
    def __init__(self) -> None:
        self._listeners: list[Callable[[Told], None]] = []

    def add(self, listener: Callable[[Told], None]) -> Callable[[], None]:
        """From now on it hears everything; the answer ends that, and may be called again."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def tell(self, told: Told) -> None:
        """One that fails is logged, and the others hear it all the same."""
        for listener in list(self._listeners):
            try:
                listener(told)
            except Exception:
                log.exception("a listener failed")
