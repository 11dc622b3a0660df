"""Sessions of pages in a browser: a cookie that no script reads, and tokens for ten minutes.

The cookie is good for three routes alone, and each use exchanges it for the next one. The next one is made
of the one before and of chance that the store keeps, so that two tabs, or a page that asks again because it
never had the answer, get the same one. A browser may lose the newest cookie in a crash: the one before the
last is good until the last was used. Whoever shows an older one has a copy, and the session ends for both.

    sign in → cookie 1    refresh with 1 → 2    with 1 again → 2    with 2 → 3    with 1 → the session ends

The store has hashes alone: of the cookies, and of each token until it runs out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import structlog
from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.accounts.access import Access
from parley.accounts.accounts import AccountManager
from parley.clock import MS_PER_DAY, MS_PER_HOUR, MS_PER_SECOND, Clock
from parley.core.jwt_claims import EXPIRED
from parley.errors import FORBIDDEN, UNAUTHENTICATED, Refused, StoreUnavailable
from parley.model import PageKind, PageSession, PageToken, Session, User
from parley.records.book import Book
from parley.wire.limits import SESSION_DAYS

PAGE_TOKEN_PREFIX = "prl_web_"
SECRET_BYTES = 32
FAMILY_BYTES = 16
PAGE_TOKEN_SECONDS = 600
PAGE_TOKENS_MAX = 16
"""Tokens of one session that are good at the same time: each tab asks for its own."""
CONSOLE_SECONDS = 8 * 60 * 60
CONSOLE_IDLE_SECONDS = 30 * 60
ATTEMPTS_MAX = 10
ROW_PERSON = b"page session"

NOT_FOR_YOU = FORBIDDEN.because("the console is for operators")
SESSION_OVER = UNAUTHENTICATED.because("this session is over; sign in again")
REUSED = UNAUTHENTICATED.because("this session was used from elsewhere, and is over; sign in again")
WRONG_KEY = UNAUTHENTICATED.because("this is not the page that signed in to the console")

log = structlog.get_logger("parley.pages")


class PageGrant(Struct, frozen=True, kw_only=True):
    """What a page gets: the cookie for its browser, and a token for its memory. `key`: of a console, once."""

    session: Session
    kept: PageSession
    cookie: str
    token: str
    token_ends_ms: int
    key: str = ""


class PageSessions:
    def __init__(
        self,
        manager: AccountManager,
        kept: Book[PageSession],
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._manager = manager
        self._kept = kept
        self._clock = clock
        self._random_bytes = random_bytes

    async def sign_in(
        self,
        kind: PageKind,
        username: str,
        password: str,
        device_id: str,
        device_name: str,
        address: str = "",
        *,
        is_read_only: bool = False,
    ) -> PageGrant:
        """A new session of a page. The console's is for operators, and ends after eight hours at most."""
        is_console = kind is PageKind.CONSOLE

        def admit(user: User) -> None:
            if is_console and not user.is_operator:
                raise Refused(NOT_FOR_YOU)

        session = await self._manager.log_in_with(
            username,
            password,
            device_id,
            device_name,
            row_of,
            address,
            expires_in_seconds=CONSOLE_SECONDS if is_console else None,
            admit=admit,
        )
        now_ms = self._clock()
        family, secret = self._random_text(FAMILY_BYTES), self._random_text(SECRET_BYTES)
        key = self._random_text(SECRET_BYTES) if is_console else ""
        kept = PageSession(
            session_id=session.session_id,
            user_id=session.user_id,
            kind=kind,
            family=_hash(family),
            current=_hash(secret),
            key=_hash(key) if key else "",
            password_at_ms=now_ms,
            active_at_ms=now_ms,
            expires_at_ms=session.expires_at_ms,
            is_read_only=is_read_only,
        )
        kept, token, ends_ms = self._with_token(kept, now_ms)
        await self._kept.add(kept)
        cookie = f"{session.session_id}.{family}.{secret}"
        return PageGrant(
            session=session, kept=kept, cookie=cookie, token=token, token_ends_ms=ends_ms, key=key
        )

    async def refresh(
        self,
        kind: PageKind,
        cookie: str,
        *,
        key: str = "",
        is_active: bool = True,
        password: str = "",
        address: str = "",
    ) -> PageGrant:
        """The next cookie, and a token. Refused if the session is over; an old cookie ends it.

        `key`: what the page of a console keeps. `is_active`: whether a person was at the page since the last
        time. `password`: proves once more who that is.
        """
        session_id, family, secret = _parts(cookie)
        for _ in range(ATTEMPTS_MAX):
            before = await self._get(kind, session_id, family)
            now_ms = self._clock()
            if before is None or ends_at_ms(before) <= now_ms:
                raise Refused(SESSION_OVER)
            session = await self._manager.authenticate_row(row_of(session_id))
            if before.key and not _is(before.key, key):
                raise Refused(WRONG_KEY)
            kept, next_secret = await self._exchange(before, secret)
            if password:
                await self._manager.prove(before.user_id, password, address)
                kept = replace(kept, password_at_ms=now_ms)
            if is_active:
                kept = replace(kept, active_at_ms=now_ms)
            if kind is PageKind.CHAT:
                kept = replace(kept, expires_at_ms=now_ms + SESSION_DAYS * MS_PER_DAY)
            kept, token, token_ends_ms = self._with_token(kept, now_ms)
            if await self._kept.swap(before, kept):
                return PageGrant(
                    session=session,
                    kept=kept,
                    cookie=f"{session_id}.{family}.{next_secret}",
                    token=token,
                    token_ends_ms=token_ends_ms,
                )
        raise StoreUnavailable("this session is refreshed by too many at once")

    async def _exchange(self, kept: PageSession, secret: str) -> tuple[PageSession, str]:
        """What is kept once this cookie was used, and the next one."""
        if _is(kept.current, secret):
            salt = self._random_text(SECRET_BYTES)
            new = _next(secret, salt)
            return replace(kept, current=_hash(new), before=kept.current, salt=salt), new
        if kept.before and _is(kept.before, secret):
            return kept, _next(secret, kept.salt)
        log.warning("a cookie was used twice, its session ends", session_id=kept.session_id)
        await self._manager.end_sessions(kept.user_id, [kept.session_id])
        await self._kept.remove(kept.session_id)
        raise Refused(REUSED)

    async def end(self, kind: PageKind, cookie: str) -> None:
        """Sign out: the session is over, its sockets close. Any of its cookies will do; none is no error."""
        session_id, family, _ = _parts(cookie)
        kept = await self._get(kind, session_id, family)
        if kept is not None:
            await self._manager.sign_out(kept.user_id, session_id)
            await self._kept.remove(session_id)

    async def authenticate(self, token: str, *, is_recheck: bool = False) -> Access:
        """What a token of a page allows. Its end is known to the socket that was opened with it, so a recheck
        asks for the session alone."""
        session_id, _, secret = token.removeprefix(PAGE_TOKEN_PREFIX).partition(".")
        session = await self._manager.authenticate_row(row_of(session_id), is_recheck=is_recheck)
        if is_recheck:
            return Access(session=session, may_operate=False)
        kept = await self._kept.get(session_id)
        found = next((one for one in kept.tokens if _is(one.hash, secret)), None) if kept else None
        if kept is None or found is None:
            raise Refused(UNAUTHENTICATED)
        if min(found.ends_at_ms, ends_at_ms(kept)) <= self._clock():
            raise Refused(EXPIRED)
        return Access(
            session=session,
            may_operate=kept.kind is PageKind.CONSOLE,
            page=kept.kind,
            password_at_ms=kept.password_at_ms,
            is_read_only=kept.is_read_only,
            ends_at_ms=found.ends_at_ms,
        )

    async def _get(self, kind: PageKind, session_id: str, family: str) -> PageSession | None:
        """The session that a cookie belongs to; None for a cookie that was never made."""
        kept = await self._kept.get(session_id) if session_id else None
        if kept is None or kept.kind is not kind or not _is(kept.family, family):
            return None
        return kept

    def _with_token(self, kept: PageSession, now_ms: int) -> tuple[PageSession, str, int]:
        """A new token of a session, what is kept then, and when the token ends."""
        secret = self._random_text(SECRET_BYTES)
        ends_ms = min(now_ms + PAGE_TOKEN_SECONDS * MS_PER_SECOND, ends_at_ms(kept))
        tokens = [one for one in kept.tokens if one.ends_at_ms > now_ms][-PAGE_TOKENS_MAX + 1 :]
        kept = replace(kept, tokens=(*tokens, PageToken(_hash(secret), ends_ms)))
        return kept, f"{PAGE_TOKEN_PREFIX}{kept.session_id}.{secret}", ends_ms

    def _random_text(self, length: int) -> str:
        return self._random_bytes(length).hex()


