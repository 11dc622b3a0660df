"""The server for other nodes: drafts that this node appends for them, and notices. Not the public port."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable

import structlog
from aiohttp import web
from yarl import URL

from parley.bus.ports import Listener
from parley.clock import Clock
from parley.cluster import bodies
from parley.cluster.calls import trusted
from parley.config import ClusterConfig
from parley.core.cluster_keys import ClusterKeys
from parley.core.log_limits import LineLimit
from parley.errors import ConfigError
from parley.http_server import HttpRunner
from parley.model import Persisted
from parley.sending.forwarder import log_drafts
from parley.sending.sender import Sender

CLOSE_SECONDS_MAX = 0.5
NOTICES_REMEMBERED_MAX = 10_000
EVERYWHERE = ("0.0.0.0", "::")

log = structlog.get_logger("parley.cluster")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NodeServer:
    """Serves the other nodes of the cluster. ConfigError where no node could call it.

    `target`: the name of this process, which the calls to it carry. `tls`: how it takes calls, if by TLS.
    `sender`: this node's own log, so that a batch is never forwarded again; None on a node that does not
    append. `listener` gets the notices of other nodes, `hear` the entries that are routed here. `routes`:
    other signed calls. `is_listed`: whether this node's own lease holds.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        *,
        keys: ClusterKeys,
        target: str,
        clock: Clock,
        sender: Sender | None,
        listener: Listener,
        routes: Iterable[web.RouteDef] = (),
        is_listed: Callable[[], bool] = lambda: True,
        hear: Callable[[list[Persisted]], None] = lambda _: None,
        tls: ssl.SSLContext | None = None,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        check_advertised(cluster, tls is not None)
        self._cluster = cluster
        self._keys = keys
        self._target = target
        self._tls = tls
        self._refused = refused
        self._clock = clock
        self._sender = sender
        self._listener = listener
        self._routes = list(routes)
        self._is_listed = is_listed
        self._hear_news = hear
        self._heard: dict[str, None] = {}
        self._lines = LineLimit()
        self._draining = False
        self._runner: HttpRunner | None = None

    def application(self) -> web.Application:
        app = web.Application(
            client_max_size=bodies.BODY_BYTES_MAX,
            middlewares=[_guard, trusted(self._keys, self._target, self._clock, self._refused)],
        )
        app.router.add_post(bodies.APPEND, self._append)
        app.router.add_post(bodies.NOTICES, self._notices)
        app.router.add_post(bodies.NEWS, self._news)
        app.router.add_post(bodies.PING, self._ping)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_routes(self._routes)
        return app

    def add_routes(self, routes: Iterable[web.RouteDef]) -> None:
        """Other signed calls, before it starts."""
        self._routes += routes

    async def start(self) -> str:
        """Listen; returns the address that other nodes reach this one by."""
        self._runner = HttpRunner(
            self.application(), logger=_silent_logger(), shutdown_timeout=CLOSE_SECONDS_MAX
        )
        await self._runner.setup()
        host, port = self._cluster.host, self._cluster.port
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=self._tls).start()
        except OSError as error:
            raise ConfigError(
                f"cannot listen for other nodes on cluster.host {host}, port {port}: {error.strerror}"
            ) from error
        scheme = "http" if self._tls is None else "https"
        bound = str(URL.build(scheme=scheme, host=host, port=int(self._runner.addresses[0][1])))
        return self._cluster.advertise.rstrip("/") or bound

    def stop_accepting(self) -> None:
        """Take no more batches. Those that were taken are answered, and notices are still accepted."""
        self._draining = True

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _append(self, request: web.Request) -> web.StreamResponse:
        self._check_open()
        if self._sender is None:
            raise web.HTTPServiceUnavailable(reason="this node does not append")
        drafts = await self._read(request, bodies.read_drafts)
        log_drafts("Message taken over", drafts, peer=request.remote)
        return _bytes(bodies.pack_outcomes(await self._sender.send_all(drafts)))

    async def _notices(self, request: web.Request) -> web.StreamResponse:
        for notice in await self._read(request, bodies.read_notices):
            if notice.notice_id not in self._heard:
                self._hear(notice)
        return _bytes(b"")

    async def _news(self, request: web.Request) -> web.StreamResponse:
        """Confirmed by the answer: from then on the clients of this node depend on it alone."""
        self._hear_news(await self._read(request, bodies.read_news))
        return _bytes(b"")

    async def _ping(self, request: web.Request) -> web.StreamResponse:
        self._check_open()
        return _bytes(bodies.LISTED if self._is_listed() else b"")

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def _read(self, request: web.Request, read: Callable[[bytes], list[bodies.T]]) -> list[bodies.T]:
        try:
            return read(await request.read())
        except bodies.BadBody as error:
            now = asyncio.get_running_loop().time()
            if (more := self._lines.admit(str(request.remote), now)) is not None:
                reason = str(error)
                log.warning(
                    "node call refused", path=request.path, peer=request.remote, reason=reason, **more
                )
            raise web.HTTPBadRequest(reason="this body is not well formed") from error

    def _check_open(self) -> None:
        if self._draining:
            raise web.HTTPServiceUnavailable(reason="this node is going away")

    def _hear(self, notice: bodies.Notice) -> None:
        """Act on a notice once, however often it comes; if the listener fails, the next try acts again."""
        if isinstance(notice, bodies.Joined):
            self._listener.joined(notice.chat_id, notice.head, notice.user_ids)
        else:
            self._listener.sessions_ended(notice.session_ids)
        self._heard[notice.notice_id] = None
        if len(self._heard) > NOTICES_REMEMBERED_MAX:
            del self._heard[next(iter(self._heard))]


def check_advertised(cluster: ClusterConfig, is_tls: bool = False) -> None:
    """ConfigError when other nodes could not know how to reach this one."""
    if not cluster.advertise:
        if cluster.host in EVERYWHERE:
            raise ConfigError(
                f"cluster.host is {cluster.host}: say in cluster.advertise how other nodes reach this one"
            )
        return
    try:
        url = URL(cluster.advertise)
    except ValueError:
        url = URL()
    schemes = ("https",) if is_tls else ("http", "https")
    if url.scheme not in schemes or not url.host:
        example = f"{schemes[0]}://10.0.0.7:7070"
        raise ConfigError(f"cluster.advertise must be like {example}, not {cluster.advertise}")


def _bytes(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/octet-stream")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An unexpected failure is logged and answered without a proof: the caller must assume anything."""
    try:
        return await handler(request)
    except (web.HTTPException, ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("node call failed", path=request.path, peer=request.remote)
        return web.Response(status=500)


def _silent_logger() -> logging.Logger:
    """Broken requests are not worth aiohttp's own log lines; failures of this node are logged by `_guard`."""
    logger = logging.getLogger("parley.cluster.http")
    logger.disabled = True
    return logger
