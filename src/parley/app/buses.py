"""How news travels, as the composition root sees it."""

from __future__ import annotations

from typing import Protocol

from parley.bus.embedded import EmbeddedBus
from parley.bus.events import PERSISTED
from parley.bus.ports import Bus, Confirm, TopicState
from parley.core.jobs import Job
from parley.delivery.ports import DeliveryTopics
from parley.store.ports import Feed


class BusEngine(Protocol):
    """A bus with its life. `confirm`: what an ack waits for, if it waits for the bus at all."""

    confirm: Confirm | None

    @property
    def bus(self) -> Bus: ...

    @property
    def feed(self) -> Feed | None:
        """What happens in all chats, for workers. None: neither the bus nor the store has it."""
        ...

    @property
    def delivery_topics(self) -> DeliveryTopics | None:
        """For deliveries by several nodes. None where only one works on the store."""
        ...

    async def start(self) -> None: ...

    def jobs(self) -> list[Job]: ...

    async def topics(self) -> list[TopicState]: ...

    async def stop(self) -> None: ...


class EmbeddedBusEngine:
    """News of one process."""

    confirm: Confirm | None = None
    delivery_topics = None

    def __init__(self, feed: Feed | None = None) -> None:
        self.bus = EmbeddedBus()
        self.feed = feed

    async def start(self) -> None:
        """There is nothing to connect to."""

    def jobs(self) -> list[Job]:
        return []

    async def topics(self) -> list[TopicState]:
        """The log of all chats, in the order of its commits; none on a store that has no such order."""
        return [] if self.feed is None else [TopicState(PERSISTED.name, 1, await self.feed.lags())]

    async def stop(self) -> None:
        """There is nothing to let go of."""
