"""The `ChatListing` port on DynamoDB."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from parley.model import ChatType
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.driver import Dynamo, Item, is_valid_key, map_concurrently, number
from parley.store.dynamodb.people import read_people, user_in
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import CHATS, DELIVERY, DIRECT_CHATS, MEMBERSHIPS
from parley.store.rows import ListedChat, ListedMember
from parley.store.rules import SAME_TITLE_MAX

COUNTERS_AT_ONCE_MAX = 16


class DynamoListing:
    """Read strongly. `connect` opens the client, once."""

    def __init__(self, dynamo: Dynamo, connect: Callable[[], Awaitable[None]], counters: Counters) -> None:
        self._dynamo = dynamo
        self._connect = connect
        self._counters = counters

    async def chats(self, of_user_id: str | None = None) -> list[ListedChat]:
        await self._connect()
        if of_user_id is None:
            found = [chat async for rows in table_pages(self._dynamo, CHATS) for chat in rows]
        elif not is_valid_key(of_user_id):
            return []
        else:
            own = await self._dynamo.query_all(
                DELIVERY,
                "user_id = :user",
                {":user": of_user_id, ":left": True},
                filter="has_left <> :left",
                projection="chat_id",
            )
            found = await self._dynamo.batch_get(CHATS, [{"chat_id": row["chat_id"]} for row in own])
        return await self._listed(found)

    async def find_chats(self, name: str) -> list[ListedChat]:
        await self._connect()
        chat = await self._dynamo.get(CHATS, {"chat_id": name}) if is_valid_key(name) else None
        if chat is None and is_valid_key(name):
            direct = await self._dynamo.get(DIRECT_CHATS, {"direct_key": name}) or {}
            if "chat_id" in direct:
                chat = await self._dynamo.get(CHATS, {"chat_id": direct["chat_id"]})
        return await self._listed([chat] if chat is not None else await self._of_title(name))

    async def _of_title(self, title: str) -> list[Item]:
        found, wanted = list[Item](), title.casefold()
        async for rows in table_pages(self._dynamo, CHATS):
            found += [chat for chat in rows if str(chat.get("name") or "").casefold() == wanted != ""]
            if len(found) >= SAME_TITLE_MAX:
                break
        return found[:SAME_TITLE_MAX]

    async def _listed(self, found: list[Item]) -> list[ListedChat]:
        found = sorted(found, key=lambda chat: (str(chat["created_at"]), str(chat["chat_id"])))
        names = await self._usernames(person for chat in found for person in _pair(chat))
        numbers = await map_concurrently(
            lambda chat: self._counters.read(cast(str, chat["chat_id"])), found, COUNTERS_AT_ONCE_MAX
        )
        return [
            ListedChat(
                chat_id=cast(str, chat["chat_id"]),
                type=cast(str, chat["chat_type"]),
                title=_title(chat, names),
                members=number(chat, "member_count"),
                sequence_counter=counter.last,
                created_at=cast(str, chat["created_at"]),
            )
            for chat, counter in zip(found, numbers, strict=True)
        ]

    async def _usernames(self, user_ids: Iterable[str]) -> dict[str, str]:
        found = await read_people(self._dynamo, user_ids)
        return {user_id: user_in(item).username for user_id, item in found.items()}

    async def members(self, chat_id: str) -> list[ListedMember]:
        await self._connect()
        if not is_valid_key(chat_id):
            return []
        rows = await self._dynamo.query_all(MEMBERSHIPS, "chat_id = :chat", {":chat": chat_id})
        names = await self._usernames(cast(str, row["user_id"]) for row in rows)
        keys: list[Item] = [{"user_id": row["user_id"], "chat_id": chat_id} for row in rows]
        states = {state["user_id"]: state for state in await self._dynamo.batch_get(DELIVERY, keys)}
        found = [
            ListedMember(
                user_id=(user_id := cast(str, row["user_id"])),
                username=names.get(user_id),
                role=cast(str, row["role"]),
                joined_at=cast(str, row["joined_at"]),
                joined_sequence=number(row, "joined_sequence"),
                last_acked_sequence=number(states.get(user_id, {}), "last_acked_sequence"),
                read_up_to=number(states.get(user_id, {}), "read_up_to"),
            )
            for row in rows
        ]
        return sorted(found, key=lambda member: (member.joined_sequence, member.username or ""))


def _pair(chat: Item) -> list[str]:
    """The two people of a direct chat."""
    return str(chat.get("direct_key", "")).split("|") if chat["chat_type"] == ChatType.DIRECT.value else []


def _title(chat: Item, names: dict[str, str]) -> str | None:
    title = cast("str | None", chat.get("name"))
    pair = ", ".join(sorted(names[person] for person in _pair(chat) if person in names))
    return title if title is not None else pair or None
