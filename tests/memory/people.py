"""The ports of people: `Accounts` and what operators do to them, `Relations`, the `Directory` of chats."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from parley.clock import Clock
from parley.core.consent import TOO_MANY_INVITED, ConsentFacts
from parley.core.permissions import ALREADY_MEMBER, decide_creation
from parley.errors import BLOCKED, LAST_OPERATOR, NO_SUCH_USER, Refused
from parley.model import (
    AccountDeletion,
    AccountState,
    ChatMember,
    ChatType,
    Invitation,
    RelatedUser,
    Relation,
    Relationship,
    Role,
    Session,
    StoredChat,
    User,
    UserPage,
    Visibility,
)
from parley.store.rows import StoreCounts
from parley.store.rules import (
    RELATIONS_MAX,
    TOO_MANY_RELATED,
    emptied,
    expired_invitations,
    folded,
    is_found_by,
)
from parley.wire.limits import INVITATIONS_MAX, INVITATIONS_PER_INVITER_MAX
from tests.memory.tables import Tables


class MemoryAccounts:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add_user(self, user: User, password_hash: str) -> bool:
        if user.user_id in self._tables.users or await self.user_by_name(user.username) is not None:
            return False
        self._tables.users[user.user_id] = user
        self._tables.passwords[user.user_id] = password_hash
        return True

    async def user(self, user_id: str) -> User | None:
        return self._tables.users.get(user_id)

    async def user_by_name(self, username: str) -> tuple[User, str] | None:
        for user in self._tables.users.values():
            if user.username == username:
                return user, self._tables.passwords[user.user_id]
        return None

    async def update_user(self, user: User, password_hash: str | None = None) -> None:
        before = self._tables.users.get(user.user_id)
        if before is None or before.state is AccountState.DELETED:
            return
        self._tables.users[user.user_id] = structs.replace(
            user,
            username=before.username,
            created_at=before.created_at,
            last_seen=before.last_seen,
            state=before.state,
            external_id=before.external_id,
        )
        if password_hash is not None:
            self._tables.passwords[user.user_id] = password_hash

    async def add_session(self, session: Session, token_hash: bytes) -> None:
        self._tables.sessions[token_hash] = session

    async def session_by_token(self, token_hash: bytes, *, is_recheck: bool = False) -> Session | None:
        return self._tables.sessions.get(token_hash)

    async def sessions(self, user_id: str) -> list[Session]:
        mine = [session for session in self._tables.sessions.values() if session.user_id == user_id]
        return sorted(mine, key=lambda session: -session.last_used_at_ms)

    async def end_sessions(self, user_id: str, session_ids: Sequence[str]) -> list[str]:
        sessions = self._tables.sessions
        ended = {
            token: session.session_id
            for token, session in sessions.items()
            if session.user_id == user_id and session.session_id in session_ids
        }
        for token in ended:
            del sessions[token]
        return list(ended.values())


class MemoryAccountAdmin:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def find_users(self, query: str, after: str, limit: int) -> UserPage:
        wanted = folded(query)
        found = [
            user
            for user_id, user in sorted(self._tables.users.items())
            if user_id > after and is_found_by(wanted, user.username, user.display_name)
        ]
        return UserPage(found[:limit], found[limit - 1].user_id if len(found) > limit else None)

    async def set_state(self, user_id: str, state: AccountState, witness_id: str) -> User:
        user = self._user(user_id)
        if user.state is AccountState.DELETED:
            raise Refused(NO_SUCH_USER)
        if state is not AccountState.ACTIVE:
            self._check_operators(user, witness_id)
        changed = self._tables.users[user_id] = structs.replace(user, state=state)
        return changed

    async def delete_user(self, user_id: str, witness_id: str, now_ms: int) -> User:
        user = self._user(user_id)
        if user.state is AccountState.DELETED:
            return user
        self._check_operators(user, witness_id)
        empty = self._tables.users[user_id] = emptied(user)
        self._tables.passwords[user_id] = ""
        self._tables.deletions[user_id] = now_ms
        return empty

    def _user(self, user_id: str) -> User:
        user = self._tables.users.get(user_id)
        if user is None:
            raise Refused(NO_SUCH_USER)
        return user

    def _check_operators(self, user: User, witness_id: str) -> None:
        if not user.is_operator or user.state is not AccountState.ACTIVE:
            return
        witness = self._tables.users.get(witness_id)
        if witness is None or witness is user or not witness.is_operator or witness.state is not user.state:
            raise Refused(LAST_OPERATOR)

    async def deletions(self) -> list[AccountDeletion]:
        return [AccountDeletion(*one) for one in self._tables.deletions.items()]

    async def counts(self) -> StoreCounts:
        return StoreCounts(len(self._tables.users), len(self._tables.chats))

    async def finish_deletion(self, user_id: str) -> None:
        self._tables.deletions.pop(user_id, None)

    async def end_expired_sessions(self, now_ms: int) -> int:
        sessions = self._tables.sessions
        expired = [token for token, session in sessions.items() if session.expires_at_ms <= now_ms]
        for token in expired:
            del sessions[token]
        return len(expired)


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
        if not {user_id, other_id} <= self._tables.users.keys():
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
        users = self._tables.users
        return {user_id: users[user_id] for user_id in user_ids if user_id in users}


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

    async def chat_ids_of(self, user_id: str) -> list[str]:
        return self._tables.chats_of(user_id)

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """Every append reads what is stored."""
