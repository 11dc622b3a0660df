"""One HTTP call: who asks, with what; and the table that routes and the OpenAPI document share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from parley.chats.reading import check_sequence
from parley.config import is_loopback
from parley.errors import BAD_REQUEST, FORBIDDEN, TOO_LARGE, UNAUTHENTICATED, UNSUPPORTED_MEDIA, Refused
from parley.gateway.services import Services
from parley.model import Session
from parley.wire.limits import ANSWER_SECONDS_MAX, BODY_BYTES_MAX

T = TypeVar("T")

REQUEST_SECONDS_MAX = 4.5
BODY_SECONDS_MAX = 30.0
HASH_SECONDS_MAX = 30.0
"""Passwords are hashed in turn, and that takes its time."""
assert REQUEST_SECONDS_MAX < ANSWER_SECONDS_MAX

REQUEST_ID = web.RequestKey("request_id", str)
BEARER = "bearer "
FORWARDING_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")


class Call:
    """A request with its session, ready for a handler, and the time that is left to answer it."""

    __slots__ = ("_answer_by", "_seconds_max", "request", "services", "session")

    def __init__(self, request: web.Request, services: Services, seconds_max: float) -> None:
        self.request = request
        self.services = services
        self.session: Session | None = None
        self._seconds_max = seconds_max
        self._answer_by = _now() + seconds_max

    @property
    def seconds_left(self) -> float:
        return self._answer_by - _now()

    @property
    def me(self) -> Session:
        assert self.session is not None, "the route asks for a token"
        return self.session

    @property
    def user_id(self) -> str:
        return self.me.user_id

    def path(self, name: str) -> str:
        return self.request.match_info[name]

    def text(self, name: str, default: str = "") -> str:
        return self.request.query.get(name, default)

    def number(self, name: str, default: int) -> int:
        return check_sequence(self.text(name), name, default)

    def limit(self, default: int, most: int) -> int:
        """A limit that is too high is lowered, one that is too low is refused."""
        limit = self.number("limit", default)
        if limit < 1:
            raise Refused(BAD_REQUEST.because("limit must be at least 1"))
        return min(limit, most)

    async def body(self, kind: type[T]) -> T:
        """The JSON body as a value of this kind."""
        if self.request.content_type != "application/json":
            raise Refused(UNSUPPORTED_MEDIA)
        try:
            return msgspec.json.decode(await self._read(), type=kind)
        except web.HTTPRequestEntityTooLarge as error:
            raise Refused(TOO_LARGE.because(f"a body has at most {BODY_BYTES_MAX} bytes")) from error
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, web.RequestPayloadError) as error:
            raise Refused(BAD_REQUEST.because(str(error))) from error

    async def _read(self) -> bytes:
        """As fast as the client sends it: the time to answer begins after it."""
        self._answer_by = _now() + BODY_SECONDS_MAX
        body = await self.request.read()
        self._answer_by = _now() + self._seconds_max
        return body


Answer = tuple[int, Struct | None]
Handler = Callable[[Call], Awaitable[Answer]]


class Endpoint(Struct, frozen=True):
    """One route: what it takes, what it answers, and who may ask.

    `again` is the status when what was asked for had been there already. `hashes`: it waits for its turn to
    hash a password.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answers: Any
    takes: Any = None
    status: int = 200
    needs: str = "token"
    query: tuple[str, ...] = ()
    again: int | None = None
    hashes: bool = False


def _now() -> float:
    return asyncio.get_running_loop().time()


def is_direct(request: web.Request) -> bool:
    """Whether no proxy stands between: only then is a loopback bind a person at this machine."""
    return not any(name in request.headers for name in FORWARDING_HEADERS)


def is_local(request: web.Request, services: Services) -> bool:
    return services.config.is_loopback and is_direct(request)


def is_limited(request: web.Request, services: Services) -> bool:
    """Whether the rate limits hold for this request."""
    rates = services.config.limits.rates
    return rates == "on" or (rates == "auto" and not is_local(request, services))


def address_of(request: web.Request, services: Services) -> str:
    """Whom the rates per address count: the nearest hop that a known proxy names, else the peer."""
    peer = request.remote or ""
    forwarded = request.headers.get("X-Forwarded-For")
    if forwarded and (is_loopback(peer) or peer in services.config.server.proxies):
        return forwarded.rpartition(",")[2].strip()
    return peer


async def authenticate(request: web.Request, services: Services) -> Session:
    header = request.headers.get("Authorization", "")
    if header[: len(BEARER)].lower() != BEARER:
        raise Refused(UNAUTHENTICATED)
    return await services.people.authenticate(header[len(BEARER) :].strip())


async def check_operator(session: Session, services: Services) -> None:
    if not (await services.people.user(session.user_id)).is_operator:
        raise Refused(FORBIDDEN.because("this needs an operator's token"))
