"""The `Standings` port on DynamoDB: where the members of a chat stand."""

from __future__ import annotations

from typing import cast

from parley.model import Mark
from parley.store.dynamodb.changes import DELIVERY
from parley.store.dynamodb.client import ConditionFailed, Dynamo, Item
from parley.store.dynamodb.states import CHATS, MEMBERSHIPS, number
from parley.store.dynamodb.together import is_key, repeated


class DynamoStandings:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def marks(self, chat_id: str) -> list[Mark]:
        if not is_key(chat_id):
            return []
        members = await self._dynamo.query_all(
            MEMBERSHIPS,
            "chat_id = :chat",
            {":chat": chat_id},
            projection="user_id, joined_sequence, early",
        )
        if any(row.get("early") for row in members) and await self._is_missing(chat_id):
            return []
        keys: list[Item] = [{"user_id": row["user_id"], "chat_id": chat_id} for row in members]
        states = {state["user_id"]: state for state in await self._dynamo.batch_get(DELIVERY, keys)}
        return [_mark(row, states.get(row["user_id"], {})) for row in members]

    async def _is_missing(self, chat_id: str) -> bool:
        return await self._dynamo.get(CHATS, {"chat_id": chat_id}) is None

    async def mute(self, user_id: str, chat_id: str, until: str | None) -> None:
        if not is_key(user_id, chat_id):
            return
        setting = "SET muted_until = :until" if until is not None else "REMOVE muted_until"
        values: Item = {":one": 1, ":left": True}
        if until is not None:
            values[":until"] = until
        try:
            await repeated(
                lambda: self._dynamo.update(
                    DELIVERY,
                    {"user_id": user_id, "chat_id": chat_id},
                    f"{setting} ADD revision :one",
                    values,
                    condition="attribute_exists(user_id) AND has_left <> :left",
                )
            )
        except ConditionFailed:
            return  # who is not in a chat has nothing to mute

    async def muted_until(self, user_id: str, chat_id: str) -> str | None:
        if not is_key(user_id, chat_id):
            return None
        row = await self._dynamo.get(DELIVERY, {"user_id": user_id, "chat_id": chat_id}) or {}
        return None if row.get("has_left") else cast("str | None", row.get("muted_until"))


def _mark(member: Item, state: Item) -> Mark:
    return Mark(
        user_id=cast(str, member["user_id"]),
        joined_sequence=number(member, "joined_sequence"),
        delivered_up_to=number(state, "last_acked_sequence"),
        delivered_at=cast("str | None", state.get("delivered_at")),
        read_up_to=number(state, "read_up_to"),
        read_at=cast("str | None", state.get("read_at")),
    )
