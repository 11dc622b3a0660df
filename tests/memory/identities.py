"""The ports `ApiTokens` and `ExternalIds` in memory."""

from __future__ import annotations

from msgspec.structs import replace

from parley.model import ApiToken
from tests.memory.tables import Tables


class MemoryApiTokens:
    def __init__(self, tables: Tables) -> None:
        self._tokens = tables.api_tokens

    async def add(self, token: ApiToken) -> None:
        self._tokens[token.token_id] = token

    async def get(self, token_id: str) -> ApiToken | None:
        return self._tokens.get(token_id)

    async def all(self) -> list[ApiToken]:
        return [self._tokens[token_id] for token_id in sorted(self._tokens)]

    async def note_used(self, token_id: str, now_ms: int) -> None:
        token = self._tokens.get(token_id)
        if token is not None and now_ms > token.last_used_at_ms:
            self._tokens[token_id] = replace(token, last_used_at_ms=now_ms)

    async def remove(self, token_id: str) -> bool:
        return self._tokens.pop(token_id, None) is not None


class MemoryExternalIds:
    def __init__(self, tables: Tables) -> None:
        self._ids = tables.external_ids

    async def claim(self, key: str, user_id: str) -> str:
        return self._ids.setdefault(key, user_id)

    async def find(self, key: str) -> str | None:
        return self._ids.get(key)
