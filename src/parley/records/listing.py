"""Lists of people, chats and members, for commands. May be used without `Engine.open`.

Whatever a person types may be asked for: a name or an id of nothing finds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from parley.clock import Clock
from parley.model import ChatMember
from parley.records.sessions import session_of
from parley.store.ports import Engine
from parley.store.records import ChatRecord, MemberStateRecord
from parley.store.rows import ListedChat, ListedMember, ListedUser
from parley.store.rules import SAME_TITLE_MAX, direct_key
from parley.store.tables import PEOPLE, SESSIONS, USERNAMES, alone

MEMBERS_PER_READ = 1_000


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
        chat_ids = None if of_user_id is None else await self._chat_ids_of(of_user_id)
        pages = self._engine.transfer.chats(chat_ids)
        return await self._listed([chat async for page in pages for chat in page])

    async def _chat_ids_of(self, user_id: str) -> list[str]:
        (person,) = await self._records.get(PEOPLE, [alone(user_id)])
        return [] if person is None else await self._engine.directory.chat_ids_of(user_id)

    async def find_chats(self, name: str) -> list[ListedChat]:
        """The chats with this id, or else this title, or else, for `alice,bob`, their direct chat.

        The case of a title does not matter. Of many chats with one title, some are found.
        """
        found = await self._of_ids([name]) or await self._of_title(name)
        one, comma, other = name.partition(",")
        if not found and comma:
            pair = [await self.user_id_of(one.strip()), await self.user_id_of(other.strip())]
            people = [user_id for user_id in pair if user_id is not None]
            if len(people) == len(pair):
                chat_ids = [chat_id for user_id in people for chat_id in await self._chat_ids_of(user_id)]
                found = [
                    chat for chat in await self._of_ids(chat_ids) if chat.direct_key == direct_key(people)
                ]
        return await self._listed(found)

    async def _of_ids(self, chat_ids: list[str]) -> list[ChatRecord]:
        return [chat async for page in self._engine.transfer.chats(chat_ids) for chat in page]

    async def _of_title(self, title: str) -> list[ChatRecord]:
        found, wanted = list[ChatRecord](), title.casefold()
        async for page in self._engine.transfer.chats():
            found += [one for one in page if (one.chat.title or "").casefold() == wanted != ""]
            if len(found) >= SAME_TITLE_MAX:
                break
        return found[:SAME_TITLE_MAX]

    async def _listed(self, chats: list[ChatRecord]) -> list[ListedChat]:
        """The title of a direct chat is the names of its people."""
        names = await self._names(person for one in chats for person in _pair(one))
        return [
            ListedChat(
                chat_id=one.chat.chat_id,
                type=one.chat.chat_type.value,
                title=one.chat.title or ", ".join(sorted(names[p] for p in _pair(one) if p in names)) or None,
                members=one.member_count,
                sequence_counter=one.counter,
                created_at=one.chat.created_at,
            )
            for one in sorted(chats, key=lambda one: (one.chat.created_at, one.chat.chat_id))
        ]

    async def _names(self, user_ids: Iterable[str]) -> dict[str, str]:
        found = await self._records.get(PEOPLE, [alone(user_id) for user_id in dict.fromkeys(user_ids)])
        return {person.user.user_id: person.user.username for person in found if person is not None}

    async def members(self, chat_id: str) -> list[ListedMember]:
        """The members of a chat, in the order in which they joined; then by name."""
        if not await self._of_ids([chat_id]):
            return []
        members, after = list[ChatMember](), ""
        while page := await self._engine.directory.members(chat_id, after, MEMBERS_PER_READ):
            members, after = [*members, *page], page[-1].user_id
        cursors = {one.user_id: one for one in await self._engine.member_states.cursors(chat_id)}
        names = await self._names(cursors)
        found = [
            ListedMember(
                user_id=member.user_id,
                username=names.get(member.user_id),
                role=member.role.value,
                joined_at=member.joined_at,
                joined_sequence=member.joined_sequence,
                last_acked_sequence=cursors[member.user_id].delivered_up_to,
                read_up_to=cursors[member.user_id].read_up_to,
            )
            for member in members
            if member.user_id in cursors  # who has not left meanwhile
        ]
        return sorted(found, key=lambda member: (member.joined_sequence, member.username or ""))


def _pair(chat: ChatRecord) -> list[str]:
    """The two people of a direct chat."""
    return chat.direct_key.split("|") if chat.direct_key is not None else []