def ends_at_ms(kept: PageSession) -> int:
    """When a session is over if nothing happens: a console's also while nobody is at the page."""
    if kept.kind is PageKind.CONSOLE:
        return min(kept.expires_at_ms, kept.active_at_ms + CONSOLE_IDLE_SECONDS * MS_PER_SECOND)
    return kept.expires_at_ms


def row_of(session_id: str) -> bytes:
    """Under what the session's row is stored in place of a token's hash: no token has this one."""
    return hashlib.blake2b(session_id.encode(errors="replace"), digest_size=32, person=ROW_PERSON).digest()


def _parts(cookie: str) -> tuple[str, str, str]:
    session_id, _, rest = cookie.partition(".")
    family, _, secret = rest.partition(".")
    return session_id if session_id.startswith(ids.SESSION) else "", family, secret


def _next(secret: str, salt: str) -> str:
    return hmac.new(salt.encode(), secret.encode(errors="replace"), hashlib.sha256).hexdigest()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _is(kept: str, secret: str) -> bool:
    return hmac.compare_digest(kept, _hash(secret))


assert CONSOLE_IDLE_SECONDS > PAGE_TOKEN_SECONDS, "a page that is used refreshes in time"
assert CONSOLE_SECONDS * MS_PER_SECOND == 8 * MS_PER_HOUR
