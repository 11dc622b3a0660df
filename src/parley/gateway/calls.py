"""One HTTP call: who asks, from where, with what, and how long the answer may take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from parley.accounts.access import Access
from parley.audit import OperatorCall
from parley.chats.reader import check_sequence
from parley.clock import MS_PER_SECOND
from parley.config import Config
from parley.core.client_address import client_address
from parley.core.idempotency import check_key, id_of
from parley.errors import (
    BAD_REQUEST,
    FORBIDDEN,
    PASSWORD_NEEDED,
    RATE_LIMITED,
    REQUEST_TIMEOUT,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNSUPPORTED_MEDIA,
    Refusal,
    Refused,
)
from parley.gateway.services import ApiServices
from parley.model import AnsweredRequest, Scope, Session
from parley.wire.limits import ANSWER_SECONDS_MAX, BODY_BYTES_MAX
from parley.wire.request_body import RequestBody

BodyT = TypeVar("BodyT", bound=RequestBody)

REQUEST_SECONDS_MAX = 4.5
BODY_SECONDS_MAX = 30.0
UNASKED_BODY_SECONDS_MAX = 2.0
"""A body that nobody asked for is waited for within the time to answer, so that it is not taken for a store
that is slow."""
HASH_SECONDS_MAX = 30.0
"""Passwords are hashed in turn, and that takes its time."""
assert UNASKED_BODY_SECONDS_MAX < REQUEST_SECONDS_MAX < ANSWER_SECONDS_MAX

ROWS_PER_COST = 100
"""A page of so many rows costs as much as an ordinary request."""

REQUEST_ID = web.RequestKey("request_id", str)
IDEMPOTENCY_HEADER = "Idempotency-Key"
MEDIA_TYPE = "application/json"
NO_BODY = RequestBody | None
BEARER = "bearer "
REASON_CHARS_MAX = 500
PASSWORD_SECONDS_MAX = 15 * 60
"""So recent must a password be for what cannot be undone."""
LOOKING = frozenset(("GET", "HEAD"))
EXTERNAL = "ext:"
"""Before the id of a person in another system, wherever the id of a person is asked for."""
PERSON_FIELDS = frozenset(("user_id", "owner_id", "sender_id"))
PEOPLE_FIELDS = frozenset(("user_ids", "member_ids", "mentions"))
PEOPLE_PARAMETERS = ("ids", "user_ids")
FROM_A_PAGE = frozenset(("Origin", "Sec-Fetch-Site"))
IS_APART = web.AppKey("is_apart", bool)
"""Of the application that serves the console's own listener."""
CONSOLE_ALONE = FORBIDDEN.because("from a page only the console may do this: sign in there")
NO_OPERATOR = FORBIDDEN.because("this needs an operator's token")
READ_ONLY = FORBIDDEN.because("this console may only look")
FLAGS = {"true": True, "false": False}
PARAMETERS_SHOWN = 10
PARAMETER_CHARS_SHOWN = 64
FORWARDING_HEADERS = frozenset({"forwarded", "via", "x-real-ip"})
FORWARDING_PREFIX = "x-forwarded-"


