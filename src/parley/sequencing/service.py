"""The Sequence Service: numbers over the network, for whoever knows the cluster's secret.

It keeps nothing: every number comes from the counter below it, so any number of instances may stand behind
any balancer. What is asked for one chat at the same time is one addition to its counter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web

from parley.clock import Clock
from parley.cluster.calls import check_exposure, trusted
from parley.errors import CounterMissingError, InconsistentCounterError, StoreError
from parley.gateway.http_log import http_logger
from parley.sequencing import bodies
from parley.sequencing.coalescing import Coalescing
from parley.store.ports import Allocator
from parley.telemetry import Metrics

DRAIN_SECONDS_MAX = 5.0
READY_SECONDS_MAX = 2.0
READY_MEMORY_SECONDS = 1.0
READY_PROBE = "readyz"
"""A chat that does not exist: reading its counter tells whether counters can be read."""

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger("parley.sequencer")


class Sequencer:
    """One instance over one allocator. `start` it, `stop` it; the allocator stays its owner's."""

    def __init__(
        self, allocator: Allocator, *, host: str, port: int, secret: str, clock: Clock, metrics: Metrics
    ) -> None:
        check_exposure(host, secret)
        self._allocator = Coalescing(allocator)
        self._host = host
        self._port = port
        self._secret = secret
        self._clock = clock
        self._metrics = metrics
        self._draining = False
        self._ready: tuple[float, bool] | None = None
        self._runner: web.AppRunner | None = None

    def application(self) -> web.Application:
        app = web.Application(
            client_max_size=bodies.REQUEST_BYTES_MAX,
            middlewares=[self._count, trusted(self._secret, self._clock)],
        )
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._text)
        app.router.add_routes(self.routes())
        return app

    def routes(self) -> list[web.RouteDef]:
        """What is asked by signed calls, for an application that serves more than this."""
        return [
            web.post(bodies.ALLOCATE, self._allocate),
            web.post(bodies.CREATE, self._create),
            web.post(bodies.LAST, self._last),
            web.post(bodies.RESTORE, self._restore),
        ]

    async def start(self) -> int:
        """Listen; returns the port, which matters when 0 was asked for."""
        self._runner = web.AppRunner(
            self.application(),
            handle_signals=False,
            access_log=None,
            logger=http_logger(),
            shutdown_timeout=DRAIN_SECONDS_MAX,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Take nothing new and finish what was taken: a number that is answered is not burned."""
        self._draining = True
        if self._runner is not None:
            await self._runner.cleanup()
        await self._allocator.idle()

    # Signed calls

    async def _allocate(self, request: web.Request) -> web.StreamResponse:
        asked = await self._body(request, bodies.Allocations)
        outcomes = await asyncio.gather(*map(self._allocate_one, asked.allocations))
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed and (more := self._admit(f"no number given: {failed[0].error}")) is not None:
            log.warning("no number given", chats=len(failed), first=msgspec.to_builtins(failed[0]), **more)
        return _json(bodies.Outcomes(outcomes))

    async def _allocate_one(self, asked: bodies.Allocation) -> bodies.Outcome:
        started = self._metrics.now()
        try:
            last = await self._allocator.allocate(asked.chat_id, asked.count, asked.floor)
        except StoreError as error:
            self._count_failure(asked.chat_id, error)
            return bodies.failure(asked.chat_id, error)
        self._metrics.time_allocation(self._metrics.now() - started)
        return bodies.Outcome(asked.chat_id, last)

    def _count_failure(self, chat_id: str, error: StoreError) -> None:
        self._metrics.sequence_allocation_errors += 1
        if isinstance(error, CounterMissingError):
            self._metrics.counter_missing_errors += 1
            self._alarm("COUNTER_MISSING", chat_id, hint="nothing was given; run: parley recover CHAT")
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
        asked = await self._body(request, bodies.Restoration)
        log.warning("counter restored", chat_id=asked.chat_id, at_least=asked.at_least)
        return await _outcome(asked.chat_id, self._allocator.restore(asked.chat_id, asked.at_least))

    async def _body(self, request: web.Request, kind: type[T]) -> T:
        if self._draining:
            raise web.HTTPServiceUnavailable(reason="draining")
        try:
            return msgspec.json.decode(await request.read(), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise web.HTTPBadRequest(reason="the body is not what this address takes") from error

    # Open to everybody

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return _json({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.StreamResponse:
        if self._draining:
            return _json({"status": "draining"}, 503)
        if await self._can_read_counters():
            return _json({"status": "ready"})
        return _json({"status": "the counters cannot be read"}, 503)

    async def _can_read_counters(self) -> bool:
        """Asked of the store at most once a second: anybody may ask us."""
        now = asyncio.get_running_loop().time()
        if self._ready is None or now - self._ready[0] > READY_MEMORY_SECONDS:
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

    async def _text(self, request: web.Request) -> web.StreamResponse:
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
        return _json(bodies.Outcome(chat_id, await done))
    except StoreError as error:
        return _json(bodies.failure(chat_id, error))


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
