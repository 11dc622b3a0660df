"""One port for HTTP and WebSocket: routing, refusals, lifecycle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
import structlog
from aiohttp import web
from msgspec import UNSET

from parley import ids
from parley.config import is_loopback
from parley.errors import (
    BAD_REQUEST,
    FORBIDDEN,
    INTERNAL,
    NOT_FOUND,
    OUTCOME_UNKNOWN,
    RATE_LIMITED,
    SHUTTING_DOWN,
    STORE_UNAVAILABLE,
    OutcomeUnknown,
    Refusal,
    Refused,
    StoreError,
    StoreUnavailable,
)
from parley.gateway import bodies
from parley.gateway.api import ENDPOINTS
from parley.gateway.calls import (
    BODY_SECONDS_MAX,
    HASH_SECONDS_MAX,
    REQUEST_ID,
    REQUEST_SECONDS_MAX,
    Call,
    Endpoint,
    address_of,
    authenticate,
    check_operator,
    is_limited,
    is_local,
)
from parley.gateway.connection import Connection
from parley.gateway.http_log import http_logger
from parley.gateway.lobby import RENEWED_SECONDS_MIN
from parley.gateway.openapi import document
from parley.gateway.quiet import QuietWatch
from parley.gateway.services import Services
from parley.wire import codes, limits
from parley.wire.codec import CODECS, JSON_PROTOCOL

IDLE_SWEEP_SECONDS = 5.0
BACKGROUND_SECONDS_MAX = BODY_SECONDS_MAX + 30.0
"""How long a write goes on of which its caller was told that nobody knows."""
CLOSE_SECONDS_MAX = 2.0
CLEANUP_SECONDS_MAX = 1.0
CLEANUP_STEPS = 2
"""aiohttp first waits for its handlers, then cancels and waits again, each time as long as it may."""
REQUEST_ID_LETTERS_MAX = 64

FOREIGN_HOST = BAD_REQUEST.because("this Host is not one of server.hosts")
FOREIGN_ORIGIN = FORBIDDEN.because("this Origin is not one of server.origins")
TOO_SLOW = OUTCOME_UNKNOWN.because("the request took too long; retry it as it is")
NO_ROUTE = NOT_FOUND.because("there is no such address")
WRONG_METHOD = Refusal("method_not_allowed", "this address takes other methods", status=405)

log = structlog.get_logger("parley.gateway")

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """The HTTP application over the services; without clients only what an operator asks."""

    def __init__(
        self,
        services: Services,
        is_ready: Callable[[], bool],
        make_ids: ids.Ids,
        serves_clients: bool = True,
    ) -> None:
        self._services = services
        self._serves_clients = serves_clients
        self._is_ready = is_ready
        self._ids = make_ids
        self._document = msgspec.json.encode(document(ENDPOINTS))
        self._quiet = QuietWatch()
        self._writes: set[asyncio.Task[web.StreamResponse]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None

    def application(self) -> web.Application:
        app = web.Application(client_max_size=limits.BODY_BYTES_MAX, middlewares=[self._guard])
        if self._serves_clients:
            for endpoint in ENDPOINTS:
                app.router.add_route(endpoint.method, endpoint.path, self._serve(endpoint))
            app.router.add_get("/v1/ws", self._websocket)
            app.router.add_get("/v1/openapi.json", self._openapi)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which matters when 0 was asked for."""
        self._runner = web.AppRunner(
            self.application(),
            handle_signals=False,
            access_log=None,
            max_line_size=limits.REQUEST_LINE_BYTES_MAX,  # the token of an overview travels in it
            logger=http_logger(),
            shutdown_timeout=CLEANUP_SECONDS_MAX / CLEANUP_STEPS,
        )
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, host, port, backlog=4096)
        await self._site.start()
        self._sweeper = asyncio.create_task(self._sweep_idle())
        self._services.lobby.start()
        self._services.rates.start()
        return int(self._runner.addresses[0][1])

    async def stop_accepting(self) -> None:
        self._services.draining = True
        if self._site is not None:
            await self._site.stop()

    async def close(self) -> None:
        """Close every connection with a resumable code, then the listener's remains."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._services.connections):
            connection.close(codes.GOING_AWAY)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._services.everybody_gone()
        self._services.rates.close()
        leaving = asyncio.create_task(self._leave_lobby())
        if self._runner is not None:
            await self._runner.cleanup()
        for write in self._writes:
            write.cancel()
        await leaving

    async def _leave_lobby(self) -> None:
        with contextlib.suppress(TimeoutError):  # the leases run out by themselves
            async with asyncio.timeout(CLEANUP_SECONDS_MAX):
                await self._services.lobby.close()

    async def _sweep_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in list(self._services.connections):
                if connection.token and connection.last_heard - connection.renewed_at >= RENEWED_SECONDS_MIN:
                    connection.renewed_at = connection.last_heard
                    self._services.lobby.heard(connection.user_id, connection.device_id)
                if connection.idle_seconds > limits.IDLE_SECONDS_MAX:
                    connection.close(codes.IDLE)
                elif connection.token and now - connection.last_verified > limits.IDLE_SECONDS_MAX:
                    # It sends other frames and no heartbeat: a revocation must reach it all the same.
                    with contextlib.suppress(Refused, StoreError):
                        await connection.verify()
            if self._runner is not None and self._runner.server is not None:
                self._quiet.sweep(self._runner.server.connections, asyncio.get_running_loop().time())

    # Requests

    @web.middleware
    async def _guard(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        """Every failure becomes a refusal with a request id; a client's fault is not logged as ours."""
        given = request.headers.get("X-Request-Id", "")
        is_given = given.isascii() and given.isprintable() and 0 < len(given) <= REQUEST_ID_LETTERS_MAX
        request[REQUEST_ID] = given if is_given else self._ids.next("req_", self._services.clock())
        self._quiet.began(request.protocol)
        try:
            self._check_host(request)
            response = await handler(request)
        except Refused as error:
            response = self._refuse(error.refusal)
        except OutcomeUnknown:
            response = self._refuse(OUTCOME_UNKNOWN)
        except StoreError:
            response = self._refuse(STORE_UNAVAILABLE)
        except TimeoutError:
            response = self._refuse(TOO_SLOW)
        except web.HTTPNotFound:
            response = self._refuse(NO_ROUTE)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = self._refuse(WRONG_METHOD.because(f"use {allowed}"))
            response.headers["Allow"] = allowed
        except web.HTTPException as error:
            response = self._refuse(BAD_REQUEST.because(error.reason))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("request failed", request_id=request[REQUEST_ID], path=request.path)
            response = self._refuse(INTERNAL)
        finally:
            self._quiet.ended(request.protocol)
        self._count(request, response)
        return response

    def _count(self, request: web.Request, response: web.StreamResponse) -> None:
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "unknown"
        self._services.metrics.requests.labels(route, str(response.status)).inc()
        if not response.prepared:
            response.headers["X-Request-Id"] = request[REQUEST_ID]

    def _check_host(self, request: web.Request) -> None:
        """A page of some other site must not reach a local server by a name that resolves to it."""
        config = self._services.config
        if not config.is_loopback and not config.server.hosts:
            return
        name = _parts(f"//{request.host}").hostname or ""
        if not (is_loopback(name) or name == config.server.host or name in config.server.hosts):
            raise Refused(FOREIGN_HOST)

    def _check_origin(self, request: web.Request) -> None:
        origin = request.headers.get("Origin")
        if origin is None or origin in self._services.config.server.origins:
            return
        if _parts(origin).netloc != request.host:
            raise Refused(FOREIGN_ORIGIN)

    def _refuse(self, refusal: Refusal) -> web.Response:
        self._services.metrics.refusals.labels(refusal.code).inc()
        retry = refusal.retry_after_ms
        problem = bodies.Problem(
            refusal.code, refusal.reason, refusal.temporary, UNSET if retry is None else retry
        )
        response = _json(refusal.status, problem)
        if retry is not None:
            response.headers["Retry-After"] = str(-(-retry // 1000))
        return response

    def _serve(self, endpoint: Endpoint) -> Serve:
        async def serve(request: web.Request) -> web.StreamResponse:
            if self._services.draining:
                raise Refused(SHUTTING_DOWN)
            seconds_max = HASH_SECONDS_MAX if endpoint.hashes else REQUEST_SECONDS_MAX
            call = Call(request, self._services, seconds_max)
            if endpoint.method == "GET":
                return await self._read(endpoint, call)
            return await self._write(endpoint, call)

        return serve

    async def _read(self, endpoint: Endpoint, call: Call) -> web.StreamResponse:
        """What is not there in time may be asked for again."""
        try:
            async with asyncio.timeout(call.seconds_left):
                return await self._handle(endpoint, call)
        except TimeoutError as error:
            raise StoreUnavailable("the store did not answer in time") from error

    async def _write(self, endpoint: Endpoint, call: Call) -> web.StreamResponse:
        """What is not done in time may still be done: it goes on, and whoever asked is told so."""
        task = asyncio.create_task(self._handle_whole(endpoint, call))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        while not task.done() and call.seconds_left > 0:
            await asyncio.wait([task], timeout=call.seconds_left)
        if task.done():
            return task.result()
        task.add_done_callback(_note_late)
        raise Refused(TOO_SLOW)

    async def _handle_whole(self, endpoint: Endpoint, call: Call) -> web.StreamResponse:
        async with asyncio.timeout(BACKGROUND_SECONDS_MAX):
            return await self._handle(endpoint, call)

    async def _handle(self, endpoint: Endpoint, call: Call) -> web.StreamResponse:
        if endpoint.needs != "nothing":
            call.session = await authenticate(call.request, self._services)
            if endpoint.needs == "operator":
                await check_operator(call.session, self._services)
        status, body = await endpoint.handler(call)
        return web.Response(status=status) if body is None else _json(status, body)

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        services = self._services
        if services.draining:
            raise Refused(SHUTTING_DOWN)
        self._check_origin(request)
        limited = is_limited(request, services)
        if limited:
            wait_ms = await services.rates.connection(address_of(request, services))
            if wait_ms:
                raise Refused(RATE_LIMITED.after(wait_ms))
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Refused(BAD_REQUEST.because("this address speaks WebSocket"))
        socket = web.WebSocketResponse(
            protocols=tuple(CODECS),
            compress=False,
            max_msg_size=limits.FRAME_BYTES_MAX + 1,  # aiohttp refuses what reaches its limit
            decode_text=False,
            timeout=CLOSE_SECONDS_MAX,
        )
        await socket.prepare(request)
        transport = request.transport
        if transport is None:
            return socket
        codec = CODECS[socket.ws_protocol or JSON_PROTOCOL]
        connection = Connection(
            services, socket, _as_transport(transport), codec, request[REQUEST_ID], limited
        )
        await connection.run()
        return socket

    async def _openapi(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._document, content_type="application/json")

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return _json(200, bodies.Health("ok"))

    async def _readyz(self, request: web.Request) -> web.StreamResponse:
        if self._services.draining:
            return _json(503, bodies.Health("draining"))
        ready = self._is_ready()
        return _json(200 if ready else 503, bodies.Health("ready" if ready else "the store is not available"))

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        services = self._services
        if not is_local(request, services):
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                await check_operator(await authenticate(request, services), services)
        services.metrics.connections.set(len(services.connections))
        services.metrics.outbox_bytes.set(sum(connection.outbox_bytes for connection in services.connections))
        return web.Response(
            body=services.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"}
        )


def _note_late(task: asyncio.Task[web.StreamResponse]) -> None:
    """Its caller is gone: a failure that was not foreseen is still ours."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, Refused | StoreError | TimeoutError):
        log.error("request failed after its answer", error=repr(error))


def _parts(url: str) -> SplitResult:
    """The parts of what should be a URL; all empty when it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _json(status: int, body: Any) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def _as_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """aiohttp names the base class; what it holds can be written to."""
    return transport  # type: ignore[return-value]
