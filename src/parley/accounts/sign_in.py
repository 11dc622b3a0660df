"""Any token becomes what it allows: of a session, of a page, of a program, or of the operator's own login."""

from __future__ import annotations

from typing import Protocol

from parley import ids
from parley.accounts.access import Access
from parley.accounts.accounts import AccountManager, is_prolonged
from parley.accounts.api_tokens import API_TOKEN_PREFIX, ApiTokenService
from parley.accounts.page_sessions import PAGE_TOKEN_PREFIX, PageSessions


class TokenSignIn(Protocol):
    """Who a token of another issuer is for."""

    async def authenticate(self, token: str, *, is_recheck: bool = False) -> Access:
        """Refused if it is not believed."""
        ...


class SignIn:
    """`jwt`: None if no issuer is trusted."""

    def __init__(
        self,
        accounts: AccountManager,
        api_tokens: ApiTokenService,
        pages: PageSessions,
        jwt: TokenSignIn | None = None,
    ) -> None:
        self._accounts = accounts
        self._pages = pages
        self._api_tokens = api_tokens
        self._jwt = jwt

    async def authenticate(self, token: str, *, is_recheck: bool = False) -> Access:
        """What a token allows; Refused if it cannot be used.

        `is_recheck`: it was authenticated before on this connection.
        """
        if token.startswith(API_TOKEN_PREFIX):
            return await self._api_tokens.authenticate(token)
        if token.startswith(PAGE_TOKEN_PREFIX):
            return await self._pages.authenticate(token, is_recheck=is_recheck)
        if self._jwt is not None and token.count(".") == 2:
            return await self._jwt.authenticate(token, is_recheck=is_recheck)
        session = await self._accounts.authenticate(token, is_recheck=is_recheck)
        return Access(session=session, ends_at_ms=None if is_prolonged(session) else session.expires_at_ms)

    async def has_device(self, user_id: str, device_id: str) -> bool:
        """Whether the person is logged in on a device with this id."""
        return any(one.device_id == device_id for one in await self._accounts.sessions(user_id))

    async def is_valid(self, user_id: str, session_id: str) -> bool:
        """Whether a token with this session could be used now. The time of a token of another issuer is not
        known here.
        """
        if session_id.startswith(ids.TOKEN):
            return await self._api_tokens.is_usable(session_id)
        if session_id.startswith(ids.SESSION):
            return any(one.session_id == session_id for one in await self._accounts.sessions(user_id))
        return True
