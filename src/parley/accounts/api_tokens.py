"""Tokens for programs: each acts for one account, within its scopes, until it is revoked or expires."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import structlog

from parley import ids
from parley.accounts.access import HTTP_DEVICE, Access
from parley.accounts.accounts import TOKEN_BYTES, hash_token
from parley.audit import COMMAND_LINE
from parley.bus.ports import Bus
from parley.clock import MS_PER_DAY, Clock
from parley.errors import (
    ACCOUNT_DISABLED,
    BAD_REQUEST,
    NO_SUCH_USER,
    NOT_A_MEMBER,
    NOT_FOUND,
    UNAUTHENTICATED,
    Refused,
    StoreError,
)
from parley.model import AccountState, ApiToken, Scope, Session, User
from parley.records.accounts import Accounts
from parley.records.tokens import ApiTokens
from parley.store.ports import Directory
from parley.wire.limits import API_TOKEN_NAME_CHARS_MAX, API_TOKENS_MAX

API_TOKEN_PREFIX = "prl_api_"
ID_CHARS = 26
USED_EVERY_MS = 60 * 1_000
"""How exact "last used" is."""
FAR_FUTURE_MS = 253_402_300_799_000
"""The end of the year 9999: what a token without an expiry is shown to have nowhere, and sessions need."""
SCOPES_DEFAULT = (Scope.SEND, Scope.READ)
EXPIRY_DAYS_MAX = 3_650

NO_SCOPES = BAD_REQUEST.because("scopes are one or more of send, read, admin")
ADMIN_OF_ONE_CHAT = BAD_REQUEST.because("a token that is bound to a chat cannot have the scope admin")
BAD_NAME = BAD_REQUEST.because(f"a name has 1 to {API_TOKEN_NAME_CHARS_MAX} printable characters")
BAD_EXPIRY = BAD_REQUEST.because(f"a token expires in 1 to {EXPIRY_DAYS_MAX} days, or never")
TOO_MANY = BAD_REQUEST.because(f"there are {API_TOKENS_MAX} API tokens already: revoke some")
MAKER_GONE = ACCOUNT_DISABLED.because("who made this token is disabled or deleted")
NO_SUCH_TOKEN = NOT_FOUND.because("there is no such token")

log = structlog.get_logger("parley.tokens")


class ApiTokenService:
    def __init__(
        self,
        tokens: ApiTokens,
        accounts: Accounts,
        directory: Directory,
        bus: Bus,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._directory = directory
        self._bus = bus
        self._clock = clock
        self._random_bytes = random_bytes

    async def make(
        self,
        user_id: str,
        name: str,
        scopes: Sequence[Scope] = SCOPES_DEFAULT,
        chat_id: str = "",
        expires_in_days: int | None = None,
        makers: Sequence[str] = (),
    ) -> tuple[str, ApiToken]:
        """The token, shown this once, and what is kept of it. It ends with any of its makers.

        The last of them is who began: the others acted by tokens that were made before.
        """
        await self._check(user_id, name, scopes, chat_id, expires_in_days)
        token = API_TOKEN_PREFIX + self._random_bytes(TOKEN_BYTES).hex()
        now_ms = self._clock()
        kept = ApiToken(
            token_id=token_id_of(token),
            token_hash=hash_token(token),
            user_id=user_id,
            name=name,
            scopes=tuple(scope for scope in Scope if scope in scopes),
            created_at_ms=now_ms,
            chat_id=chat_id,
            expires_at_ms=now_ms + expires_in_days * MS_PER_DAY if expires_in_days is not None else 0,
            makers=_each_once(makers),
        )
        await self._tokens.add(kept)
        return token, kept

    async def _check(
        self, user_id: str, name: str, scopes: Sequence[Scope], chat_id: str, days: int | None
    ) -> None:
        if not scopes:
            raise Refused(NO_SCOPES)
        if chat_id and Scope.ADMIN in scopes:
            raise Refused(ADMIN_OF_ONE_CHAT)
        if not (1 <= len(name) <= API_TOKEN_NAME_CHARS_MAX and name.isprintable()):
            raise Refused(BAD_NAME)
        if days is not None and not 1 <= days <= EXPIRY_DAYS_MAX:
            raise Refused(BAD_EXPIRY)
        user = await self._accounts.user(user_id)
        if user is None or user.state is AccountState.DELETED:
            raise Refused(NO_SUCH_USER)
        if chat_id and await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER.because("the account of the token is not a member of this chat"))
        if len(await self._tokens.all()) >= API_TOKENS_MAX:
            raise Refused(TOO_MANY)

    async def authenticate(self, token: str) -> Access:
        """What a token allows; Refused when there is no such token, or it or its account cannot be used."""
        kept = await self._tokens.get(token_id_of(token))
        now_ms = self._clock()
        if kept is None or kept.token_hash != hash_token(token):
            raise Refused(UNAUTHENTICATED)
        scopes = await self._usable_scopes(kept, now_ms)
        if now_ms - kept.last_used_at_ms >= USED_EVERY_MS:
            await self._note_used(kept.token_id, now_ms)
        return _access(kept, scopes)

    async def _usable_scopes(self, kept: ApiToken, now_ms: int) -> frozenset[Scope]:
        """What a token may be used for now: to operate only while the person who began it is an operator."""
        if kept.expires_at_ms and kept.expires_at_ms <= now_ms:
            raise Refused(UNAUTHENTICATED)
        if await self._active(kept.user_id) is None:
            raise Refused(ACCOUNT_DISABLED)
        makers = {maker_id: await self._active(maker_id) for maker_id in people_among(kept.makers)}
        if None in makers.values():
            raise Refused(MAKER_GONE)
        began = makers.get(kept.makers[-1]) if kept.makers else None
        is_of_operator = began is None or began.is_operator
        return frozenset(kept.scopes) - (frozenset() if is_of_operator else {Scope.ADMIN})

    async def is_usable(self, token_id: str) -> bool:
        """Whether who has this token could use it now."""
        kept = await self._tokens.get(token_id)
        if kept is None:
            return False
        try:
            await self._usable_scopes(kept, self._clock())
        except Refused:
            return False
        return True

    async def _active(self, user_id: str) -> User | None:
        user = await self._accounts.user(user_id)
        return user if user is not None and user.state is AccountState.ACTIVE else None

    async def _note_used(self, token_id: str, now_ms: int) -> None:
        try:
            await self._tokens.note_used(token_id, now_ms)
        except StoreError as error:  # the request itself may still work
            log.warning("the use of a token was not noted", token_id=token_id, error=str(error))

    async def all(self) -> list[ApiToken]:
        """The oldest first."""
        return sorted(await self._tokens.all(), key=lambda token: token.created_at_ms)

    async def revoke(self, token_id: str) -> None:
        """It is refused from now on, and its sockets close on every node."""
        if not await self._tokens.remove(token_id):
            raise Refused(NO_SUCH_TOKEN)
        self._bus.publish_sessions_ended([token_id])

    async def close_sockets(self, maker_id: str) -> None:
        """An account cannot be used any more: the sockets of the tokens that it made close on every node."""
        made = [token.token_id for token in await self._tokens.all() if maker_id in token.makers]
        if made:
            self._bus.publish_sessions_ended(made)

    async def forget_person(self, user_id: str) -> None:
        """Remove the tokens of an account that is deleted, and those that it made."""
        for token in await self._tokens.all():
            if user_id == token.user_id or user_id in token.makers:
                await self._tokens.remove(token.token_id)


def people_among(makers: Sequence[str]) -> list[str]:
    """Without users of operating systems, whose accounts nobody disables here."""
    return [maker for maker in makers if not maker.startswith(COMMAND_LINE)]


def _each_once(makers: Sequence[str]) -> tuple[str, ...]:
    """Who began stays the last."""
    once = tuple(dict.fromkeys(makers))
    return once if once[-1:] == tuple(makers[-1:]) else (*once, makers[-1])


def token_id_of(token: str) -> str:
    """The id under which a token is kept: known to whoever has the token, and not the other way round."""
    return (
        ids.TOKEN + hashlib.sha256(b"id of " + token.encode("utf-8", "surrogatepass")).hexdigest()[:ID_CHARS]
    )


def _access(token: ApiToken, scopes: frozenset[Scope]) -> Access:
    session = Session(
        session_id=token.token_id,
        user_id=token.user_id,
        device_id=HTTP_DEVICE,
        device_name=token.name,
        created_at_ms=token.created_at_ms,
        last_used_at_ms=token.last_used_at_ms,
        expires_at_ms=token.expires_at_ms or FAR_FUTURE_MS,
    )
    return Access(
        session=session,
        scopes=scopes,
        chat_id=token.chat_id,
        makers=token.makers,
        is_device_bound=False,
        ends_at_ms=token.expires_at_ms or None,
    )
