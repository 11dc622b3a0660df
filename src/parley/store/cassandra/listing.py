"""The `ChatListing` port on Cassandra."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from parley.concurrency import map_concurrently
from parley.model import StoredChat
from parley.store.cassandra.chat_state import READ_CHAT, READ_DIRECT
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.consents import READ_PLACES
from parley.store.cassandra.counters import LogCounters
from parley.store.cassandra.directory import READ_MEMBERS
from parley.store.cassandra.effects import chat_in
from parley.store.cassandra.member_states import READ_STATE
from parley.store.cassandra.people import read_people
from parley.store.cassandra.schema import CHATS
from parley.store.rows import ListedChat, ListedMember
from parley.store.rules import SAME_TITLE_MAX

COUNTERS_AT_ONCE_MAX = 16


class CassandraListing:
    """`connect` opens the client, once."""

    def __init__(
        self,
        cassandra: Cassandra,
        connect: Callable[[], Awaitable[None]],
        counters: LogCounters,
    ) -> None:
        self._cassandra = cassandra
        self._connect = connect
        self._counters = counters

    async def chats(self, of_user_id: str | None = None) -> list[ListedChat]:
        await self._connect()
        if of_user_id is None:
            pages = self._cassandra.pages(f"SELECT * FROM {CHATS}")
            return await self._listed([row async for rows in pages for row in rows])
        own = await self._cassandra.rows(READ_PLACES, of_user_id) if is_key(of_user_id) else []
        chat_ids = [(row["chat_id"],) for row in own if row["has_left"] is False]
        return await self._listed(await self._cassandra.rows_of(READ_CHAT, chat_ids))

    async def find_chats(self, name: str) -> list[ListedChat]:
        await self._connect()
        found = await self._cassandra.rows(READ_CHAT, name) if is_key(name) else []
        direct = await self._cassandra.row(READ_DIRECT, name) if is_key(name) and not found else None
        if direct is not None and direct["chat_id"] is not None:
            found = await self._cassandra.rows(READ_CHAT, direct["chat_id"])
        found = [row for row in found if row["record"] is not None] or await self._of_title(name)
        return await self._listed(found)

    async def _of_title(self, title: str) -> list[Row]:
        found, wanted = list[Row](), title.casefold()
        async for rows in self._cassandra.pages(f"SELECT * FROM {CHATS}"):
            known = [row for row in rows if row["record"] is not None]
            found += [row for row in known if (chat_in(row).title or "").casefold() == wanted != ""]
            if len(found) >= SAME_TITLE_MAX:
                break
        return found[:SAME_TITLE_MAX]

    async def _listed(self, rows: list[Row]) -> list[ListedChat]:
        chats = [(chat_in(row), row) for row in rows if row["record"] is not None]
        chats.sort(key=lambda one: (one[0].created_at, one[0].chat_id))
        names = await self._usernames(person for _, row in chats for person in _pair(row))
        counters = await map_concurrently(
            lambda one: self._counters.read(one[0].chat_id), chats, COUNTERS_AT_ONCE_MAX
        )
        return [
            ListedChat(
                chat_id=chat.chat_id,
                type=chat.chat_type.value,
                title=_title(chat, row, names),
                members=row["member_count"] or 0,
                sequence_counter=counter.last,
                created_at=chat.created_at,
            )
            for (chat, row), counter in zip(chats, counters, strict=True)
        ]

    async def _usernames(self, user_ids: Iterable[str]) -> dict[str, str]:
        found = await read_people(self._cassandra, user_ids)
        return {user_id: user.username for user_id, user in found.items()}

    async def members(self, chat_id: str) -> list[ListedMember]:
        await self._connect()
        rows = await self._cassandra.rows(READ_MEMBERS, chat_id, "") if is_key(chat_id) else []
        names = await self._usernames(row["user_id"] for row in rows)
        states = await self._cassandra.rows_of(READ_STATE, [(row["user_id"], chat_id) for row in rows])
        by_user = {state["user_id"]: state for state in states}
        found = [
            ListedMember(
                user_id=row["user_id"],
                username=names.get(row["user_id"]),
                role=row["role"],
                joined_at=row["joined_at"],
                joined_sequence=row["joined_sequence"],
                last_acked_sequence=by_user.get(row["user_id"], {}).get("last_acked_sequence") or 0,
                read_up_to=by_user.get(row["user_id"], {}).get("read_up_to") or 0,
            )
            for row in rows
        ]
        return sorted(found, key=lambda member: (member.joined_sequence, member.username or ""))


def _pair(row: Row) -> list[str]:
    """The two people of a direct chat."""
    return (row["direct_key"] or "").split("|")


def _title(chat: StoredChat, row: Row, names: dict[str, str]) -> str | None:
    pair = ", ".join(sorted(names[person] for person in _pair(row) if person in names))
    return chat.title if chat.title is not None else pair or None
