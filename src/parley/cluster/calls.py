"""Calls between nodes: signed by whoever asks, let in once by whoever is asked, answered with a proof.

    calls = SignedCalls(secret, clock=wall_clock, random_bytes=secrets.token_bytes)
    answer = await calls.post("http://10.0.0.7:7070/v1/node/drafts", body, timeout=2.0)

    app = web.Application(middlewares=[trusted(secret, clock)])

An empty secret signs too, with a key that everybody knows: it keeps a web page from calling a node on the
reader's own machine, and nobody else. `check_exposure` keeps such a node on loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

from parley.clock import Clock
from parley.config import is_loopback
from parley.core.log_limits import LineLimit
from parley.core.node_trust import (
    NONCE_BYTES,
    SECRET_LETTERS_MIN,
    Doorkeeper,
    is_answer_proven,
    prove_answer,
    prove_call,
)
from parley.errors import ConfigError, ParleyError

CALL_PROOF = "X-Parley-Proof"
ANSWER_PROOF = "X-Parley-Answer-Proof"
CONNECT_SECONDS_MAX = 1.0
CONNECTIONS_PER_NODE_MAX = 32
ANSWER_BYTES_MAX = 16 * 1024 * 1024
ANSWER_BYTES_SHOWN_MAX = 200
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})

log = structlog.get_logger("parley.cluster")

RandomBytes = Callable[[int], bytes]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NodeError(ParleyError):
    """A call to another node did not bring what was asked for."""


class NodeUnreachable(NodeError):
    """No connection: nothing was sent, nothing was done."""


class NodeSilent(NodeError):
    """It was sent, and no answer came that can be trusted: perhaps done, perhaps not."""


class NodeRefused(NodeError):
    """The node answered that it did not do it."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(
            f"the node answered {status}: {body[:ANSWER_BYTES_SHOWN_MAX].decode(errors='replace')}"
        )
        self.status = status
        self.body = body


class SignedCalls:
    """The asking side. One pool of connections for all nodes; `close` it at the end."""

    def __init__(self, secret: str, *, clock: Clock, random_bytes: RandomBytes) -> None:
        self._secret = secret
        self._clock = clock
        self._random_bytes = random_bytes
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, timeout: float) -> bytes:
        """The body of a 200 that the node proved to be its own.

        NodeUnreachable: nothing was sent. NodeRefused: it says it did nothing. NodeSilent: nobody knows.
        """
        target = URL(url)
        proof = prove_call(
            self._secret,
            "POST",
            target.raw_path_qs,
            body,
            self._clock(),
            self._random_bytes(NONCE_BYTES),
        )
        status, answer, answer_proof = await self._exchange(target, body, proof, timeout)
        if status != 401 and not is_answer_proven(self._secret, proof, status, answer, answer_proof):
            # A balancer's own 502 or 504 comes this way: it does not know what the node behind it did.
            raise NodeSilent(f"{target.authority} answered {status} without a proof of the shared secret")
        if status != 200:
            raise NodeRefused(status, answer)
        return answer

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _exchange(self, url: URL, body: bytes, proof: str, timeout: float) -> tuple[int, bytes, str]:
        try:
            async with self._opened().post(
                url,
                data=body,
                headers={CALL_PROOF: proof, "Content-Type": "application/octet-stream"},
                timeout=aiohttp.ClientTimeout(total=timeout, connect=min(CONNECT_SECONDS_MAX, timeout / 2)),
                allow_redirects=False,
            ) as response:
                return response.status, await _read(response), response.headers.get(ANSWER_PROOF, "")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NodeUnreachable(f"{url.authority} cannot be reached: {_words(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeSilent(f"{url.authority} gave no answer: {_words(error)}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=CONNECTIONS_PER_NODE_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"an answer has at most {ANSWER_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def trusted(secret: str, clock: Clock, open_paths: frozenset[str] = OPEN_PATHS) -> Middleware:
    """A middleware for the asked side: a handler behind it sees only calls of its own cluster, each once.

    Everything else is answered 401 before the handler runs; `open_paths` need no proof.
    """
    doorkeeper = Doorkeeper(secret, clock())
    lines = LineLimit()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in open_paths:
            return await handler(request)
        proof = request.headers.get(CALL_PROOF, "")
        body = await request.read() if proof else b""
        reason = doorkeeper.why_refused(proof, request.method, request.rel_url.raw_path_qs, body, clock())
        if not secret and not _is_for_loopback(request):
            reason = "without a secret, this node is called by its loopback address only"
        if reason is not None:
            now = asyncio.get_running_loop().time()
            if (more := lines.admit(f"{request.remote} {reason}", now)) is not None:
                log.warning(
                    "node call refused", path=request.path, peer=request.remote, reason=reason, **more
                )
            return _refusal(reason)
        return _proven(secret, proof, await _answer(request, handler))

    return check


def _is_for_loopback(request: web.Request) -> bool:
    """A page of some other site must not reach a local node by a name that resolves to it."""
    try:
        return is_loopback(urlsplit(f"//{request.host}").hostname or "")
    except ValueError:
        return False


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, text=error.reason)


def _proven(secret: str, call_proof: str, response: web.StreamResponse) -> web.StreamResponse:
    assert isinstance(response, web.Response), "an answer between nodes is a whole one"
    body = response.body or b""
    assert isinstance(body, bytes), "an answer between nodes is a whole one"
    response.headers[ANSWER_PROOF] = prove_answer(secret, call_proof, response.status, body)
    return response


def _refusal(reason: str) -> web.Response:
    body = msgspec.json.encode({"code": "untrusted", "reason": reason})
    return web.Response(status=401, body=body, content_type="application/json")


def check_exposure(host: str, secret: str) -> None:
    """ConfigError for a node that strangers could call: off loopback it needs a secret worth the name."""
    if is_loopback(host):
        return
    if not secret:
        raise ConfigError(
            f"{host} can be reached from other machines: set cluster.secret, or bind to loopback"
        )
    if len(secret) < SECRET_LETTERS_MIN:
        raise ConfigError(f"cluster.secret must have at least {SECRET_LETTERS_MIN} letters off loopback")
