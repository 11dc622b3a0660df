"""How news travels, as the composition root sees it."""

from __future__ import annotations

from typing import Protocol

from parley.bus.embedded import EmbeddedBus
from parley.bus.ports import Bus, Confirm
from parley.core.jobs import Job


class BusEngine(Protocol):
    """A bus with its life. `confirm`: what an ack waits for, if it waits for the bus at all."""

    confirm: Confirm | None

    @property
    def bus(self) -> Bus: ...

    async def start(self) -> None: ...

    def jobs(self) -> list[Job]: ...

    async def stop(self) -> None: ...


class EmbeddedBusEngine:
    """News of one process."""

    confirm: Confirm | None = None

    def __init__(self) -> None:
        self.bus = EmbeddedBus()

    async def start(self) -> None:
        """There is nothing to connect to."""

    def jobs(self) -> list[Job]:
        return []

    async def stop(self) -> None:
        """There is nothing to let go of."""
