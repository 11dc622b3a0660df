"""The published keys of an issuer (JWKS): fetched when needed, once for everybody who waits, and kept.

An unknown key may be new: the set is fetched again, but not more often than every `REFETCH_SECONDS_MIN`, so
nobody makes this server flood the issuer with made-up key ids. While the issuer does not answer, known keys
stay good for `STALE_SECONDS_MAX`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import structlog

from parley.clock import MS_PER_SECOND, Clock
from parley.core.jwt_claims import KEY_TYPES, UNKNOWN_KEY, WRONG_KEY_TYPE, check_key_type
from parley.errors import KEYS_UNAVAILABLE, Refusal, Refused

FRESH_SECONDS = 600
"""A set that is older is fetched again at the next sign-in: so a withdrawn key is forgotten."""
REFETCH_SECONDS_MIN = 30
"""Between two fetches because of an unknown key, or after a failure."""
STALE_SECONDS_MAX = 6 * 60 * 60
KEYS_MAX = 100
"""Keys of a set beyond these are ignored."""
JWKS_BYTES_MAX = 256 * 1024
assert REFETCH_SECONDS_MIN < FRESH_SECONDS < STALE_SECONDS_MAX

Jwk = Mapping[str, Any]
Fetch = Callable[[], Awaitable[bytes]]
"""The bytes of the set; OSError if there are none."""

log = structlog.get_logger("parley.jwks")


class JwksKeys:
    """The keys of one issuer by their ids. `fetch` is called by one caller at a time."""

    def __init__(self, fetch: Fetch, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: list[Jwk] = []
        self._fetched_ms: int | None = None
        self._tried_ms: int | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, kid: str | None, algorithm: str) -> Jwk:
        """The key with this id, for this algorithm. Refused if there is none, or none can be fetched."""
        found = self._find(kid, algorithm)
        is_fresh = self._is_younger(self._fetched_ms, FRESH_SECONDS)
        if (
            (not is_fresh or found is UNKNOWN_KEY)
            and not self._is_younger(self._tried_ms, REFETCH_SECONDS_MIN)
        ) or (self._fetching is not None and found is UNKNOWN_KEY):
            await self._refresh()
            found = self._find(kid, algorithm)
        if not self._is_younger(self._fetched_ms, STALE_SECONDS_MAX):
            raise Refused(KEYS_UNAVAILABLE)
        if isinstance(found, Refusal):
            raise Refused(found)
        return found

    def _find(self, kid: str | None, algorithm: str) -> Jwk | Refusal:
        """A token that names no key means the only one there is for its algorithm."""
        if kid is None:
            suitable = [key for key in self._keys if check_key_type(key, algorithm) is None]
            return suitable[0] if len(suitable) == 1 else UNKNOWN_KEY
        named = [key for key in self._keys if key.get("kid") == kid]
        suitable = [key for key in named if check_key_type(key, algorithm) is None]
        if not suitable:
            return WRONG_KEY_TYPE if named else UNKNOWN_KEY
        return suitable[0]

    def _is_younger(self, at_ms: int | None, seconds: int) -> bool:
        return at_ms is not None and self._clock() - at_ms < seconds * MS_PER_SECOND

    async def _refresh(self) -> None:
        """All who come while a fetch is under way wait for that one. It goes on when one of them gives up."""
        if self._fetching is None:
            self._tried_ms = self._clock()
            self._fetching = asyncio.create_task(self._load())
            self._fetching.add_done_callback(self._end)
        await asyncio.shield(self._fetching)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _load(self) -> None:
        try:
            keys = keys_in(await self._fetch())
        except (OSError, ValueError) as error:
            log.warning("the keys of auth.jwt.jwks_url cannot be fetched", error=str(error))
            return
        self._keys, self._fetched_ms = keys, self._clock()

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)


def keys_in(data: bytes) -> list[Jwk]:
    """The public keys of a set; ValueError if it is none. Keys of other kinds, secrets too, are ignored."""
    try:
        found = msgspec.json.decode(data, type=dict[str, Any]).get("keys")
    except msgspec.DecodeError as error:
        raise ValueError(f"this is no set of keys: {error}") from error
    if not isinstance(found, list):
        raise ValueError("this is no set of keys: it has no list of keys")
    types = set(KEY_TYPES.values())
    keys: list[Jwk] = [key for key in found if isinstance(key, dict) and key.get("kty") in types]
    return keys[:KEYS_MAX]
