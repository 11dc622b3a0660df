"""What the server tells about itself: health, readiness, metrics and the description of its API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import cache
from typing import Any

import msgspec
from aiohttp import web

from parley.errors import FORBIDDEN, RATE_LIMITED
from parley.gateway import asyncapi, docs_page, link_page, web_pages
from parley.gateway.api import ROUTES
from parley.gateway.calls import REQUEST_SECONDS_MAX, authenticate, check_operator, is_local
from parley.gateway.connection import Connection
from parley.gateway.file_transfers import TRANSFERS
from parley.gateway.openapi import document
from parley.gateway.routes import JSON, Operation
from parley.gateway.services import ApiServices
from parley.telemetry import Metrics
from parley.wire import bodies

METRICS_TYPE = "text/plain; version=0.0.4"

WEBSOCKET = Operation(
    method="GET",
    path=asyncapi.ADDRESS,
    tag="Live",
    name="websocket",
    summary="Open a WebSocket",
    description="Frames in both directions, as `docs/PROTOCOL.md` describes them. The subprotocol `parley.v1`"
    " is JSON in text frames, `parley.v1.msgpack` is MessagePack in binary frames. The token goes into the"
    " first frame, `hello`.",
    answers={101: None},
    refusals=(FORBIDDEN, RATE_LIMITED),
    needs="nothing",
)
OPENAPI = Operation(
    method="GET",
    path="/v1/openapi.json",
    tag="Server",
    name="openapi",
    summary="This document",
    description="The HTTP API as OpenAPI 3.1, made from the routes that the server serves.",
    answers={200: dict[str, Any]},
    needs="nothing",
    cost=1,
)
ASYNCAPI = Operation(
    method="GET",
    path="/v1/asyncapi.json",
    tag="Server",
    name="asyncapi",
    summary="The frames of the WebSocket",
    description="The WebSocket as AsyncAPI 3.0, made from the frames that the server reads and writes.",
    answers={200: dict[str, Any]},
    needs="nothing",
    cost=1,
)
HEALTHZ = Operation(
    method="GET",
    path="/healthz",
    tag="Server",
    name="healthz",
    summary="Whether the process lives",
    description="Always 200 while it does.",
    answers={200: bodies.Health},
    needs="nothing",
)
READYZ = Operation(
    method="GET",
    path="/readyz",
    tag="Server",
    name="readyz",
    summary="Whether the server takes requests",
    description="503 while the store is not available, writes find it damaged, or the server is draining.",
    answers={200: bodies.Health, 503: bodies.Health},
    needs="nothing",
)
METRICS = Operation(
    method="GET",
    path="/metrics",
    tag="Server",
    name="metrics",
    summary="Metrics for Prometheus",
    description="Without a token for direct requests to a loopback address of a server that is not exposed,"
    " else with an operator's. The listener of `metrics.listen` needs no token.",
    answers={200: str},
    refusals=(FORBIDDEN,),
    needs="operator",
    media=METRICS_TYPE,
)
PAGES = (WEBSOCKET, OPENAPI, ASYNCAPI, docs_page.PAGE, docs_page.FILE, link_page.PAGE, link_page.FILE)
OPERATIONS = (*TRANSFERS, *PAGES, *web_pages.OPERATIONS, HEALTHZ, READYZ, METRICS)

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class System:
    """Answers these operations, all but the WebSocket."""

    def __init__(
        self,
        services: ApiServices,
        metrics: Metrics,
        connections: Collection[Connection],
        why_not_ready: Callable[[], str | None],
    ) -> None:
        self._services = services
        self._metrics = metrics
        self._connections = connections
        self._why_not_ready = why_not_ready
        self.for_clients: list[tuple[Operation, Serve]] = [
            (OPENAPI, self.openapi),
            (ASYNCAPI, self.asyncapi),
            (docs_page.PAGE, docs_page.show_page),
            (docs_page.FILE, docs_page.show_file),
            (link_page.PAGE, link_page.show_page),
            (link_page.FILE, link_page.show_file),
        ]
        self.for_operators: dict[str, Serve] = {
            HEALTHZ.path: self.healthz,
            READYZ.path: self.readyz,
            METRICS.path: self.metrics,
        }
        self.for_scrapers = self.for_operators | {METRICS.path: self.report}

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=await asyncio.to_thread(openapi_document), content_type=JSON)

    async def asyncapi(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=await asyncio.to_thread(asyncapi_document), content_type=JSON)

    async def healthz(self, request: web.Request) -> web.StreamResponse:
        return json_response(200, bodies.Health("ok"))

    async def readyz(self, request: web.Request) -> web.StreamResponse:
        reason = self._why_not_ready()
        return json_response(503 if reason else 200, bodies.Health(reason or "ready"))

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        services = self._services
        if services.config.metrics.listen or not is_local(request, services):
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                await check_operator(await authenticate(request, services), request, services)
        return await self.report(request)

    async def report(self, request: web.Request) -> web.StreamResponse:
        """The metrics, for callers that may read them."""
        metrics = self._metrics
        metrics.connections.set(len(self._connections))
        metrics.outbox_bytes.set(sum(connection.outbox_bytes for connection in self._connections))
        return web.Response(body=metrics.text(), headers={"Content-Type": METRICS_TYPE})


@cache
def openapi_document() -> bytes:
    """Made when it is first asked for: it takes longer than opening the store."""
    return msgspec.json.encode(document([*ROUTES, *OPERATIONS]))


@cache
def asyncapi_document() -> bytes:
    return msgspec.json.encode(asyncapi.document())


def json_response(status: int, body: Any) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type=JSON)
