"""The ports of people: `Relations`, `Invitations`, the `Directory` of chats."""

from __future__ import annotations

from collections.abc import Sequence

from parley.clock import Clock
from parley.core.consent import TOO_MANY_INVITED, ConsentFacts
from parley.core.permissions import ALREADY_MEMBER, decide_creation
from parley.errors import BLOCKED, NO_SUCH_USER, Refused
from parley.model import (
    ChatMember,
    ChatType,
    Invitation,
    RelatedUser,
    Relation,
    Relationship,
    Role,
    StoredChat,
    User,
    Visibility,
)
from parley.store.rules import (
    RELATIONS_MAX,
    TOO_MANY_RELATED,
    expired_invitations,
)
from parley.wire.limits import INVITATIONS_MAX, INVITATIONS_PER_INVITER_MAX
from tests.memory.tables import Tables


class MemoryRelations:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def set_relation(
        self, user_id: str, other_id: str, relation: Relation, since: str | None
    ) -> str | None:
        held = self._tables.relations.setdefault((user_id, relation), {})
        if since is None:
            held.pop(other_id, None)
            return None
        if not all(map(self._tables.has_account, (user_id, other_id))):
            raise Refused(NO_SUCH_USER)
        if other_id not in held and len(held) >= RELATIONS_MAX[relation]:
            raise Refused(TOO_MANY_RELATED[relation])
        return held.setdefault(other_id, since)

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[RelatedUser]:
        held = sorted(self._tables.held(user_id, relation).items())
        return [RelatedUser(*one) for one in held if one[0] > after_user_id][:limit]

    async def relationships(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Relationship]:
        return {
            user_id: self._relationship(viewer_id, user, acquainted)
            for user_id, user in self._users(user_ids).items()
        }

    def _relationship(self, viewer_id: str, user: User, acquainted: bool) -> Relationship:
        held, user_id = self._tables.held, user.user_id
        is_contact = user_id in held(viewer_id, Relation.CONTACT)
        has_contact = viewer_id in held(user_id, Relation.CONTACT)
        return Relationship(
            user=user,
            is_contact=is_contact,
            has_contact=has_contact,
            is_blocked=user_id in held(viewer_id, Relation.BLOCK),
            has_blocked=viewer_id in held(user_id, Relation.BLOCK),
            is_acquainted=acquainted
            or (is_contact and has_contact)
            or self._share_a_chat(viewer_id, user_id),
        )

    def _share_a_chat(self, one: str, other: str) -> bool:
        return any(one in row.members and other in row.members for row in self._tables.chats.values())

    async def visibility(self, user_ids: Sequence[str]) -> dict[str, Visibility]:
        return {
            user_id: Visibility(
                user.send_read_receipts,
                frozenset(self._tables.held(user_id, Relation.BLOCK)),
                user.is_bot,
            )
            for user_id, user in self._users(user_ids).items()
        }

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        return self._users(user_ids)

    def _users(self, user_ids: Sequence[str]) -> dict[str, User]:
        known = filter(self._tables.has_account, user_ids)
        return {user_id: self._tables.user(user_id) for user_id in known}


class MemoryInvitations:
    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock

    async def consents(self, actor_id: str, user_ids: Sequence[str]) -> dict[str, ConsentFacts]:
        known = [user_id for user_id in user_ids if self._tables.is_living(user_id)]
        return {user_id: self._tables.consent(actor_id, user_id) for user_id in known}

    async def invite(self, invitation: Invitation) -> list[str]:
        tables, user_id, chat_id = self._tables, invitation.user_id, invitation.chat_id
        if not tables.is_living(user_id):
            raise Refused(NO_SUCH_USER)
        if tables.consent(invitation.invited_by, user_id).has_blocked:
            raise Refused(BLOCKED)
        if user_id in tables.chats[chat_id].members:
            raise Refused(ALREADY_MEMBER)
        others = [one for one in self._pending(user_id=user_id) if one.chat_id != chat_id]
        if sum(one.invited_by == invitation.invited_by for one in others) >= INVITATIONS_PER_INVITER_MAX:
            raise Refused(TOO_MANY_INVITED)
        tables.invitations[user_id, chat_id] = invitation
        waiting = sorted([*others, invitation], key=lambda one: (one.invited_at, one.chat_id))
        ended = [one.chat_id for one in waiting[:-INVITATIONS_MAX]]
        for oldest in ended:
            del tables.invitations[user_id, oldest]
        return sorted(ended)

    def _pending(self, **wanted: str) -> list[Invitation]:
        """In the order of people and chats."""
        expired = expired_invitations(self._clock())
        return [
            one
            for _, one in sorted(self._tables.invitations.items())
            if one.invited_at > expired and all(getattr(one, name) == value for name, value in wanted.items())
        ]

    async def invitation(self, user_id: str, chat_id: str) -> Invitation | None:
        return next(iter(self._pending(user_id=user_id, chat_id=chat_id)), None)

    async def of_user(self, user_id: str, after_chat_id: str, limit: int) -> list[Invitation]:
        return [one for one in self._pending(user_id=user_id) if one.chat_id > after_chat_id][:limit]

    async def of_chat(self, chat_id: str, after_user_id: str, limit: int) -> list[Invitation]:
        return [one for one in self._pending(chat_id=chat_id) if one.user_id > after_user_id][:limit]

    async def end(self, user_id: str, chat_id: str) -> bool:
        was_pending = await self.invitation(user_id, chat_id) is not None
        self._tables.invitations.pop((user_id, chat_id), None)
        return was_pending


class MemoryDirectory:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def create_chat(self, chat: StoredChat, member_ids: Sequence[str]) -> tuple[StoredChat, bool]:
        tables, people = self._tables, tuple(sorted({*member_ids, chat.created_by}))
        if chat.chat_type is ChatType.DIRECT:
            if any(chat.created_by in tables.held(person, Relation.BLOCK) for person in people):
                raise Refused(BLOCKED)
            for row in tables.chats.values():
                if row.pair == people:
                    return row.chat, False
        facts = {person: tables.join_facts(chat.created_by, person) for person in people}
        if (refusal := decide_creation(chat.created_by, facts)) is not None:
            raise Refused(refusal)
        tables.add_chat(chat, people)
        return chat, True

    async def chat(self, chat_id: str) -> StoredChat | None:
        row = self._tables.chats.get(chat_id)
        return None if row is None else row.chat

    async def role(self, chat_id: str, user_id: str) -> Role | None:
        row = self._tables.chats.get(chat_id)
        return None if row is None else row.role(user_id)

    async def members(self, chat_id: str, after_user_id: str, limit: int) -> list[ChatMember]:
        row = self._tables.chats.get(chat_id)
        members = sorted(row.members.items()) if row is not None else []
        return [member for user_id, member in members if user_id > after_user_id][:limit]

    async def member_count(self, chat_id: str) -> int:
        row = self._tables.chats.get(chat_id)
        return 0 if row is None else len(row.members)

    async def count(self) -> int:
        return len(self._tables.chats)

    async def chat_ids_of(self, user_id: str) -> list[str]:
        return self._tables.chats_of(user_id)

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """Every append reads what is stored."""
