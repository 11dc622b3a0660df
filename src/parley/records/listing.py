"""Lists of people, chats and members, for commands. May be used without `Engine.open`.

Whatever a person types may be asked for: a name or an id of nothing finds nothing.
"""

from __future__ import annotations

from collections import Counter

from parley.clock import Clock
from parley.records.sessions import session_of
from parley.store.ports import Engine
from parley.store.records import MemberStateRecord
from parley.store.rows import ListedChat, ListedMember, ListedUser
from parley.store.rules import direct_key
from parley.store.tables import PEOPLE, SESSIONS, USERNAMES, alone


class Listing:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._records = engine.records
        self._clock = clock

    async def users(self) -> list[ListedUser]:
        """Every user, by name. Counts chats and sessions with one scan of each table."""
        now_ms, chats, sessions = self._clock(), Counter[str](), Counter[str]()
        async for states in self._engine.transfer.records(MemberStateRecord):
            chats.update(
                one.user_id for one in states if isinstance(one, MemberStateRecord) and not one.has_left
            )
        async for page in self._records.scan(SESSIONS):
            known = map(session_of, page)
            sessions.update(one.user_id for one in known if one.expires_at_ms > now_ms)
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
            async for people in self._records.scan(PEOPLE)
            for user in (one.user for one in people)
        ]
        return sorted(found, key=lambda user: user.username)

    async def user_id_of(self, name: str) -> str | None:
        """The user with this username or id."""
        (taken,) = await self._records.get(USERNAMES, [alone(name)])
        user_id = name if taken is None else taken.user_id
        (person,) = await self._records.get(PEOPLE, [alone(user_id)])
        return person.user.user_id if person is not None else None

    async def chats(self, of_user_id: str | None = None) -> list[ListedChat]:
        """Every chat, or those that one person is in; the oldest first."""
        return await self._engine.listing.chats(of_user_id)

    async def find_chats(self, name: str) -> list[ListedChat]:
        """The chats with this id, or else this title, or else, for `alice,bob`, their direct chat.

        The case of a title does not matter. Of many chats with one title, some are found.
        """
        found = await self._engine.listing.find_chats(name)
        one, comma, other = name.partition(",")
        if found or not comma:
            return found
        pair = [await self.user_id_of(one.strip()), await self.user_id_of(other.strip())]
        people = [user_id for user_id in pair if user_id is not None]
        return await self._engine.listing.find_chats(direct_key(people)) if len(people) == len(pair) else []

    async def members(self, chat_id: str) -> list[ListedMember]:
        """The members of a chat, in the order in which they joined; then by name."""
        return await self._engine.listing.members(chat_id)
