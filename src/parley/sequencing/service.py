"""The Sequence Service: sequence numbers over the network, for nodes that know the cluster's secret.

It is stateless: every number comes from the allocator, so many instances may run behind a load balancer. It
serves concurrent requests for one chat with one addition to its counter.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web

from parley.clock import Clock
from parley.cluster.calls import trusted
from parley.core.cluster_keys import ClusterKeys
from parley.errors import CounterMissingError, InconsistentCounterError, StoreError
from parley.gateway.http_log import http_logger
from parley.http_server import HttpRunner
from parley.sequencing import bodies
from parley.sequencing.batches import CoalescingAllocator
from parley.store.ports import Allocator
from parley.telemetry import Metrics

DRAIN_SECONDS_MAX = 5.0
READY_SECONDS_MAX = 2.0
READY_CACHE_SECONDS = 1.0
READY_PROBE = "readyz"
"""A chat that does not exist: reading its counter shows whether counters can be read."""

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger("parley.sequencer")


class Sequencer:
    """One instance over one allocator. The caller closes the allocator.

    `name`: what calls to it name as their target; instances behind one balancer share it. `tls`: how it takes
    calls, if by TLS.
    """

    def __init__(
        self,
        allocator: Allocator,
        *,
        host: str,
        port: int,
        keys: ClusterKeys,
        name: str,
        clock: Clock,
        metrics: Metrics,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allocator = CoalescingAllocator(allocator)
        self._host = host
        self._port = port
        self._keys = keys
        self._name = name
        self._tls = tls
        self._clock = clock
        self._metrics = metrics
        self._draining = False
        self._ready: tuple[float, bool] | None = None
        self._runner: HttpRunner | None = None

    def application(self) -> web.Application:
        app = web.Application(
            client_max_size=bodies.REQUEST_BYTES_MAX,
            middlewares=[
                self._count,
                trusted(self._keys, self._name, self._clock, self._metrics.unproven.labels("call").inc),
            ],
        )
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_text)
        app.router.add_routes(self.routes())
        return app

    def routes(self) -> list[web.RouteDef]:
        """The routes of signed calls, for an application that also serves others."""
        return [
            web.post(bodies.ALLOCATE, self._allocate),
            web.post(bodies.CREATE, self._create),
            web.post(bodies.LAST, self._last),
            web.post(bodies.RESTORE, self._restore),
        ]

    async def start(self) -> int:
        """Listen; returns the port, which matters when 0 was asked for."""
        self._runner = HttpRunner(
            self.application(), logger=http_logger(), shutdown_timeout=DRAIN_SECONDS_MAX
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Refuse new requests and finish the accepted ones, so that no allocated number is lost."""
        self._draining = True
        if self._runner is not None:
            await self._runner.cleanup()
        await self._allocator.idle()

    # Signed calls

    async def _allocate(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request, bodies.Allocations)
        outcomes = await asyncio.gather(*map(self._allocate_one, body.allocations))
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed and (more := self._admit(f"allocation failed: {failed[0].error}")) is not None:
            log.warning("allocation failed", chats=len(failed), first=msgspec.to_builtins(failed[0]), **more)
        return _json(bodies.AllocationOutcomes(outcomes))

    async def _allocate_one(self, allocation: bodies.Allocation) -> bodies.AllocationOutcome:
        chat_id = allocation.chat_id
        started = self._metrics.now()
        try:
            last = await self._allocator.allocate(chat_id, allocation.count, allocation.floor)
        except StoreError as error:
            self._count_failure(chat_id, error)
            return bodies.failure(chat_id, error)
        self._metrics.time_allocation(self._metrics.now() - started)
        return bodies.AllocationOutcome(chat_id, last)

    def _count_failure(self, chat_id: str, error: StoreError) -> None:
        self._metrics.sequence_allocation_errors.inc()
        if isinstance(error, CounterMissingError):
            self._metrics.counter_missing_errors.inc()
            self._alarm("COUNTER_MISSING", chat_id, hint="nothing was allocated; run: parley recover CHAT")
        elif isinstance(error, InconsistentCounterError):
            self._alarm("COUNTER_INCONSISTENT", chat_id, reason=str(error))

    def _alarm(self, event: str, chat_id: str, **fields: str) -> None:
        if (more := self._admit(f"{event} {chat_id}")) is not None:
            log.critical(event, chat_id=chat_id, **fields, **more)

    def _admit(self, cause: str) -> dict[str, int] | None:
        return self._metrics.lines.admit(cause, asyncio.get_running_loop().time())

    async def _create(self, request: web.Request) -> web.StreamResponse:
        chat_id = (await self._body(request, bodies.Named)).chat_id
        return await _outcome(chat_id, self._allocator.create(chat_id))

    async def _last(self, request: web.Request) -> web.StreamResponse:
        chat_id = (await self._body(request, bodies.Named)).chat_id
        return await _outcome(chat_id, self._allocator.last(chat_id))

    async def _restore(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request, bodies.Restoration)
        log.warning("counter restored", chat_id=body.chat_id, at_least=body.at_least)
        return await _outcome(body.chat_id, self._allocator.restore(body.chat_id, body.at_least))

    async def _body(self, request: web.Request, kind: type[T]) -> T:
        if self._draining:
            raise web.HTTPServiceUnavailable(reason="draining")
        try:
            return msgspec.json.decode(await request.read(), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise web.HTTPBadRequest(reason="the body is not valid for this path") from error

    # Public routes

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return _json({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.StreamResponse:
        if self._draining:
            return _json({"status": "draining"}, 503)
        if await self._can_read_counters():
            return _json({"status": "ready"})
        return _json({"status": "the counters cannot be read"}, 503)

    async def _can_read_counters(self) -> bool:
        """Read from the store at most once a second: the route is public."""
        now = asyncio.get_running_loop().time()
        if self._ready is None or now - self._ready[0] > READY_CACHE_SECONDS:
            self._ready = (now, await self._probe())
        return self._ready[1]

    async def _probe(self) -> bool:
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await self._allocator.last(READY_PROBE)
        except (StoreError, TimeoutError) as error:
            log.warning("not ready", reason=str(error) or "the counters were not read in time")
            return False
        return True

    async def _metrics_text(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "unknown"
        self._metrics.requests.labels(route, str(response.status)).inc()
        return response


async def _outcome(chat_id: str, done: Awaitable[int | None]) -> web.Response:
    try:
        return _json(bodies.AllocationOutcome(chat_id, await done))
    except StoreError as error:
        return _json(bodies.failure(chat_id, error))


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
