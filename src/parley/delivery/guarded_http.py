"""Requests to addresses that others chose: only where the server may connect to, and within a time limit."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from msgspec import Struct
from yarl import URL

from parley.core.client_address import Network, parse_address
from parley.core.retry import DeliveryFailure, Fault
from parley.core.safe_addresses import FOR_WEBHOOKS, is_safe, parse_url

ATTEMPT_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 32
ANSWER_BYTES_MAX = 2_048
"""What is read of an answer's body."""
READ_BYTES = 16_384

T = TypeVar("T")

Resolve = Callable[[str, int], Awaitable[list[str]]]


class HttpAnswer(Struct, frozen=True):
    """What a server answered. `retry_after`: its header, empty without one."""

    status: int
    retry_after: str = ""
    text: str = ""


class ForbiddenAddress(OSError):
    """A name leads to an address that the server must not connect to."""


async def resolve_by_system(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def no_answer(error: aiohttp.ClientError | OSError) -> DeliveryFailure:
    """What a request without an answer is. Without a connection nothing can have arrived."""
    has_connected = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    if isinstance(error, TimeoutError):
        detail = f"no answer within {ATTEMPT_SECONDS_MAX:g} s"
        return DeliveryFailure(Fault.TIMEOUT, detail, may_have_arrived=has_connected)
    detail = str(error) or type(error).__name__
    return DeliveryFailure(Fault.UNREACHABLE, detail, may_have_arrived=has_connected)


class GuardedResolver(AbstractResolver):
    """Gives the connector only addresses that were checked: no second lookup can change them.

    One unsafe address among several is enough to refuse the name.
    """

    def __init__(self, allowed: Sequence[Network], resolve: Resolve, setting: str, *, is_plain: bool) -> None:
        self._allowed = allowed
        self._setting = setting
        self._resolve = resolve
        self._is_plain = is_plain

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        results: list[ResolveResult] = []
        for text in await self._resolve(host, port):
            self.check(text)
            results.append(
                ResolveResult(
                    hostname=host,
                    host=text,
                    port=port,
                    family=socket.AF_INET6 if ":" in text else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
            )
        return results

    def check(self, text: str) -> None:
        """ForbiddenAddress, unless the server may connect to this address."""
        address = parse_address(text)
        if address is None or not is_safe(address, self._allowed, is_plain=self._is_plain):
            raise ForbiddenAddress(f"{text} is not a public address, and not in {self._setting}")

    def socket(self, address: AddrInfoType) -> socket.socket:
        """For a connection to exactly this address, also where a URL names one and nothing is resolved."""
        family, kind, protocol, _, place = address
        self.check(str(place[0]))
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """It holds nothing."""


async def _guarded(request: Awaitable[T]) -> T | DeliveryFailure:
    """What a request returns; a failure if there was no answer."""
    try:
        return await request
    except ForbiddenAddress as error:
        return DeliveryFailure(Fault.FORBIDDEN_ADDRESS, str(error))
    except aiohttp.InvalidURL as error:
        return DeliveryFailure(Fault.MALFORMED, f"not a valid address: {error}")
    except TimeoutError as error:
        return no_answer(error)
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error.__cause__, ForbiddenAddress):
            return DeliveryFailure(Fault.FORBIDDEN_ADDRESS, str(error.__cause__))
        return no_answer(error)


class GuardedHttp:
    """Requests to addresses that are checked. Redirects are not followed: they could lead anywhere.

    `setting`: what operators call the networks that are allowed.
    """

    def __init__(
        self,
        allowed: Sequence[Network],
        resolve: Resolve = resolve_by_system,
        setting: str = FOR_WEBHOOKS,
    ) -> None:
        self._guards = {
            scheme: GuardedResolver(allowed, resolve, setting, is_plain=scheme == "http")
            for scheme in ("http", "https")
        }
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> HttpAnswer | DeliveryFailure:
        """What the server answered, whatever it is; a failure if there is no answer."""
        return await _guarded(self._post(url, body, headers))

    async def get(self, url: str, bytes_max: int) -> bytes | DeliveryFailure:
        """The body of a good answer; a failure if there is none, or it is larger."""
        return await _guarded(self._get(url, bytes_max))

    async def _get(self, url: str, bytes_max: int) -> bytes | DeliveryFailure:
        parsed = _parsed(url)
        async with self._session(parsed.scheme).get(parsed, allow_redirects=False) as response:
            if response.status != 200:
                return DeliveryFailure(Fault.REFUSED, f"HTTP status {response.status}")
            body = b""
            async for piece in response.content.iter_chunked(READ_BYTES):
                body += piece
                if len(body) > bytes_max:
                    return DeliveryFailure(Fault.MALFORMED, f"it has more than {bytes_max} bytes")
            return body

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> HttpAnswer:
        parsed = _parsed(url)
        async with self._session(parsed.scheme).post(
            parsed, data=body, headers=headers, allow_redirects=False
        ) as response:
            text = (await response.content.read(ANSWER_BYTES_MAX)).decode("utf-8", "replace")
            return HttpAnswer(response.status, response.headers.get("Retry-After", ""), text)

    def _session(self, scheme: str) -> aiohttp.ClientSession:
        """One for each scheme, because their addresses are checked differently."""
        session = self._sessions.get(scheme)
        if session is None:
            guard = self._guards[scheme]
            connector = aiohttp.TCPConnector(
                resolver=guard, socket_factory=guard.socket, use_dns_cache=False, limit=CONNECTIONS_MAX
            )
            session = self._sessions[scheme] = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return session

    async def close(self) -> None:
        """Close what is open; the next request opens it again."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


def _parsed(url: str) -> URL:
    """Parsed once: what is checked and what is connected to come from the same reading."""
    parsed = parse_url(url)
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.raw_host:
        raise aiohttp.InvalidURL(url)
    return parsed
