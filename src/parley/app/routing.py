"""Live entries between nodes: what a gateway registers, the router of a node that delivers, their jobs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from parley.clock import Clock
from parley.config import Config
from parley.core.jobs import Job
from parley.ephemeral.ports import Interests
from parley.gateway.interests import UNROUTED, HeadsWatch, Interest, InterestKeeper, NoInterest
from parley.gateway.subscribers import Subscribers
from parley.store.subscriptions import Subscriptions
from parley.telemetry import Metrics

if TYPE_CHECKING:
    from parley.bus.kafka.feed import KafkaFeed
    from parley.cluster.router import Router

TENURE_BYTES = 8
CUT_OFF_SECONDS = 1.0
WATCH_SECONDS = 2.0
WATCH_SECONDS_MAX = 10.0
STALLED_SECONDS_MAX = 3.0
"""What is stored and not on the bus for so long is late."""
SUSPECT_SECONDS = 15.0
assert SUSPECT_SECONDS > WATCH_SECONDS + WATCH_SECONDS_MAX

log = structlog.get_logger("parley.app")


def is_routed(config: Config) -> bool:
    """Whether the nodes of this configuration can route entries to each other."""
    return bool(config.store.is_shared and config.kafka.brokers and config.redis.url)


class LiveRouting:
    """One node's part in it. `catch_up` reads every chat list and every head of its clients again."""

    def __init__(
        self,
        config: Config,
        node_id: str,
        interests: Interests,
        subscribers: Subscribers,
        catch_up: Callable[[], Awaitable[None]],
        has_router: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._interests = interests
        self._is_routed = is_routed(config)
        self._is_shared = config.store.is_shared
        self._keeper: InterestKeeper | None = None
        self._router: Router | None = None
        self._consuming: asyncio.Task[None] | None = None
        self._is_leaving = False
        if self._is_routed and "gateway" in config.cluster.roles:
            self._keeper = InterestKeeper(
                interests,
                subscribers,
                catch_up,
                has_router,
                lambda: f"{node_id}.{secrets.token_hex(TENURE_BYTES)}",
                metrics,
            )

    @property
    def interest(self) -> Interest:
        return self._keeper or NoInterest()

    def _doubt(self) -> str:
        return self._keeper.doubt if self._keeper is not None else "" if self._is_routed else UNROUTED

    def jobs(self, subscriptions: Subscriptions) -> list[Job]:
        return [HeadsWatch(subscriptions, self._doubt).job] if self._is_shared else []

    def worker_jobs(
        self,
        router: Router | None,
        feed: KafkaFeed,
        stalled_seconds: Callable[[], float],
        is_cut_off: Callable[[], bool],
        clock: Clock,
    ) -> list[Job]:
        """Of a node of a routed cluster; `router` if it has the role delivery.

        `is_cut_off`: other nodes may know the registry, and this one does not.
        """
        if not self._is_routed:
            return []

        async def watch() -> None:
            if stalled_seconds() > STALLED_SECONDS_MAX or not await feed.is_in_touch():
                await self._interests.suspect(SUSPECT_SECONDS)

        jobs = [
            Job(
                name="late_events",
                does="notices that events are late, so that nodes read heads until they come",
                run=watch,
                interval_seconds=WATCH_SECONDS,
                timeout_seconds=WATCH_SECONDS_MAX,
            )
        ]
        if router is not None:
            self._router = router

            async def route() -> None:
                """In the group as long as this node can ask who hears what, or nobody can."""
                while True:
                    while is_cut_off() or self._is_leaving:  # noqa: ASYNC110 - nothing tells when it ends
                        await asyncio.sleep(CUT_OFF_SECONDS)
                    await self._consume(feed, router, is_cut_off, clock)

            jobs.append(
                Job(
                    name="routing",
                    does="brings entries to the nodes whose clients read them",
                    run=route,
                    interval_seconds=None,
                    timeout_seconds=None,
                )
            )
        return jobs

    async def _consume(
        self, feed: KafkaFeed, router: Router, is_cut_off: Callable[[], bool], clock: Clock
    ) -> None:
        """A node that is cut off leaves its partitions to nodes that are not."""
        from parley.cluster.router import GROUP

        consuming = self._consuming = asyncio.create_task(feed.route(GROUP, router.route, clock))
        try:
            while not consuming.done() and not is_cut_off():
                await asyncio.wait([consuming], timeout=CUT_OFF_SECONDS)
        finally:
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)  # to its end, also if cancelled again
        if not self._is_leaving and is_cut_off():
            log.warning("cut off from the registry: this node routes nothing")
        if not consuming.cancelled():
            consuming.result()  # it ends by an error only, which is the supervisor's to see

    async def leave(self) -> None:
        """Give the partitions to other nodes, and what is confirmed back as done."""
        self._is_leaving = True
        if self._consuming is not None:
            self._consuming.cancel()
            await asyncio.wait([self._consuming])

    async def start(self) -> None:
        if self._keeper is not None:
            await self._keeper.start()

    async def close(self) -> None:
        await self.leave()
        if self._router is not None:
            await self._router.close()
        if self._keeper is not None:
            await self._keeper.close()
