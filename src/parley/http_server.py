"""An HTTP server that says nothing about itself: no versions in its headers, nothing of what a client sent.

aiohttp names itself and Python in every answer. When a request is not well-formed HTTP, its answer repeats
the client's bytes. The servers for clients, for nodes and for sequences run on `HttpRunner` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from parley.errors import BAD_REQUEST, INTERNAL
from parley.wire.bodies import Problem

SERVER_NAME = "Parley"
SHUTDOWN_SECONDS = 60.0
"""How long cleaning up waits for handlers, as aiohttp does by default."""
NO_HTTP = BAD_REQUEST.because("this is not a well-formed HTTP request")


class HttpRunner(web.AppRunner):
    """Runs an application; every answer carries `headers`, and a `Server` without versions."""

    def __init__(
        self,
        app: web.Application,
        *,
        headers: Mapping[str, str] | None = None,
        shutdown_timeout: float = SHUTDOWN_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(
            app, handle_signals=False, access_log=None, shutdown_timeout=shutdown_timeout, **options
        )
        self.headers = {"Server": SERVER_NAME, **(headers or {})}
        self.options = {"access_log": None, **options}
        """What a protocol of one of its connections takes."""
        app.on_response_prepare.append(self._add_headers)

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self.headers)
        if isinstance(response, web.HTTPExpectationFailed):  # aiohttp's own, with the client's text in it
            response.content_type = "application/json"
            response.body = _problem_body(response.status)

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self.headers)


class _Server(web.Server):
    """aiohttp's server of an application, with our own protocol."""

    def __init__(self, made: web.Server, headers: Mapping[str, str]) -> None:
        super().__init__(made.request_handler, request_factory=made.request_factory, **made._kwargs)
        self._headers = headers

    def __call__(self) -> RequestHandler:
        return HttpProtocol(self, self._headers, loop=self._loop, **self._kwargs)


class HttpProtocol(RequestHandler):
    """One connection. What cannot be read as a request is answered with a fixed text."""

    __slots__ = ("_headers",)

    def __init__(self, server: web.Server, headers: Mapping[str, str], **options: Any) -> None:
        super().__init__(server, **options)
        self._headers = headers

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs it; raises if an answer has begun
        answer = _problem(status, self._headers)
        answer.force_close()
        return answer


def _problem(status: int, headers: Mapping[str, str]) -> web.Response:
    body = _problem_body(status)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _problem_body(status: int) -> bytes:
    refusal = NO_HTTP if status < INTERNAL.status else INTERNAL
    return msgspec.json.encode(Problem(refusal.code, refusal.reason, refusal.temporary))
