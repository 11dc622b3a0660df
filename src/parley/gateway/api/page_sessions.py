"""Sessions of pages in a browser: the only routes that read a cookie."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from msgspec import UNSET

from parley.accounts.page_sessions import PageGrant, ends_at_ms
from parley.clock import MS_PER_SECOND, iso
from parley.config import is_loopback
from parley.errors import (
    ACCOUNT_DISABLED,
    BAD_REQUEST,
    BUSY,
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHENTICATED,
    UNSUPPORTED_MEDIA,
    WRONG_PASSWORD,
    Refused,
)
from parley.gateway.api.accounts import limited_guesses
from parley.gateway.calls import MEDIA_TYPE, Call, address_of
from parley.gateway.routes import Answer, Parameter, Routes
from parley.model import PageKind
from parley.wire.page_session_bodies import NewPageSession, PageName, PageRefresh, PageSessionGranted

PATH = "/v1/web/session"
COOKIES = {PageKind.CHAT: "parley", PageKind.CONSOLE: "parley-console"}
HOST_PREFIX = "__Host-"
"""A browser keeps such a cookie for this name alone, and sends it by TLS alone, or to its own machine."""
PAGE_HEADER = "Parley-Page"
PAGE_PARAMETER = Parameter("page", PageName, "Whose session it is.", default="chat")
HEADER_PARAMETER = Parameter(
    PAGE_HEADER, str, "1: a page of this server asks. Pages of others cannot say so.", "1", is_required=True
)
NOT_A_PAGE = FORBIDDEN.because("only a page of this server may ask for this")
NO_CONSOLE = NOT_FOUND.because("the console is not served at this address")
NO_PAGE = BAD_REQUEST.because("page must be chat or console")
SIGNED_OUT = UNAUTHENTICATED.because("this browser is not signed in")
REFUSALS = (NOT_A_PAGE, NO_CONSOLE, UNSUPPORTED_MEDIA)

routes = Routes("Accounts")


@routes.route(
    "POST",
    PATH,
    "Sign in on a page",
    {201: PageSessionGranted},
    body=NewPageSession,
    query=(PAGE_PARAMETER,),
    headers=(HEADER_PARAMETER,),
    refusals=(*REFUSALS, WRONG_PASSWORD, ACCOUNT_DISABLED, BUSY),
    needs="nothing",
    hashes=True,
)
async def create_page_session(call: Call) -> Answer:
    """For pages of this server. The session is a cookie that no script can read; the answer has a token for
    ten minutes, for the page's memory. The console's session is for operators, ends after 8 hours or half an
    hour without a person, and is the only one that may operate from a page.
    """
    kind = _page(call)
    asked = await call.body(NewPageSession)
    accounts, address = call.services.accounts, address_of(call.request, call.services)
    is_known = partial(accounts.is_known_address, asked.username, address)
    async with limited_guesses(call, lambda: call.services.rates.login(asked.username, address, is_known)):
        grant = await call.services.pages.sign_in(
            kind,
            asked.username,
            asked.password,
            asked.device_id,
            asked.device_name,
            address,
            is_read_only=asked.read_only,
        )
    return 201, _granted(call, kind, grant)


@routes.route(
    "POST",
    f"{PATH}/refresh",
    "The next token of a page",
    {200: PageSessionGranted},
    body=PageRefresh,
    query=(PAGE_PARAMETER,),
    headers=(HEADER_PARAMETER,),
    refusals=(*REFUSALS, SIGNED_OUT, BUSY),
    needs="nothing",
    hashes=True,
)
async def refresh_page_session(call: Call) -> Answer:
    """Each use changes the cookie. The one before the last is good until the last was used, because a browser
    that crashes may have lost it; an older one has been copied, and ends the session.
    """
    kind = _page(call)
    asked = await call.body(PageRefresh)
    cookie = _cookie(call, kind)
    if not cookie:
        raise Refused(SIGNED_OUT)
    refresh = partial(call.services.pages.refresh, kind, cookie, key=asked.key, is_active=asked.active)
    if not asked.password:
        return 200, _granted(call, kind, await refresh())
    address, guessed = address_of(call.request, call.services), cookie.partition(".")[0]
    async with limited_guesses(call, lambda: call.services.rates.password_change(guessed)):
        grant = await refresh(password=asked.password, address=address)
    return 200, _granted(call, kind, grant)


@routes.route(
    "DELETE",
    PATH,
    "Sign out on a page",
    {204: None},
    query=(PAGE_PARAMETER,),
    headers=(HEADER_PARAMETER,),
    refusals=REFUSALS,
    needs="nothing",
)
async def end_page_session(call: Call) -> Answer:
    """The session of this browser is over; its sockets close at once. Without one nothing happens."""
    kind = _page(call)
    await call.services.pages.end(kind, _cookie(call, kind))
    _set_cookie(call, kind, "", 0)
    return 204, None


def _page(call: Call) -> PageKind:
    """Which page asks; Refused unless it is one of this server's.

    A page of another site can neither send this header nor this type of body without being asked first, and
    names itself in `Origin`.
    """
    headers = call.request.headers
    if call.request.content_type != MEDIA_TYPE:
        raise Refused(UNSUPPORTED_MEDIA)
    origin = _origin(call)
    is_own = origin is not None and origin[1] == call.request.host and headers.get(PAGE_HEADER) == "1"
    if not is_own or headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise Refused(NOT_A_PAGE)
    try:
        kind = PageKind(call.text("page", PageKind.CHAT.value))
    except ValueError as error:
        raise Refused(NO_PAGE) from error
    if kind is PageKind.CONSOLE and not call.has_console:
        raise Refused(NO_CONSOLE)
    return kind


def _origin(call: Call) -> tuple[str, str] | None:
    """The scheme and the address of the page; None if they do not fit the connection."""
    try:
        found = urlsplit(call.request.headers.get("Origin", ""))
    except ValueError:
        return None
    if found.scheme not in ("http", "https") or (call.request.secure and found.scheme != "https"):
        return None
    return found.scheme, found.netloc


def _cookie_name(call: Call, kind: PageKind) -> str:
    """With a prefix where browsers keep what has it: by TLS, and on this machine."""
    origin = _origin(call)
    is_plain = origin is not None and origin[0] == "http" and not is_loopback(call.host)
    return COOKIES[kind] if is_plain else HOST_PREFIX + COOKIES[kind]


def _cookie(call: Call, kind: PageKind) -> str:
    return call.request.cookies.get(_cookie_name(call, kind), "")


def _set_cookie(call: Call, kind: PageKind, value: str, seconds: int) -> None:
    name = _cookie_name(call, kind)
    secure = "; Secure" if name.startswith(HOST_PREFIX) else ""
    call.headers["Set-Cookie"] = (
        f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    )


def _granted(call: Call, kind: PageKind, grant: PageGrant) -> PageSessionGranted:
    now_ms = call.services.clock()
    _set_cookie(call, kind, grant.cookie, (grant.kept.expires_at_ms - now_ms) // MS_PER_SECOND)
    return PageSessionGranted(
        access_token=grant.token,
        expires_in=(grant.token_ends_ms - now_ms) // MS_PER_SECOND,
        user_id=grant.session.user_id,
        session_id=grant.session.session_id,
        device_id=grant.session.device_id,
        expires_at=iso(ends_at_ms(grant.kept)),
        read_only=grant.kept.is_read_only
        or (kind is PageKind.CONSOLE and call.services.config.console.read_only),
        key=grant.key or UNSET,
    )
