"""The `MemberStates` port on DynamoDB: how far the members of a chat are, and who has muted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from parley.model import MemberCursor, MemberSettings, Notify
from parley.store.dynamodb.driver import ConditionFailed, Dynamo, Item, is_valid_key, number, retry_unknown
from parley.store.dynamodb.schema import CHATS, DELIVERY, DEVICES, MEMBERSHIPS


class DynamoMemberStates:
    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo

    async def cursors(self, chat_id: str) -> list[MemberCursor]:
        if not is_valid_key(chat_id):
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
        return [_member_cursor(row, states.get(row["user_id"], {})) for row in members]

    async def _is_missing(self, chat_id: str) -> bool:
        return await self._dynamo.get(CHATS, {"chat_id": chat_id}) is None

    async def mute(self, user_id: str, chat_id: str, until: str | None) -> None:
        if not is_valid_key(user_id, chat_id):
            return
        setting = "SET muted_until = :until" if until is not None else "REMOVE muted_until"
        values: Item = {":one": 1, ":left": True}
        if until is not None:
            values[":until"] = until
        try:
            await retry_unknown(
                lambda: self._dynamo.update(
                    DELIVERY,
                    {"user_id": user_id, "chat_id": chat_id},
                    f"{setting} ADD revision :one",
                    values,
                    condition="attribute_exists(user_id) AND has_left <> :left",
                )
            )
        except ConditionFailed:
            return  # a person who is not in the chat cannot mute it

    async def set_notify(self, user_id: str, chat_id: str, notify: Notify) -> None:
        if not is_valid_key(user_id, chat_id):
            return
        try:
            await retry_unknown(
                lambda: self._dynamo.update(
                    DELIVERY,
                    {"user_id": user_id, "chat_id": chat_id},
                    "SET notify = :notify",
                    {":notify": notify.value, ":left": True},
                    condition="attribute_exists(user_id) AND has_left <> :left",
                )
            )
        except ConditionFailed:
            return  # as in `mute`

    async def settings(self, chat_id: str, user_ids: Sequence[str]) -> dict[str, MemberSettings]:
        keys: list[Item] = [
            {"user_id": user_id, "chat_id": chat_id}
            for user_id in sorted(set(user_ids))
            if is_valid_key(user_id, chat_id)
        ]
        rows = await self._dynamo.batch_get(DELIVERY, keys)
        found = {cast(str, row["user_id"]): _settings(row) for row in rows if not row.get("has_left")}
        return {user_id: found.get(user_id, MemberSettings()) for user_id in user_ids}

    async def forget_cursors(self, user_id: str, *, dry: bool = False) -> int:
        if not is_valid_key(user_id):
            return 0
        values: Item = {":user": user_id}
        rows = await self._dynamo.query_all(
            DEVICES, "user_id = :user", values, projection="user_id, device_chat"
        )
        if not dry:
            await retry_unknown(lambda: self._dynamo.batch_delete(DEVICES, rows))
        return len(rows)


def _settings(row: Item) -> MemberSettings:
    return MemberSettings(
        notify=Notify(cast(str, row.get("notify", Notify.ALL))),
        muted_until=cast("str | None", row.get("muted_until")),
        delivered_up_to=number(row, "last_acked_sequence"),
        read_up_to=number(row, "read_up_to"),
    )


def _member_cursor(member: Item, state: Item) -> MemberCursor:
    return MemberCursor(
        user_id=cast(str, member["user_id"]),
        joined_sequence=number(member, "joined_sequence"),
        delivered_up_to=number(state, "last_acked_sequence"),
        delivered_at=cast("str | None", state.get("delivered_at")),
        read_up_to=number(state, "read_up_to"),
        read_at=cast("str | None", state.get("read_at")),
    )
