"""The ports `ApiTokens` and `ExternalIds` on Cassandra."""

from __future__ import annotations

from msgspec.structs import replace

from parley.model import ApiToken, ExternalId
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.records import Records
from parley.store.cassandra.schema import API_TOKENS, EXTERNAL_IDS, ONE_LIST


class CassandraApiTokens:
    def __init__(self, cassandra: Cassandra) -> None:
        self._tokens = Records(cassandra, API_TOKENS, ("list", "token_id"), ApiToken)

    async def add(self, token: ApiToken) -> None:
        await self._tokens.change(ONE_LIST, token.token_id, change=lambda _: token)

    async def get(self, token_id: str) -> ApiToken | None:
        return await self._tokens.get(ONE_LIST, token_id) if is_key(token_id) else None

    async def all(self) -> list[ApiToken]:
        return await self._tokens.all(ONE_LIST)

    async def note_used(self, token_id: str, now_ms: int) -> None:
        def used(token: ApiToken | None) -> ApiToken | None:
            is_later = token is not None and now_ms > token.last_used_at_ms
            return replace(token, last_used_at_ms=now_ms) if is_later and token is not None else token

        await self._tokens.change(ONE_LIST, token_id, change=used)

    async def remove(self, token_id: str) -> bool:
        while (stored := await self.get(token_id)) is not None:
            if await self._tokens.swap(ONE_LIST, token_id, before=stored, after=None):
                return True
        return False


class CassandraExternalIds:
    def __init__(self, cassandra: Cassandra) -> None:
        self._ids = Records(cassandra, EXTERNAL_IDS, ("key",), ExternalId)

    async def claim(self, key: str, user_id: str) -> str:
        claimed = await self._ids.change(key, change=lambda before: before or ExternalId(key, user_id))
        assert claimed is not None
        return claimed.user_id

    async def find(self, key: str) -> str | None:
        found = await self._ids.get(key) if is_key(key) else None
        return None if found is None else found.user_id
