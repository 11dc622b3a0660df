"""Operators whom the store has lately confirmed: they see the overview while the store does not answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import sha256

from aiohttp import web

from parley.clock import Clock
from parley.errors import Refused, StoreError

CONFIRMED_MS_MAX = 15 * 60 * 1000
"""So long after the store's last answer a token counts without it. It is a bound of a revocation, too."""
TOKENS_MAX = 1_000
STORE_SECONDS_MAX = 1.5
"""How long such a request waits for the store, before it is answered without it."""

assert 2 * STORE_SECONDS_MAX < 4.0, "an answer without the store is in time"


class KnownOperators:
    """Digests of tokens and when the store confirmed them. Requests without one are refused as ever."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._confirmed: OrderedDict[bytes, int] = OrderedDict()

    async def check(self, request: web.Request, ask_store: Callable[[], Awaitable[None]]) -> None:
        """As the store says. While it does not answer, as it said not long ago."""
        key = sha256(request.headers.get("Authorization", "").encode("utf-8", "replace")).digest()
        try:
            await ask_store()
        except Refused:
            self._confirmed.pop(key, None)
            raise
        except (StoreError, TimeoutError):
            if self._clock() - self._confirmed.get(key, -CONFIRMED_MS_MAX) >= CONFIRMED_MS_MAX:
                raise
        else:
            self._confirmed.pop(key, None)
            self._confirmed[key] = self._clock()
            if len(self._confirmed) > TOKENS_MAX:
                self._confirmed.popitem(last=False)
