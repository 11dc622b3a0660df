"""The `Listing` port on Cassandra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from parley.clock import Clock
from parley.concurrency import map_concurrently
from parley.model import StoredChat
from parley.store.cassandra.accounts import READ_NAME, session_in
from parley.store.cassandra.chat_state import READ_CHAT, READ_DIRECT, READ_USER
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row
from parley.store.cassandra.consents import READ_PLACES
from parley.store.cassandra.counters import LogCounters
from parley.store.cassandra.directory import READ_MEMBERS
from parley.store.cassandra.effects import chat_in
from parley.store.cassandra.member_states import READ_STATE
from parley.store.cassandra.schema import CHATS, DELIVERY, SESSIONS, USERS
from parley.store.cassandra.users import user_in
from parley.store.rows import ListedChat, ListedMember, ListedUser
from parley.store.rules import SAME_TITLE_MAX, direct_key

COUNTERS_AT_ONCE_MAX = 16


class CassandraListing:
    """`connect` opens the client, once."""

    def __init__(
        self,
        cassandra: Cassandra,
        connect: Callable[[], Awaitable[None]],
        counters: LogCounters,
        clock: Clock,
    ) -> None:
        self._cassandra = cassandra
        self._connect = connect
        self._counters = counters
        self._clock = clock

    async def users(self) -> list[ListedUser]:
        """Counts chats and sessions with one scan of each table."""
        await self._connect()
        chats: Counter[str] = Counter()
        async for rows in self._cassandra.pages(f"SELECT user_id, has_left FROM {DELIVERY}"):
            chats.update(row["user_id"] for row in rows if row["has_left"] is False)
        sessions: Counter[str] = Counter()
        async for rows in self._cassandra.pages(f"SELECT record, last_used_at_ms FROM {SESSIONS}"):
            known = [session for row in rows if (session := session_in(row)) is not None]
            sessions.update(one.user_id for one in known if one.expires_at_ms > self._clock())
        found = [
            ListedUser(
                user_id=user.user_id,
                username=user.username,
                display_name=user.display_name,
                is_operator=user.is_operator,
                state=user.state.value,
                created_at=user.created_at,
                chats=chats[user.user_id],
                sessions=sessions[user.user_id],
            )
            async for rows in self._cassandra.pages(f"SELECT * FROM {USERS}")
            for user in (user_in(row) for row in rows if row["record"] is not None)
        ]
        return sorted(found, key=lambda user: user.username)

    async def user_id_of(self, name: str) -> str | None:
        await self._connect()
        if not is_key(name):
            return None
        found = await self._cassandra.row(READ_NAME, name)
        if found is None:
            found = await self._cassandra.row(READ_USER, name)
            return name if found is not None and found["record"] is not None else None
        user_id: str = found["user_id"]
        return user_id

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
        found = [row for row in found if row["record"] is not None] or await self._of_title(name)
        one, comma, other = name.partition(",")
        if not found and comma:
            found = await self._of_pair([one.strip(), other.strip()])
        return await self._listed(found)

    async def _of_title(self, title: str) -> list[Row]:
        found, wanted = list[Row](), title.casefold()
        async for rows in self._cassandra.pages(f"SELECT * FROM {CHATS}"):
            known = [row for row in rows if row["record"] is not None]
            found += [row for row in known if (chat_in(row).title or "").casefold() == wanted != ""]
            if len(found) >= SAME_TITLE_MAX:
                break
        return found[:SAME_TITLE_MAX]

    async def _of_pair(self, names: list[str]) -> list[Row]:
        user_ids = [user_id for name in names if (user_id := await self.user_id_of(name)) is not None]
        if len(user_ids) < len(names):
            return []
        direct = await self._cassandra.row(READ_DIRECT, direct_key(user_ids))
        if direct is None or direct["chat_id"] is None:
            return []
        return await self._cassandra.rows(READ_CHAT, direct["chat_id"])

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
        asked = [(user_id,) for user_id in dict.fromkeys(user_ids) if user_id]
        rows = await self._cassandra.rows_of(READ_USER, asked)
        return {row["user_id"]: user_in(row).username for row in rows if row["record"] is not None}

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
