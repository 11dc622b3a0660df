"""Calls between nodes: signed by the caller, accepted once by the node that is called, answered with a proof.

calls = SignedCalls(keys, clock=wall_clock, random_bytes=secrets.token_bytes)
answer = await calls.post("http://10.0.0.7:7070/node/append", body, timeout=2.0, target="a name")

app = web.Application(middlewares=[trusted(keys, "a name", clock)])
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware
from msgspec import Struct
from yarl import URL

from parley.clock import Clock
from parley.core.cluster_keys import ClusterKeys
from parley.core.log_limits import LineLimit
from parley.core.node_trust import (
    NONCE_BYTES,
    UNSIGNED,
    WRONG_SIGNATURE,
    WRONG_TARGET,
    CallKeys,
    CallVerifier,
    NodeCall,
    is_answer_proven,
    prove_answer,
    prove_call,
)
from parley.errors import ParleyError

CALL_TARGET = "X-Parley-Target"
CALL_PROOF = "X-Parley-Proof"
ANSWER_PROOF = "X-Parley-Answer-Proof"
CONNECT_SECONDS_MAX = 1.0
CONNECTIONS_PER_NODE_MAX = 32
ANSWER_BYTES_MAX = 16 * 1024 * 1024
ANSWER_BYTES_SHOWN_MAX = 200
NAMES_TRIED_MAX = 3
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
        super().__init__(f"the node answered {status}: {_shown(body)}")
        self.status = status
        self.body = body


class SignedCalls:
    """The asking side. One pool of connections for all nodes; `close` it at the end."""

    def __init__(
        self,
        keys: ClusterKeys,
        *,
        clock: Clock,
        random_bytes: RandomBytes,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._keys = CallKeys(keys)
        self._clock = clock
        self._random_bytes = random_bytes
        self._tls = tls
        self._names: dict[str, str] = {}
        """What the processes at addresses call themselves that are known by their address alone."""
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, timeout: float, target: str = "") -> bytes:
        """The body of a 200 that the node proved to be its own.

        `target`: the process that is meant; without it, whichever answers there. NodeUnreachable: nothing was
        sent. NodeRefused: it says it did nothing. NodeSilent: unknown.
        """
        to = URL(url)
        if self._tls is not None and to.scheme != "https":
            raise NodeUnreachable(f"{to.authority} is not called without TLS")
        if target:
            return await self._post(to, body, timeout, target)
        time = asyncio.get_running_loop().time
        give_up_at = time() + timeout
        for _ in range(NAMES_TRIED_MAX):
            known = self._names.get(to.authority, "")
            try:
                return await self._post(to, body, max(give_up_at - time(), 0.001), known)
            except NodeRefused as error:
                # It proved that it is of this cluster, and told what it is called since it started.
                name = _name_in(error)
                if not name or name == known:
                    raise
                self._names[to.authority] = name
        raise NodeUnreachable(f"{to.authority} is another process at each call: give them one cluster.node")

    async def _post(self, to: URL, body: bytes, timeout: float, target: str) -> bytes:
        call = NodeCall(target, "POST", to.raw_path_qs, body)
        proof = prove_call(self._keys, call, self._clock(), self._random_bytes(NONCE_BYTES))
        status, answer, answer_proof = await self._exchange(to, call, proof, timeout)
        if not is_answer_proven(self._keys, call.path, proof, status, answer, answer_proof):
            # A balancer's own 502 or 504 comes this way: it does not know what the node behind it did.
            raise NodeSilent(f"{to.authority} answered without a proof: {status} {_shown(answer)}")
        if status != 200:
            raise NodeRefused(status, answer)
        return answer

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _exchange(self, url: URL, call: NodeCall, proof: str, timeout: float) -> tuple[int, bytes, str]:
        headers = {
            CALL_TARGET: call.target,
            CALL_PROOF: proof,
            "Content-Type": "application/octet-stream",
        }
        try:
            async with self._opened().post(
                url,
                data=call.body,
                headers=headers,
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
                connector=aiohttp.TCPConnector(
                    limit=0, limit_per_host=CONNECTIONS_PER_NODE_MAX, ssl=self._tls or True
                ),
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


def _shown(body: bytes) -> str:
    return body[:ANSWER_BYTES_SHOWN_MAX].decode(errors="replace")


def trusted(
    keys: ClusterKeys,
    name: str,
    clock: Clock,
    refused: Callable[[], None] = lambda: None,
    open_paths: frozenset[str] = OPEN_PATHS,
) -> Middleware:
    """A middleware for the asked side: a handler behind it sees only calls of its own cluster, each once.

    Everything else is answered 401 before the handler runs, and `refused` is called; `open_paths` need no
    proof. `name`: the target that calls to this process name; another one at each start.
    """
    call_keys = CallKeys(keys)
    verifier = CallVerifier(call_keys, name, clock())
    lines = LineLimit()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        proof = request.headers.get(CALL_PROOF, "")
        target = request.headers.get(CALL_TARGET, "")
        body = await request.read() if proof else b""
        path = request.rel_url.raw_path_qs
        reason = verifier.why_refused(proof, NodeCall(target, request.method, path, body), clock())
        if reason is None:
            return _proven(call_keys, path, proof, await _answer(request, handler))
        if reason == WRONG_TARGET and not target:  # the caller asks which process answers here
            return _proven(call_keys, path, proof, _refusal(reason, name))
        refused()
        now = asyncio.get_running_loop().time()
        if (more := lines.admit(f"{request.remote} {reason}", now)) is not None:
            log.warning("node call refused", path=request.path, peer=request.remote, reason=reason, **more)
        if reason in (UNSIGNED, WRONG_SIGNATURE):
            return _refusal(reason)
        # The caller is of this cluster: it must be able to believe that nothing was done.
        return _proven(call_keys, path, proof, _refusal(reason, name))

    return check


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, text=error.reason)


def _proven(keys: CallKeys, path: str, call_proof: str, response: web.StreamResponse) -> web.StreamResponse:
    assert isinstance(response, web.Response), "an answer between nodes is a whole one"
    body = response.body or b""
    assert isinstance(body, bytes), "an answer between nodes is a whole one"
    response.headers[ANSWER_PROOF] = prove_answer(keys, path, call_proof, response.status, body)
    return response


class Untrusted(Struct):
    """Why a call was refused. `target`: whom the caller has reached, if it is of this cluster."""

    reason: str
    target: str = ""
    code: str = "untrusted"


def _refusal(reason: str, name: str = "") -> web.Response:
    body = msgspec.json.encode(Untrusted(reason, name))
    return web.Response(status=401, body=body, content_type="application/json")


def _name_in(refused: NodeRefused) -> str:
    """What a process calls itself that was called by another name; empty if that is not why it refused."""
    try:
        said = msgspec.json.decode(refused.body, type=Untrusted)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return said.target if refused.status == 401 and said.reason == WRONG_TARGET else ""
