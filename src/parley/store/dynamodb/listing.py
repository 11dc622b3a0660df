"""What an operator asks the tables: who is there, which chats, who is in them. Read strongly, as of now."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import cast

from parley.model import ChatType
from parley.store.dynamodb.accounts import USERNAMES
from parley.store.dynamodb.changes import DELIVERY, USERS
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.cursor_writing import SESSIONS
from parley.store.dynamodb.directory import DIRECT_CHATS
from parley.store.dynamodb.states import CHATS, MEMBERSHIPS, number
from parley.store.dynamodb.together import is_key, together
from parley.store.listed import ListedChat, ListedMember, ListedUser
from parley.store.rules import direct_key

COUNTERS_AT_ONCE_MAX = 16
SAME_TITLE_MAX = 10


async def users(dynamo: Dynamo, now_ms: int) -> list[ListedUser]:
    """Everybody by name. Chats and sessions are counted over their whole tables, each read once."""
    chats: Counter[str] = Counter()
    async for rows in pages(dynamo, DELIVERY, "user_id, has_left"):
        chats.update(cast(str, row["user_id"]) for row in rows if not row.get("has_left"))
    sessions: Counter[str] = Counter()
    async for rows in pages(dynamo, SESSIONS, "user_id, expires_at_ms"):
        sessions.update(cast(str, row["user_id"]) for row in rows if number(row, "expires_at_ms") > now_ms)
    found = [
        ListedUser(
            user_id=(user_id := cast(str, user["user_id"])),
            username=cast(str, user["username"]),
            display_name=cast(str, user["display_name"]),
            is_operator=bool(user.get("is_operator")),
            created_at=cast(str, user["created_at"]),
            chats=chats[user_id],
            sessions=sessions[user_id],
        )
        async for rows in pages(dynamo, USERS)
        for user in rows
    ]
    return sorted(found, key=lambda user: user.username)


async def pages(dynamo: Dynamo, table: str, projection: str | None = None) -> AsyncIterator[list[Item]]:
    """A whole table."""
    start: Item | None = None
    while True:
        page = await dynamo.scan(table, projection=projection, start=start)
        yield page.items
        start = page.next_key
        if start is None:
            return


async def user_id_of(dynamo: Dynamo, name: str) -> str | None:
    """The person of this username or id."""
    if not is_key(name):
        return None
    found = await dynamo.get(USERNAMES, {"username": name}) or await dynamo.get(USERS, {"user_id": name})
    return cast(str, found["user_id"]) if found is not None else None


async def chats(dynamo: Dynamo, counters: Counters, of_user_id: str | None = None) -> list[ListedChat]:
    """The oldest first."""
    if of_user_id is None:
        found = [chat async for rows in pages(dynamo, CHATS) for chat in rows]
    else:
        own = await dynamo.query_all(
            DELIVERY,
            "user_id = :user",
            {":user": of_user_id, ":left": True},
            filter="has_left <> :left",
            projection="chat_id",
        )
        found = await dynamo.batch_get(CHATS, [{"chat_id": row["chat_id"]} for row in own])
    return await _listed(dynamo, counters, found)


async def find_chats(dynamo: Dynamo, counters: Counters, name: str) -> list[ListedChat]:
    """The chats that a person may mean: by id, else by title, else `alice,bob` for their direct chat."""
    chat = await dynamo.get(CHATS, {"chat_id": name}) if is_key(name) else None
    found = [chat] if chat is not None else await _of_title(dynamo, name)
    one, comma, other = name.partition(",")
    if not found and comma:
        found = await _of_pair(dynamo, [one.strip(), other.strip()])
    return await _listed(dynamo, counters, found)


async def _of_title(dynamo: Dynamo, title: str) -> list[Item]:
    found: list[Item] = []
    async for rows in pages(dynamo, CHATS):
        found += [chat for chat in rows if str(chat.get("name") or "").casefold() == title.casefold() != ""]
        if len(found) >= SAME_TITLE_MAX:
            break
    return found[:SAME_TITLE_MAX]


async def _of_pair(dynamo: Dynamo, names: list[str]) -> list[Item]:
    user_ids = [await user_id_of(dynamo, name) for name in names]
    if None in user_ids:
        return []
    key = direct_key([user_id for user_id in user_ids if user_id is not None])
    direct = await dynamo.get(DIRECT_CHATS, {"direct_key": key})
    chat = await dynamo.get(CHATS, {"chat_id": direct["chat_id"]}) if direct is not None else None
    return [chat] if chat is not None else []


async def _listed(dynamo: Dynamo, counters: Counters, found: list[Item]) -> list[ListedChat]:
    found = sorted(found, key=lambda chat: (str(chat["created_at"]), str(chat["chat_id"])))
    names = await _usernames(dynamo, (person for chat in found for person in _pair(chat)))
    numbers = await together(
        lambda chat: counters.read(cast(str, chat["chat_id"])), found, COUNTERS_AT_ONCE_MAX
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


def _pair(chat: Item) -> list[str]:
    """The two people of a direct chat."""
    return str(chat.get("direct_key", "")).split("|") if chat["chat_type"] == ChatType.DIRECT.value else []


def _title(chat: Item, names: dict[str, str]) -> str | None:
    title = cast("str | None", chat.get("name"))
    pair = ", ".join(sorted(names[person] for person in _pair(chat) if person in names))
    return title if title is not None else pair or None


async def _usernames(dynamo: Dynamo, user_ids: Iterable[str]) -> dict[str, str]:
    keys: list[Item] = [{"user_id": user_id} for user_id in dict.fromkeys(user_ids) if user_id]
    found = await dynamo.batch_get(USERS, keys)
    return {cast(str, user["user_id"]): cast(str, user["username"]) for user in found}


async def members(dynamo: Dynamo, chat_id: str) -> list[ListedMember]:
    rows = await dynamo.query_all(MEMBERSHIPS, "chat_id = :chat", {":chat": chat_id})
    names = await _usernames(dynamo, (cast(str, row["user_id"]) for row in rows))
    keys: list[Item] = [{"user_id": row["user_id"], "chat_id": chat_id} for row in rows]
    states = {state["user_id"]: state for state in await dynamo.batch_get(DELIVERY, keys)}
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