class Call:
    """A request with its session, ready for a handler, and the time that is left to answer it."""

    __slots__ = (
        "_answer_by", "_people", "_raw", "_seconds_max", "access", "headers", "record", "request", "services",
    )  # fmt: skip

    def __init__(self, request: web.Request, services: ApiServices, seconds_max: float) -> None:
        self.request = request
        self.services = services
        self.access: Access | None = None
        self.headers: dict[str, str] = {}
        """Of the answer, beside those of every answer."""
        self.record: AnsweredRequest | None = None
        """Of a request with an `Idempotency-Key` that is carried out now."""
        self._people: dict[str, str] = {}
        """Who is named otherwise than by their id, in the path and the query."""
        self._raw: bytes | None = None
        self._seconds_max = seconds_max
        self._answer_by = _now() + seconds_max

    @property
    def seconds_left(self) -> float:
        return self._answer_by - _now()

    @property
    def session(self) -> Session | None:
        return self.access.session if self.access is not None else None

    @property
    def me(self) -> Session:
        assert self.session is not None, "the route asks for a token"
        return self.session

    @property
    def user_id(self) -> str:
        return self.me.user_id

    @property
    def acting(self) -> OperatorCall:
        """Who acts, with which token, by which request: for the audit log."""
        me = self.me
        return OperatorCall(me.user_id, self.request[REQUEST_ID], me.session_id, me.device_name)

    def path(self, name: str) -> str:
        given = self.request.match_info[name]
        return self._people.get(given, given)

    @property
    def host(self) -> str:
        """The name of this server in the request, without a port."""
        return self.request.url.host or ""

    @property
    def has_console(self) -> bool:
        return has_console(self.request, self.services.config)

    def check_recent_password(self) -> None:
        """Refused if a page of the console asks, and the person proved long ago who they are."""
        access = self.access
        if access is None or access.page is None:
            return
        age_ms = self.services.clock() - access.password_at_ms
        if age_ms > PASSWORD_SECONDS_MAX * MS_PER_SECOND:
            raise Refused(PASSWORD_NEEDED)

    def text(self, name: str, default: str = "") -> str:
        given = self.request.query.get(name, default)
        return self._people.get(given, given) if name in PERSON_FIELDS else given

    def number(self, name: str, default: int) -> int:
        return check_sequence(self.text(name), name, default)

    def listed(self, name: str) -> list[str]:
        """What is separated by commas, or given by a parameter that is repeated."""
        listed = [one for one in ",".join(self.request.query.getall(name, [])).split(",") if one]
        return [self._people.get(one, one) for one in listed]

    async def know_people(self, in_path: bool) -> None:
        """Look up who is named by `ext:{external_id}` in the query, and in the path unless it means that."""
        query = self.request.query
        named = [self.request.match_info.get(name, "") for name in PERSON_FIELDS] if in_path else []
        named += [query.get(name, "") for name in PERSON_FIELDS]
        for name in PEOPLE_PARAMETERS:
            named += ",".join(query.getall(name, [])).split(",")
        for one in {one for one in named if one.startswith(EXTERNAL)}:
            self._people[one] = await self._known(one)

    async def _known(self, given: str) -> str:
        """The id of a person. One that nobody has stays as it is: there is no such user."""
        if not given.startswith(EXTERNAL):
            return given
        user = await self.services.external_people.find(given.removeprefix(EXTERNAL))
        return user.user_id if user is not None else given

    def flag(self, name: str) -> bool:
        """Whether a parameter says so; refused if it says neither."""
        text = self.text(name, "false")
        if text not in FLAGS:
            raise Refused(BAD_REQUEST.because(f"{name} must be true or false"))
        return FLAGS[text]

    def limit(self, default: int, most: int) -> int:
        """A limit that is too high is lowered, one that is too low is refused."""
        limit = self.number("limit", default)
        if limit < 1:
            raise Refused(BAD_REQUEST.because("limit must be at least 1"))
        limit = min(limit, most)
        self.charge(limit // ROWS_PER_COST)
        return limit

    @property
    def idempotency_key(self) -> str:
        """Empty without one."""
        key = check_key(self.request.headers.getall(IDEMPOTENCY_HEADER, []))
        if isinstance(key, Refusal):
            raise Refused(key)
        return key

    @property
    def is_limited(self) -> bool:
        return is_limited(self.request, self.services)

    def charge(self, cost: int) -> None:
        """Take what the request costs from the person's budget, or from the address's without a session."""
        if not cost or not self.is_limited:
            return
        rates = self.services.rates
        if self.session is not None:
            check_rate(rates.charge(self.session.user_id, cost))
        else:
            check_rate(rates.charge_address(address_of(self.request, self.services), cost))

    async def body(self, kind: type[BodyT]) -> BodyT:
        """The JSON body as a value of this kind."""
        if self.request.content_type != MEDIA_TYPE:
            raise Refused(UNSUPPORTED_MEDIA)
        decoded: BodyT = _decoded(await self.raw_body(), kind)
        for name in PERSON_FIELDS.intersection(decoded.__struct_fields__):
            setattr(decoded, name, await self._known(getattr(decoded, name)))
        for name in PEOPLE_FIELDS.intersection(decoded.__struct_fields__):
            setattr(decoded, name, [await self._known(one) for one in getattr(decoded, name)])
        return decoded

    async def check_no_body(self) -> None:
        """Refuse a JSON body with fields, for an operation that takes none."""
        if self.request.can_read_body and self.request.content_type == MEDIA_TYPE:
            self._raw = await self._read(min(UNASKED_BODY_SECONDS_MAX, BODY_SECONDS_MAX))
            _decoded(self._raw, NO_BODY)

    async def raw_body(self) -> bytes:
        """Its bytes, whatever they are."""
        if self._raw is None:
            self._raw = await self._read(BODY_SECONDS_MAX)
        return self._raw

    def new_id(self, prefix: str) -> str:
        """For what a request creates, the same if it is repeated; empty without an `Idempotency-Key`."""
        return id_of(self.record, prefix) if self.record is not None else ""

    async def _read(self, body_seconds_max: float) -> bytes:
        """As fast as the client sends it: the time to answer begins after it.

        Nothing reads on when its time is over: aiohttp itself reads the rest, and two readers are an error.
        """
        self._answer_by = _now() + body_seconds_max + self._seconds_max
        try:
            async with asyncio.timeout(body_seconds_max):
                body = await self.request.read()
        except TimeoutError as error:
            raise Refused(REQUEST_TIMEOUT) from error
        except web.HTTPRequestEntityTooLarge as error:
            raise Refused(TOO_LARGE.because(f"a body has at most {BODY_BYTES_MAX} bytes")) from error
        except web.RequestPayloadError as error:
            raise Refused(BAD_REQUEST.because(str(error))) from error
        self._answer_by = _now() + self._seconds_max
        return body


def _decoded(body: bytes, kind: Any) -> Any:
    """A field that is not known is refused by its name, so what nests in it is not read, however deep."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(BAD_REQUEST.because(str(error)[:REASON_CHARS_MAX])) from error


def check_query(request: web.Request, known: Iterable[str]) -> None:
    """Refused if a query parameter is not known: a slip of the pen must not be left out in silence."""
    if unknown := sorted(set(request.query) - set(known)):
        named = ", ".join(name[:PARAMETER_CHARS_SHOWN] for name in unknown[:PARAMETERS_SHOWN])
        raise Refused(BAD_REQUEST.because(f"unknown query parameter: {named}"))


def _now() -> float:
    return asyncio.get_running_loop().time()


def is_direct(request: web.Request) -> bool:
    """Whether no proxy stands between: only then does a loopback address mean a person at this machine."""
    names = map(str.lower, request.headers)
    return not any(name in FORWARDING_HEADERS or name.startswith(FORWARDING_PREFIX) for name in names)


def is_local(request: web.Request, services: ApiServices) -> bool:
    """Whether a request is trusted for coming from this machine; never on an exposed server."""
    return not services.config.is_exposed and is_direct(request)


def is_limited(request: web.Request, services: ApiServices) -> bool:
    """Whether the rate limits hold for this request."""
    rates = services.config.limits.rates
    return rates == "on" or (rates == "auto" and not is_local(request, services))


def check_rate(wait_ms: int) -> None:
    """Refuse a request that must wait so long."""
    if wait_ms:
        raise Refused(RATE_LIMITED.after(wait_ms))


def address_of(request: web.Request, services: ApiServices) -> str:
    """The address that rates are counted for: the client that known proxies name, else the peer."""
    headers = request.headers
    return client_address(
        request.remote or "",
        headers.getall("X-Forwarded-For", ()),
        headers.getall("Forwarded", ()),
        services.config.trusted_proxies,
    )


async def authenticate(request: web.Request, services: ApiServices) -> Access:
    header = request.headers.get("Authorization", "")
    if header[: len(BEARER)].lower() != BEARER:
        raise Refused(UNAUTHENTICATED)
    return await services.sign_in.authenticate(header[len(BEARER) :].strip())


def has_console(request: web.Request, config: Config) -> bool:
    """Whether the console is served where this request came to."""
    return request.app.get(IS_APART, False) or config.serves_console(request.url.host or "")


async def check_operator(access: Access, request: web.Request, services: ApiServices) -> None:
    """A program needs the scope `admin`, which operators alone hand out; a person must be an operator.

    From a page only the console may operate: what runs in another page, wherever it comes from, may not.
    """
    if access.scopes is not None:
        _check(access.refusal(Scope.ADMIN))
        return
    if not access.may_operate or (access.page is None and _is_from_exposed_page(request, services)):
        raise Refused(CONSOLE_ALONE if access.page is not None or access.may_operate else NO_OPERATOR)
    is_changing = request.method not in LOOKING
    if access.page and is_changing and (access.is_read_only or services.config.console.read_only):
        raise Refused(READ_ONLY)
    if not (await services.accounts.user(access.session.user_id)).is_operator:
        raise Refused(NO_OPERATOR)


def _is_from_exposed_page(request: web.Request, services: ApiServices) -> bool:
    """Whether a script in a browser asks, on a server that others reach. Browsers say so; programs do not."""
    return services.config.is_exposed and not FROM_A_PAGE.isdisjoint(request.headers)


def check_scope(access: Access, scope: Scope, chat_id: str | None) -> None:
    """Refused unless the token is enough for this, about this chat."""
    _check(access.refusal(scope, chat_id))


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal)
