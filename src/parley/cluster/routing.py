"""The jobs of a routed cluster: a router in the group as long as it may route, a watch for late events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from parley.clock import Clock
from parley.cluster.router import GROUP, Confirmed, Router
from parley.core.jobs import Job
from parley.ephemeral.ports import Interests
from parley.model import Persisted

CUT_OFF_SECONDS = 1.0
WATCH_SECONDS = 2.0
WATCH_SECONDS_MAX = 10.0
STALLED_SECONDS_MAX = 3.0
"""What is stored and not on the bus for so long is late."""
SUSPECT_SECONDS = 15.0
assert SUSPECT_SECONDS > WATCH_SECONDS + WATCH_SECONDS_MAX

log = structlog.get_logger("parley.router")

Route = Callable[[list[Persisted]], Awaitable[Confirmed]]
"""Takes a chunk of one partition, in order. What it returns is done when the chunk may be forgotten."""


class RoutedFeed(Protocol):
    """What became durable in all chats, for the nodes that route it."""

    async def route(self, group: str, route: Route, clock: Clock) -> None:
        """Consume with the other members of the group, until cancelled."""
        ...

    async def is_in_touch(self) -> bool:
        """Whether the feed can be read now."""
        ...


class RoutingWorker:
    """`router`: of a node with the role delivery. `stalled_seconds`: for how long events wait for the bus.

    `is_cut_off`: other nodes may know the registry, and this one does not.
    """

    def __init__(
        self,
        feed: RoutedFeed,
        interests: Interests,
        clock: Clock,
        *,
        router: Router | None,
        stalled_seconds: Callable[[], float],
        is_cut_off: Callable[[], bool],
    ) -> None:
        self._feed = feed
        self._interests = interests
        self._clock = clock
        self._router = router
        self._stalled_seconds = stalled_seconds
        self._is_cut_off = is_cut_off
        self._consuming: asyncio.Task[None] | None = None
        self._is_leaving = False

    @property
    def jobs(self) -> list[Job]:
        watch = Job(
            name="late_events",
            does="notices that events are late, so that nodes read heads until they come",
            run=self._watch,
            interval_seconds=WATCH_SECONDS,
            timeout_seconds=WATCH_SECONDS_MAX,
        )
        route = Job(
            name="routing",
            does="brings entries to the nodes whose clients read them",
            run=self._route,
            interval_seconds=None,
            timeout_seconds=None,
        )
        return [watch] if self._router is None else [watch, route]

    async def _watch(self) -> None:
        if self._stalled_seconds() > STALLED_SECONDS_MAX or not await self._feed.is_in_touch():
            await self._interests.suspect(SUSPECT_SECONDS)

    async def _route(self) -> None:
        """In the group as long as this node can ask who hears what, or nobody can."""
        assert self._router is not None
        while True:
            while self._is_cut_off() or self._is_leaving:  # noqa: ASYNC110 - nothing tells when it ends
                await asyncio.sleep(CUT_OFF_SECONDS)
            await self._consume(self._router)

    async def _consume(self, router: Router) -> None:
        """A node that is cut off leaves its partitions to nodes that are not."""
        consuming = self._consuming = asyncio.create_task(self._feed.route(GROUP, router.route, self._clock))
        try:
            while not consuming.done() and not self._is_cut_off():
                await asyncio.wait([consuming], timeout=CUT_OFF_SECONDS)
        finally:
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)  # to its end, also if cancelled again
        if not self._is_leaving and self._is_cut_off():
            log.warning("cut off from the registry: this node routes nothing")
        if not consuming.cancelled():
            consuming.result()  # it ends by an error only, which is the supervisor's to see

    async def leave(self) -> None:
        """Give the partitions to other nodes, and what is confirmed back as done."""
        self._is_leaving = True
        if self._consuming is not None:
            self._consuming.cancel()
            await asyncio.wait([self._consuming])

    async def close(self) -> None:
        await self.leave()
        if self._router is not None:
            await self._router.close()
