"""One port for HTTP and WebSocket: routing, refusals, lifecycle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from itertools import chain
from ssl import SSLContext
from urllib.parse import SplitResult, urlsplit

import structlog
from aiohttp import web
from msgspec import UNSET

from parley import ids
from parley.clock import Clock
from parley.config import Config, is_loopback
from parley.core.jobs import Job
from parley.errors import (
    BAD_REQUEST,
    FORBIDDEN,
    INTERNAL,
    NOT_FOUND,
    OUTCOME_UNKNOWN,
    RATE_LIMITED,
    REQUEST_TIMEOUT,
    SHUTTING_DOWN,
    TOO_MANY_CONNECTIONS,
    ConfigError,
    Refusal,
    Refused,
    StoreError,
    StoreUnavailable,
)
from parley.gateway import cors
from parley.gateway.api import ROUTES
from parley.gateway.calls import (
    BODY_SECONDS_MAX,
    HASH_SECONDS_MAX,
    IS_APART,
    REQUEST_ID,
    REQUEST_SECONDS_MAX,
    Call,
    address_of,
    authenticate,
    check_operator,
    check_query,
    check_scope,
    is_limited,
)
from parley.gateway.client_protocol import ClientProtocol, ClientSocket
from parley.gateway.connection import Connection
from parley.gateway.device_leases import RENEWED_SECONDS_MIN, DeviceLeases
from parley.gateway.file_transfers import FileTransfers
from parley.gateway.http_log import http_logger
from parley.gateway.idle_timeouts import IdleTimeouts
from parley.gateway.known_operators import STORE_SECONDS_MAX, KnownOperators
from parley.gateway.listener import ClientListener
from parley.gateway.routes import REQUEST_ID_CHARS_MAX, Answer, Operation, Route
from parley.gateway.services import ApiServices, ConnectionServices
from parley.gateway.shared_rates import SharedRates
from parley.gateway.socket_groups import SocketGroups
from parley.gateway.system import WEBSOCKET, Serve, System, json_response
from parley.gateway.turns import REQUEST_SECONDS, SLICE_SECONDS, LoopShare
from parley.gateway.web_pages import WebPages
from parley.http_server import HttpRunner
from parley.store.damage import FAILURES, refusal_for
from parley.telemetry import Metrics
from parley.wire import bodies, codes, limits
from parley.wire.codec import CODECS, JSON_PROTOCOL

IDLE_SWEEP_SECONDS = 5.0
IDLE_SWEEP_SECONDS_MAX = 300.0
BACKGROUND_SECONDS_MAX = BODY_SECONDS_MAX + 30.0
"""How long a write goes on after its caller was answered `outcome_unknown`."""
CLOSE_SECONDS_MAX = 2.0
CLEANUP_SECONDS_MAX = 1.0
CLEANUP_STEPS = 2
"""aiohttp first waits for its handlers, then cancels and waits again, each time as long as it may."""
HSTS = {"Strict-Transport-Security": "max-age=31536000"}
"""Browsers that have seen a server with TLS do not speak to it without for a year (RFC 6797)."""

API = "/v1/"

FOREIGN_HOST = BAD_REQUEST.because("this Host is not one of server.hosts")
FOREIGN_ORIGIN = FORBIDDEN.because("this Origin is not one of server.origins")
TOO_SLOW = OUTCOME_UNKNOWN.because("the request took too long; retry it as it is")
NO_ROUTE = NOT_FOUND.because("there is no such address")
CROWDED_ADDRESS = TOO_MANY_CONNECTIONS.because("there are too many connections from your address")
WRONG_METHOD = Refusal("method_not_allowed", "this address takes other methods", status=405)

log = structlog.get_logger("parley.gateway")


class Gateway:
    """The HTTP application: routes, connections, and their life. Without clients only what an operator asks.

    `api` is what HTTP handlers work with, `live` what connections do. `connections`: those that are open.
    """

    def __init__(
        self,
        config: Config,
        *,
        api: ApiServices,
        live: ConnectionServices,
        devices: DeviceLeases,
        rates: SharedRates,
        is_ready: Callable[[], bool],
        clock: Clock,
        metrics: Metrics,
        make_ids: ids.Ids,
        connections: set[Connection],
    ) -> None:
        self._config = config
        self._api = api
        self._live = live
        self._devices = devices
        self._rates = rates
        self._is_ready = is_ready
        self._clock = clock
        self._metrics = metrics
        self._ids = make_ids
        self.connections = connections
        self._all_closed: asyncio.Future[None] | None = None
        self._draining = False
        self._system = System(api, metrics, self.connections, self._why_not_ready)
        self._idle = IdleTimeouts()
        self._known_operators = KnownOperators(clock)
        self._writes: set[asyncio.Task[web.StreamResponse]] = set()
        self._runners: list[HttpRunner] = []
        self._addresses = SocketGroups()
        self._clients: HttpRunner | None = None
        self._listener: ClientListener | None = None
        self._scraped: web.Application | None = None
        self._apart: web.Application | None = None
        self.metrics_port = 0
        """Of the listener for metrics alone, if `metrics.listen` asks for one."""
        self.console_port = 0
        """Of the listener for the console, if `console.listen` asks for one."""

    def application(self, *, is_apart: bool = False) -> web.Application:
        """`is_apart`: for the listener of the console."""
        app = web.Application(client_max_size=limits.BODY_BYTES_MAX, middlewares=[self._guard])
        app[IS_APART] = is_apart
        if "gateway" in self._config.cluster.roles:
            for route in ROUTES:
                app.router.add_route(route.method, route.path, self._serve(route))
            if not is_apart:
                app.router.add_get(WEBSOCKET.path, self._websocket)
            for operation, handler in FileTransfers(self._api).operations:
                serve = self._unless_draining(operation, handler)
                app.router.add_route(operation.method, operation.path, serve)
            pages = WebPages(self._config, self._metrics)
            for operation, handler in (*self._system.for_clients, *pages.operations):
                serve = self._charged(operation, handler)
                if operation.method == "GET":
                    app.router.add_get(operation.path, serve)
                else:
                    app.router.add_route(operation.method, operation.path, serve)
        for path, handler in self._system.for_operators.items():
            app.router.add_get(path, handler)
        return app

    async def start(self, host: str, port: int, tls: SSLContext | None = None) -> int:
        """Listen; returns the port, which matters when 0 was asked for."""
        try:
            await self._start_metrics()
            await self._start_console(tls)
            self._clients = await self._run(self.application(), HSTS if tls is not None else {})
            self._listener = ClientListener(self._make_protocol, self._metrics)
            bound_port = await self._listener.start(host, port, tls)
        except BaseException:
            await self._end_runners()
            raise
        self._devices.start()
        self._rates.start()
        return bound_port

    def _make_protocol(self, lost: Callable[[], None]) -> ClientProtocol:
        """For each connection that is accepted."""
        assert self._clients is not None
        assert self._clients.server is not None
        return ClientProtocol(
            self._clients.server,
            self._clients.headers,
            self._live.turns,
            lost,
            loop=asyncio.get_running_loop(),
            **self._clients.options,
        )

    async def _start_metrics(self) -> None:
        """Listen for a scraper, where `metrics.listen` says so: health and metrics, without tokens."""
        if self._config.metrics_address is None:
            return
        self._scraped = web.Application(middlewares=[self._guard])
        for path, handler in self._system.for_scrapers.items():
            self._scraped.router.add_get(path, handler)
        self.metrics_port = await self._listen_apart(
            self._scraped, self._config.metrics_address, "metrics.listen"
        )

    async def _start_console(self, tls: SSLContext | None) -> None:
        """Listen for operators, where `console.listen` says so: the console, and the API that it uses."""
        if self._config.console_address is None or "gateway" not in self._config.cluster.roles:
            return
        self._apart = self.application(is_apart=True)
        self.console_port = await self._listen_apart(
            self._apart, self._config.console_address, "console.listen", tls
        )

    async def _listen_apart(
        self, app: web.Application, address: tuple[str, int], setting: str, tls: SSLContext | None = None
    ) -> int:
        """Serve this application at an address of its own; returns the port."""
        runner = await self._run(app, HSTS if tls is not None else {})
        try:
            await web.TCPSite(runner, *address, ssl_context=tls).start()
        except OSError as error:
            listen = f"{address[0]}:{address[1]}"
            raise ConfigError(f"cannot listen on {setting}, {listen}: {error.strerror}") from error
        port = int(runner.addresses[0][1])
        log.info("a listener of its own", setting=setting, port=port)
        return port

    async def _run(self, app: web.Application, headers: dict[str, str]) -> HttpRunner:
        runner = HttpRunner(
            app,
            headers=headers,
            max_line_size=limits.REQUEST_LINE_BYTES_MAX,  # the token of an overview travels in it
            logger=http_logger(),
            shutdown_timeout=CLEANUP_SECONDS_MAX / CLEANUP_STEPS,
        )
        self._runners.append(runner)
        await runner.setup()
        return runner

    async def stop_accepting(self) -> None:
        self._draining = True
        if self._listener is not None:
            self._listener.stop()

    async def close(self) -> None:
        """Close every connection with a resumable code, then the listener's remains."""
        for connection in list(self.connections):
            connection.close(codes.GOING_AWAY)
        if self.connections:
            self._all_closed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_closed], timeout=CLOSE_SECONDS_MAX)
        self._rates.close()
        leaving = asyncio.create_task(self._end_leases())
        await self._end_runners()
        for write in self._writes:
            write.cancel()
        await leaving

    async def _end_runners(self) -> None:
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))

    def _why_not_ready(self) -> str | None:
        if self._draining:
            return "draining"
        if self._metrics.damage.stops_writes(self._metrics.now()):
            return "the store is damaged, and writes meet it"
        return None if self._is_ready() else "the store is not available"

    async def _end_leases(self) -> None:
        with contextlib.suppress(TimeoutError):  # the leases run out by themselves
            async with asyncio.timeout(CLEANUP_SECONDS_MAX):
                await self._devices.close()

    @property
    def job(self) -> Job:
        return Job(
            name="idle_sweep",
            does="closes silent connections, and those whose session has ended",
            run=self._sweep_idle,
            interval_seconds=IDLE_SWEEP_SECONDS,
            timeout_seconds=IDLE_SWEEP_SECONDS_MAX,
        )

    async def _sweep_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in () if self._draining else list(self.connections):
            if connection.is_listed and connection.last_heard - connection.renewed_at >= RENEWED_SECONDS_MIN:
                connection.renewed_at = connection.last_heard
                self._devices.heard(connection.user_id, connection.device_id)
            if connection.idle_seconds > limits.IDLE_SECONDS_MAX:
                connection.close(codes.IDLE)
            elif connection.token and now - connection.last_verified > limits.IDLE_SECONDS_MAX:
                # It sends other frames and no heartbeat: a revocation must reach it all the same.
                with contextlib.suppress(Refused, StoreError):
                    await connection.verify()
        servers = [runner.server for runner in self._runners if runner.server is not None]
        open_now = chain.from_iterable(server.connections for server in servers)
        self._idle.sweep(open_now, asyncio.get_running_loop().time())

    # Requests

    @web.middleware
    async def _guard(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        """Every failure becomes a refusal with a request id; a client's fault is not logged as ours."""
        given = request.headers.get("X-Request-Id", "")
        is_given = given.isascii() and given.isprintable() and 0 < len(given) <= REQUEST_ID_CHARS_MAX
        request[REQUEST_ID] = given if is_given else self._ids.next("req_", self._clock())
        self._idle.began(request.protocol)
        origin = cors.allowed_origin(request.headers.get("Origin"), self._config.server.origins)
        try:
            self._check_host(request)
            if origin is not None and cors.is_preflight(request.method, request.headers):
                response: web.StreamResponse = web.Response(status=204, headers=cors.PREFLIGHT)
            else:
                response = await handler(request)
        except Refused as error:
            response = self._refuse(error.refusal)
        except FAILURES as error:
            by_write = request.method != "GET"
            response = self._refuse(refusal_for(error, self._metrics, _route_of(request), by_write=by_write))
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
            log.exception("request failed", request_id=request[REQUEST_ID], path=_route_of(request))
            response = self._refuse(INTERNAL)
        finally:
            self._idle.ended(request.protocol)
        self._count(request, response, origin)
        return response

    def _count(self, request: web.Request, response: web.StreamResponse, origin: str | None) -> None:
        self._metrics.requests.labels(_route_of(request), str(response.status)).inc()
        if not response.prepared:
            response.headers["X-Request-Id"] = request[REQUEST_ID]
            response.headers.setdefault("Cache-Control", "no-store")
            response.headers.update(cors.headers_for(origin, self._config.server.origins))

    def _check_host(self, request: web.Request) -> None:
        """A page of some other site must not reach a local server by a name that resolves to it."""
        bound, names = self._config.server.host, self._config.server.hosts
        if request.app is self._scraped and self._config.metrics_address is not None:
            bound, names = self._config.metrics_address[0], []
        elif request.app is self._apart and self._config.console_address is not None:
            bound, names = self._config.console_address[0], []
        elif self._config.console.host:
            names = [*names, self._config.console.host]
        if not is_loopback(bound) and not names:
            return
        name = _parts(f"//{request.host}").hostname or ""
        if not (is_loopback(name) or name == bound or name in names):
            raise Refused(FOREIGN_HOST)

    def _check_origin(self, request: web.Request) -> None:
        origin = request.headers.get("Origin")
        if origin is None or origin in self._config.server.origins:
            return
        if _parts(origin).netloc != request.host:
            raise Refused(FOREIGN_ORIGIN)

    def _refuse(self, refusal: Refusal) -> web.Response:
        self._metrics.refusals.labels(refusal.code).inc()
        retry = refusal.retry_after_ms
        problem = bodies.Problem(
            refusal.code, refusal.reason, refusal.temporary, UNSET if retry is None else retry
        )
        response = json_response(refusal.status, problem)
        if refusal.status == REQUEST_TIMEOUT.status:
            response.force_close()
        if retry is not None:
            response.headers["Retry-After"] = str(-(-retry // 1000))
        return response

    def _charged(self, operation: Operation, handler: Serve) -> Serve:
        """What the server tells anybody about itself, at the address's cost."""

        async def serve(request: web.Request) -> web.StreamResponse:
            Call(request, self._api, REQUEST_SECONDS_MAX).charge(operation.cost)
            if operation.path.startswith(API):
                check_query(request, (one.name for one in operation.query))
            return await handler(request)

        return serve

    def _unless_draining(self, operation: Operation, handler: Serve) -> Serve:
        async def serve(request: web.Request) -> web.StreamResponse:
            if self._draining:
                raise Refused(SHUTTING_DOWN)
            check_query(request, (one.name for one in operation.query))
            return await handler(request)

        return serve

    def _serve(self, route: Route) -> Serve:
        async def serve(request: web.Request) -> web.StreamResponse:
            if self._draining:
                raise Refused(SHUTTING_DOWN)
            seconds_max = HASH_SECONDS_MAX if route.hashes else REQUEST_SECONDS_MAX
            call = Call(request, self._api, seconds_max)
            if route.method == "GET":
                return await self._read(route, call)
            return await self._write(route, call)

        return serve

    async def _read(self, route: Route, call: Call) -> web.StreamResponse:
        """What is not there in time may be asked for again."""
        try:
            async with asyncio.timeout(call.seconds_left):
                return await self._handle(route, call)
        except TimeoutError as error:
            raise StoreUnavailable("the store did not answer in time") from error

    async def _write(self, route: Route, call: Call) -> web.StreamResponse:
        """A write that is late goes on, and its caller is answered that the outcome is unknown."""
        task = asyncio.create_task(self._handle_whole(route, call))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        while not task.done() and call.seconds_left > 0:
            await asyncio.wait([task], timeout=call.seconds_left)
        if task.done():
            return task.result()
        task.add_done_callback(_note_late)
        raise Refused(TOO_SLOW)

    async def _handle_whole(self, route: Route, call: Call) -> web.StreamResponse:
        async with asyncio.timeout(BACKGROUND_SECONDS_MAX):
            return await self._handle(route, call)

    async def _handle(self, route: Route, call: Call) -> web.StreamResponse:
        if route.without_store:
            await self._known_operators.check(call.request, lambda: self._admit_soon(route, call))
        else:
            await self._admit(route, call)
        check_query(call.request, (one.name for one in route.query))
        if route.body is None:
            await call.check_no_body()
        await call.know_people(in_path=not route.names_external)
        share = self._live.users.share_of(call.session.user_id) if call.session is not None else LoopShare()
        await self._live.turns.enter(share, REQUEST_SECONDS)

        async def perform() -> Answer:
            answer = await self._live.turns.metered(share, route.handler(call))
            if share.spent > SLICE_SECONDS:
                await self._live.turns.give_way(share)
            return answer

        if route.is_keyed and call.idempotency_key:
            return await self._api.repeated.answer(route, call, perform)
        status, body = await perform()
        response = web.Response(status=status) if body is None else json_response(status, body)
        response.headers.update(call.headers)
        return response

    async def _admit_soon(self, route: Route, call: Call) -> None:
        async with asyncio.timeout(STORE_SECONDS_MAX):
            await self._admit(route, call)

    async def _admit(self, route: Route, call: Call) -> None:
        """Who asks, whether they may, and what it costs them."""
        if route.needs != "nothing":
            try:
                call.access = await authenticate(call.request, self._api)
            except Refused:
                call.charge(route.cost)  # a guess: the address pays
                raise
        call.charge(route.cost)
        if call.access is not None:
            if route.needs == "operator":
                await check_operator(call.access, call.request, self._api)
                if route.needs_password:
                    call.check_recent_password()
            elif route.scope is not None:
                check_scope(call.access, route.scope, call.request.match_info.get("chat_id"))

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        if self._draining:
            raise Refused(SHUTTING_DOWN)
        self._check_origin(request)
        limited = is_limited(request, self._api)
        address = address_of(request, self._api)
        if limited:
            await self._check_address(address)
        check_query(request, ())
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Refused(BAD_REQUEST.because("this address speaks WebSocket"))
        socket = ClientSocket(
            protocols=tuple(CODECS),
            compress=False,
            max_msg_size=limits.FRAME_BYTES_MAX + 1,  # aiohttp refuses what reaches its limit
            decode_text=False,
            autoping=False,  # they are counted
            autoclose=False,
        )
        await socket.prepare(request)
        socket.headers.clear()  # they are sent: thousands of idle connections would keep them
        protocol, transport = request.protocol, request.transport
        if transport is None or not isinstance(protocol, ClientProtocol) or protocol.frames is None:
            return socket
        connection = Connection(
            self._live,
            protocol,
            protocol.frames,
            _as_transport(transport),
            CODECS[socket.ws_protocol or JSON_PROTOCOL],
            request[REQUEST_ID],
            address=address,
            limited=limited,
        )
        self.connections.add(connection)
        if limited:
            connection.charge(self._addresses.join(address, connection).share)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self._addresses.leave(address, connection)
            if self._all_closed is not None and not self.connections and not self._all_closed.done():
                self._all_closed.set_result(None)
        return socket

    async def _check_address(self, address: str) -> None:
        """Refused while this address opens connections too fast, or has too many."""
        wait_ms = await self._rates.connection(address)
        if wait_ms:
            raise Refused(RATE_LIMITED.after(wait_ms))
        if self._addresses.count(address) >= self._config.limits.connections_per_address:
            self._metrics.connections_refused.labels("address").inc()
            raise Refused(CROWDED_ADDRESS)


def _route_of(request: web.Request) -> str:
    """Its path as declared: what stands in the path of a request may be a secret."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"


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


def _as_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """aiohttp names the base class; what it holds can be written to."""
    return transport  # type: ignore[return-value]
