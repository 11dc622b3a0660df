"""The token of a client: one that was given, or a function that gets them from the application's login."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from parley.client.errors import CannotConnect
from parley.clock import MS_PER_SECOND, Clock

TokenFunction = Callable[[], Awaitable[str]]
"""Returns a token that is good for some time. Called before each connection, and before a token expires."""

RENEW_SECONDS_AHEAD = 60
"""A token is renewed so long before it expires, or after half of its time if that is shorter."""
RETRY_SECONDS = 5.0


class _Claims(Struct):
    exp: float


class TokenSource:
    """`is_renewable`: whether there is a function to ask."""

    def __init__(self, token: str | TokenFunction, clock: Clock) -> None:
        self._function = None if isinstance(token, str) else token
        self._clock = clock
        self.current = token if isinstance(token, str) else ""

    @property
    def is_renewable(self) -> bool:
        return self._function is not None

    async def fresh(self) -> str:
        """A token to use now. CannotConnect if the function fails: it may work later."""
        if self._function is not None:
            try:
                self.current = await self._function()
            except Exception as error:
                raise CannotConnect(f"the application's token function failed: {error!r}") from error
        return self.current

    def renewal_seconds(self) -> float | None:
        """How long to wait before the next token is asked for; None if there is none, or no end is known."""
        ends_at_ms = expiry_ms(self.current) if self.is_renewable else None
        if ends_at_ms is None:
            return None
        left = (ends_at_ms - self._clock()) / MS_PER_SECOND
        return max(left - RENEW_SECONDS_AHEAD, left / 2, 0.0)


def expiry_ms(token: str) -> int | None:
    """When a JSON Web Token expires, by its own words; None if it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return int(msgspec.json.decode(payload, type=_Claims).exp * MS_PER_SECOND)
    except (binascii.Error, msgspec.DecodeError, ValueError, OverflowError):
        return None
