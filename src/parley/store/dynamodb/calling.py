"""One request to DynamoDB and its retries: signing, sockets, deadlines.

Reads are retried until a deadline. A write is retried only when it was certainly not done; when its
outcome is open, `OutcomeUnknown` is raised at once and the caller decides.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from yarl import URL

from parley import __version__
from parley.clock import Clock
from parley.errors import ConfigError
from parley.store.dynamodb.answers import (
    WRITES,
    Answer,
    Capacity,
    Trouble,
    backoff_seconds,
    lost,
    trouble_in,
    unreachable,
)
from parley.store.dynamodb.credentials import RENEW_SECONDS, FindCredentials, find_region
from parley.store.dynamodb.signing import Credentials, Signer
from parley.telemetry import Metrics

CONNECTIONS_MAX = 64
CONNECT_SECONDS_MAX = 3.0
"""Waiting for a free connection included: whoever waits longer is told that nothing was sent."""
ANSWER_SECONDS_MAX = 8.0
IDLE_SECONDS_MAX = 15.0
"""Shorter than any server's patience: a request must not meet a connection that is just being closed."""
DEADLINE_SECONDS = 12.0
"""No further attempt begins after it."""
ATTEMPTS_MAX = 12
BODY_BYTES_STREAMED = 512 * 1024
"""Larger bodies are written in pieces, between which others run."""
assert CONNECT_SECONDS_MAX + ANSWER_SECONDS_MAX < DEADLINE_SECONDS, "one attempt always fits"

Request = dict[str, Any]
Send = Callable[[str, Request], Awaitable[Answer]]
Fault = Callable[[str, Request, Send], Awaitable[Answer]]
"""Stands in for sending a request, for tests: may send it or not, change its answer, raise TimeoutError."""
Faults = Callable[[str, Request], Fault | None]

log = structlog.get_logger("parley.store.dynamodb")


class Caller:
    """Connections to one endpoint, and the credentials to use it."""

    def __init__(
        self,
        endpoint: str,
        region: str,
        *,
        credentials: FindCredentials,
        metrics: Metrics | None,
        clock: Clock,
        random: Callable[[], float],
        faults: Faults | None = None,
        answer_seconds: float = ANSWER_SECONDS_MAX,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.endpoint = endpoint
        self.region = region
        self.capacity = Capacity(metrics)
        self._find_credentials = credentials
        self._clock = clock
        self._random = random
        self._faults = faults
        self._answer_seconds = answer_seconds
        self._deadline_seconds = deadline_seconds
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(dict[str, Any])
        self._signer: Signer | None = None
        self._credentials: Credentials | None = None
        self._session: aiohttp.ClientSession | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find region and credentials (ConfigError if there are none); connects to nothing yet."""
        self.region = self.region or await find_region()
        self.endpoint = endpoint_of(self.endpoint, self.region)
        self._url = URL(f"{self.endpoint}/")
        self._signer = Signer(urlsplit(self.endpoint).netloc, self.region)
        self._credentials = await self._find_credentials()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=IDLE_SECONDS_MAX),
            timeout=aiohttp.ClientTimeout(connect=CONNECT_SECONDS_MAX, sock_read=self._answer_seconds),
            headers={"Accept-Encoding": "identity", "User-Agent": f"parley/{__version__}"},
            skip_auto_headers=("Accept",),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._renewing = asyncio.create_task(self._renew())

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if self._session is not None:
            await self._session.close()
        self._session = self._renewing = None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                self._credentials = await self._find_credentials()
            except ConfigError as error:
                log.warning("credentials not renewed", reason=str(error))

    async def call(
        self, operation: str, request: Request, attempts_max: int = ATTEMPTS_MAX
    ) -> dict[str, Any]:
        """The answer's body, after as many attempts as are safe and useful."""
        is_write = operation in WRITES
        time = asyncio.get_running_loop().time
        give_up_at = time() + self._deadline_seconds
        attempt = 1
        while True:
            answer = await self._try(operation, request)
            if not isinstance(answer, Trouble):
                self.capacity.note_answer(operation, answer)
                return answer
            pause = backoff_seconds(attempt, self._random())
            is_too_late = attempt >= attempts_max or time() + pause >= give_up_at
            if is_too_late or not answer.is_worth_retrying(is_write):
                raise answer.error(is_write)
            self.capacity.note_retry(operation)
            attempt += 1
            await asyncio.sleep(pause)

    async def _try(self, operation: str, request: Request) -> dict[str, Any] | Trouble:
        self.capacity.note_request(operation)
        fault = self._faults(operation, request) if self._faults is not None else None
        try:
            if fault is None:
                answer = await self._send(operation, request)
            else:
                answer = await fault(operation, request, self._send)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return unreachable(self.endpoint, error)
        except (aiohttp.ClientError, OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            return lost(operation, error)
        return answer.body if answer.status == 200 else trouble_in(operation, request, answer)

    async def _send(self, operation: str, request: Request) -> Answer:
        if self._session is None or self._credentials is None or self._signer is None:
            raise RuntimeError("the client is not open")
        body = self._encoder.encode(request)
        headers = self._signer.headers(self._credentials, operation, body, self._clock())
        data = body if len(body) < BODY_BYTES_STREAMED else io.BytesIO(body)
        async with self._session.post(
            self._url, data=data, headers=headers, allow_redirects=False
        ) as response:
            content = await response.read()
            checksum = response.headers.get("x-amz-crc32")
        if checksum is not None and checksum != str(zlib.crc32(content)):
            raise aiohttp.ClientPayloadError("the answer does not match its checksum")
        if response.status != 200:
            return Answer(response.status, self._error_body(content))
        return Answer(response.status, self._decoder.decode(content))

    def _error_body(self, content: bytes) -> dict[str, Any]:
        """What stands between us and DynamoDB may answer with anything at all."""
        try:
            return self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}


def endpoint_of(endpoint: str, region: str) -> str:
    """The endpoint without a slash at its end; that of AWS in the region when none is given."""
    if not region.replace("-", "").isalnum():
        raise ConfigError(f"dynamodb.region must be a region's name such as eu-central-1, not {region!r}")
    if not endpoint:
        return f"https://dynamodb.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
        raise ConfigError(f"dynamodb.endpoint must be like http://127.0.0.1:8000, not {endpoint!r}")
    return f"{parts.scheme}://{parts.netloc}"
