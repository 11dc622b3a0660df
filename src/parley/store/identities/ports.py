"""Ports of identities that are no password: API tokens, and people of other systems. See docs/accounts.md."""

from __future__ import annotations

from typing import Protocol

from parley.model import ApiToken


class ApiTokens(Protocol):
    """The tokens of programs. There are few of them. Read strongly."""

    async def add(self, token: ApiToken) -> None:
        """Durable before it returns."""
        ...

    async def get(self, token_id: str) -> ApiToken | None:
        """The token with this id, whether it has expired or not."""
        ...

    async def all(self) -> list[ApiToken]:
        """Every token, in the order of their ids."""
        ...

    async def note_used(self, token_id: str, now_ms: int) -> None:
        """It was used then, durably. Never moves back, and brings no removed token back."""
        ...

    async def remove(self, token_id: str) -> bool:
        """Durable before it returns: nobody reads it again. False if there is none."""
        ...


class ExternalIds(Protocol):
    """Whose account belongs to somebody of another system. Written once, and never changed. Read strongly."""

    async def claim(self, key: str, user_id: str) -> str:
        """Durable before it returns. The user id that this key belongs to: the first that was ever given."""
        ...

    async def find(self, key: str) -> str | None:
        """The user id that this key belongs to. The account itself may not have been added."""
        ...


class IdentityStore(Protocol):
    """What an engine has for these."""

    @property
    def api_tokens(self) -> ApiTokens:
        """See `ApiTokens`."""
        ...

    @property
    def external_ids(self) -> ExternalIds:
        """See `ExternalIds`."""
        ...
