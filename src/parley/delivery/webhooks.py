"""Webhooks: entries as signed HTTP requests to addresses of integrators."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Raw, Struct

from parley.clock import MS_PER_SECOND, Clock, from_iso
from parley.core.client_address import Network, parse_address
from parley.core.retry import DeliveryFailure, Fault
from parley.core.safe_addresses import is_safe
from parley.delivery.ports import Parcel
from parley.store.delivery.ports import Webhooks
from parley.store.delivery.rows import Webhook
from parley.wire.frames import Entry

ATTEMPT_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 32
SIGNATURE, EVENT_ID = "Parley-Signature", "Parley-Event-Id"
EVENTS = {"message": "message.created", "member": "member.changed", "chat": "chat.changed"}
"""The event of each kind of entry. Other kinds have none yet."""
BUSY_STATUSES = frozenset({408, 425, 429})

Resolve = Callable[[str, int], Awaitable[list[str]]]


class WebhookEvent(Struct):
    """The body of a delivery. `data` is the entry as clients get it."""

    event_id: str
    type: str
    created_at: str
    chat_id: str
    data: Raw


class ForbiddenAddress(OSError):
    """A name leads to an address that the server must not connect to."""


def signature(secret: str, body: bytes, now_ms: int) -> str:
    """The header with which a receiver checks that a delivery is from this server, and recent."""
    seconds = now_ms // MS_PER_SECOND
    signed = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={signed}"


async def resolve_by_system(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class GuardedResolver(AbstractResolver):
    """Gives the connector only addresses that were checked: no second lookup can change them.

    One unsafe address among several is enough to refuse the name.
    """

    def __init__(self, allowed: Sequence[Network], resolve: Resolve, *, is_plain: bool) -> None:
        self._allowed = allowed
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
            raise ForbiddenAddress(f"{text} is not a public address, and not in webhooks.allowed_networks")

    async def close(self) -> None:
        """It holds nothing."""


class WebhookChannel:
    """Delivers entries to webhooks. Redirects are not followed: they could lead anywhere."""

    def __init__(
        self,
        webhooks: Webhooks,
        allowed: Sequence[Network],
        clock: Clock,
        resolve: Resolve = resolve_by_system,
    ) -> None:
        self._webhooks = webhooks
        self._clock = clock
        self._guards = {
            scheme: GuardedResolver(allowed, resolve, is_plain=scheme == "http")
            for scheme in ("http", "https")
        }
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def recipients(self, chat_id: str, until_ms: int | None = None) -> list[str]:
        hooks = [hook for hook in await self._webhooks.all() if hook.chat_id in ("", chat_id)]
        return [hook.webhook_id for hook in hooks if until_ms is None or until_ms >= hook.created_ms]

    async def wants(self, recipient: str, entry: Entry) -> bool:
        """Only what happened since the webhook was added."""
        hook = await self._hook(recipient)
        if hook is None or EVENTS.get(entry.kind) not in hook.events:
            return False
        return from_iso(entry.created_at) >= hook.created_ms

    async def attempt(self, parcel: Parcel) -> DeliveryFailure | None:
        hook = await self._hook(parcel.recipient)
        if hook is None:
            return DeliveryFailure(Fault.NO_RECIPIENT)
        entry = parcel.entry
        event = WebhookEvent(
            parcel.event_id, EVENTS[entry.kind], entry.created_at, entry.chat_id, Raw(parcel.wire)
        )
        body = msgspec.json.encode(event)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Parley",
            SIGNATURE: signature(hook.secret, body, self._clock()),
            EVENT_ID: parcel.event_id,
        }
        try:
            return await self._post(hook.url, body, headers)
        except ForbiddenAddress as error:
            return DeliveryFailure(Fault.FORBIDDEN_ADDRESS, str(error))
        except aiohttp.InvalidURL as error:
            return DeliveryFailure(Fault.MALFORMED, f"not a valid address: {error}")
        except TimeoutError:
            return DeliveryFailure(Fault.TIMEOUT, f"no answer within {ATTEMPT_SECONDS_MAX:g} s")
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, ForbiddenAddress):
                return DeliveryFailure(Fault.FORBIDDEN_ADDRESS, str(error.__cause__))
            return DeliveryFailure(Fault.UNREACHABLE, str(error) or type(error).__name__)

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryFailure | None:
        parts = urlsplit(url)
        if parse_address(parts.hostname or "") is not None:
            # The connector does not ask the resolver for an address.
            self._guards[parts.scheme].check(parts.hostname or "")
        async with self._session(parts.scheme).post(
            url, data=body, headers=headers, allow_redirects=False
        ) as response:
            return judge(response.status)

    def _session(self, scheme: str) -> aiohttp.ClientSession:
        """One for each scheme, because their addresses are checked differently."""
        session = self._sessions.get(scheme)
        if session is None:
            connector = aiohttp.TCPConnector(
                resolver=self._guards[scheme], use_dns_cache=False, limit=CONNECTIONS_MAX
            )
            session = self._sessions[scheme] = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return session

    async def _hook(self, webhook_id: str) -> Webhook | None:
        return next((hook for hook in await self._webhooks.all() if hook.webhook_id == webhook_id), None)

    async def close(self) -> None:
        """Close what is open; the next delivery opens it again."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


def judge(status: int) -> DeliveryFailure | None:
    """What a receiver's answer means: only 2xx is a delivery."""
    if 200 <= status < 300:
        return None
    if status in BUSY_STATUSES:
        return DeliveryFailure(Fault.BUSY, f"answered {status}")
    if status >= 500:
        return DeliveryFailure(Fault.SERVER_ERROR, f"answered {status}")
    what = "a redirect, which is not followed" if 300 <= status < 400 else "so it was refused"
    return DeliveryFailure(Fault.REFUSED, f"answered {status}, {what}")
