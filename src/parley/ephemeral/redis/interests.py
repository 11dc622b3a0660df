"""Which nodes hear which subjects; `scripts` documents the keys.

A tenure is one field with a lease, and what is registered under it has no lease of its own: so a node renews
one field every few seconds, however many chats it hears. Nothing here is signed: whoever can write to Redis
can make entries come late, but the addresses that entries are sent to are those of signed announcements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from parley.clock import MS_PER_SECOND
from parley.ephemeral.ports import INTEREST_SECONDS, TENURE_LEASE_SECONDS
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.client import RedisClient, Value, chunks

SUBJECTS_PER_CALL_MAX = 500
ENDED = -1
"""What the script answers for a tenure that does not last."""


class RedisInterests:
    def __init__(
        self, client: RedisClient, prefix: str = "", lease_seconds: float = TENURE_LEASE_SECONDS
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._key = f"{prefix}tenures"
        self._suspected = f"{prefix}is_suspected"
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._begin = client.script(scripts.BEGIN)
        self._renew = client.script(scripts.RENEW)
        self._register = client.script(scripts.REGISTER)
        self._release = client.script(scripts.RELEASE_INTERESTS)
        self._tenures = client.script(scripts.TENURES)

    async def begin(self, tenure: str) -> bool:
        async def begin() -> bool:
            await self._begin([self._key], [tenure, self._lease_ms])
            return True

        return await self._client.call(begin) is True

    async def renew(self, tenure: str) -> bool | None:
        lasts = await self._client.call(partial(self._renew, [self._key], [tenure, self._lease_ms]))
        return None if lasts is None else bool(lasts)

    async def register(self, tenure: str, subjects: Sequence[str]) -> list[str] | None:
        added: list[str] = []
        values: list[Value] = [tenure, round(INTEREST_SECONDS * MS_PER_SECOND)]
        for some in chunks(subjects, SUBJECTS_PER_CALL_MAX):
            answer = await self._client.call(partial(self._register, [self._key, *self._keys(some)], values))
            if answer is None or ENDED in answer:
                return None
            added += [some[number] for number in answer]
        return added

    async def release(self, tenure: str, subjects: Sequence[str]) -> None:
        for some in chunks(subjects, SUBJECTS_PER_CALL_MAX):
            await self._client.call(partial(self._release, self._keys(some), [tenure]))

    async def tenures(self, subjects: Sequence[str]) -> dict[str, list[str]] | None:
        found: dict[str, list[str]] = {}
        for some in chunks(subjects, SUBJECTS_PER_CALL_MAX):
            answer = await self._client.call(partial(self._tenures, [self._key, *self._keys(some)], []))
            if answer is None:
                return None
            held = ([tenure.decode() for tenure in one] for one in answer)
            found.update(zip(some, held, strict=True))
        return found

    async def end(self, tenure: str = "") -> bool:
        async def end() -> bool:
            redis: Any = self._client.redis
            await (redis.hdel(self._key, tenure) if tenure else redis.delete(self._key))
            return True

        return await self._client.call(end) is True

    async def suspect(self, seconds: float) -> None:
        lasting_ms = round(seconds * MS_PER_SECOND)
        await self._client.call(lambda: self._client.redis.set(self._suspected, "1", px=lasting_ms))

    async def is_suspected(self) -> bool:
        return bool(await self._client.call(lambda: self._client.redis.exists(self._suspected)))

    def _keys(self, subjects: Sequence[str]) -> list[str]:
        return [f"{self._prefix}interest:{subject}" for subject in subjects]
