"""The ports `ApiTokens` and `ExternalIds` on DynamoDB."""

from __future__ import annotations

from typing import cast

import msgspec

from parley.dynamodb import ConditionFailed, Dynamo, Item, is_valid_key, number, retry_unknown
from parley.model import ApiToken, Scope
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import API_TOKENS, EXTERNAL_IDS

IS_NEWER = "attribute_exists(token_id) AND last_used_at_ms < :now"

encode = msgspec.json.Encoder().encode
decode_scopes = msgspec.json.Decoder(tuple[Scope, ...]).decode
decode_makers = msgspec.json.Decoder(tuple[str, ...]).decode


class DynamoApiTokens:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def add(self, token: ApiToken) -> None:
        await retry_unknown(lambda: self._dynamo.put(API_TOKENS, token_item(token)))

    async def get(self, token_id: str) -> ApiToken | None:
        item = await self._dynamo.get(API_TOKENS, _key(token_id)) if is_valid_key(token_id) else None
        return token_in(item) if item is not None else None

    async def all(self) -> list[ApiToken]:
        found = [token_in(item) async for page in table_pages(self._dynamo, API_TOKENS) for item in page]
        return sorted(found, key=lambda token: token.token_id)

    async def note_used(self, token_id: str, now_ms: int) -> None:
        try:
            await retry_unknown(
                lambda: self._dynamo.update(
                    API_TOKENS,
                    _key(token_id),
                    "SET last_used_at_ms = :now",
                    {":now": now_ms},
                    condition=IS_NEWER,
                )
            )
        except ConditionFailed:
            return  # it was removed, or used later

    async def remove(self, token_id: str) -> bool:
        """A retry after a lost answer may find it gone: then it was there."""
        if await self.get(token_id) is None:
            return False
        await retry_unknown(lambda: self._dynamo.delete(API_TOKENS, _key(token_id)))
        return True


class DynamoExternalIds:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def claim(self, key: str, user_id: str) -> str:
        try:
            await retry_unknown(
                lambda: self._dynamo.put(
                    EXTERNAL_IDS,
                    {"key": key, "user_id": user_id},
                    condition="attribute_not_exists(#key)",
                    names={"#key": "key"},
                )
            )
        except ConditionFailed:  # by somebody else, or by this attempt, whose answer was lost
            owner = await self.find(key)
            assert owner is not None, "what is claimed stays so"
            return owner
        return user_id

    async def find(self, key: str) -> str | None:
        item = await self._dynamo.get(EXTERNAL_IDS, {"key": key}) if is_valid_key(key) else None
        return cast(str, item["user_id"]) if item is not None else None


def _key(token_id: str) -> Item:
    return {"token_id": token_id}


def token_item(token: ApiToken) -> Item:
    return {
        **msgspec.structs.asdict(token),
        "scopes": encode(token.scopes).decode(),
        "makers": encode(token.makers).decode(),
    }


def token_in(item: Item) -> ApiToken:
    return ApiToken(
        token_id=cast(str, item["token_id"]),
        token_hash=cast(bytes, item["token_hash"]),
        user_id=cast(str, item["user_id"]),
        name=cast(str, item["name"]),
        scopes=decode_scopes(cast(str, item["scopes"])),
        created_at_ms=number(item, "created_at_ms"),
        chat_id=cast(str, item["chat_id"]),
        last_used_at_ms=number(item, "last_used_at_ms"),
        expires_at_ms=number(item, "expires_at_ms"),
        makers=decode_makers(cast(str, item.get("makers", "[]"))),
    )
