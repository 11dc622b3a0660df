"""The ports of people: `Accounts` and what operators do to them, and the `Directory` of chats."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from parley.core.permissions import decide_creation
from parley.errors import BLOCKED, LAST_OPERATOR, NO_SUCH_USER, Refused
from parley.model import (
    AccountDeletion,
    AccountState,
    ChatMember,
    ChatType,
    Role,
    Session,
    StoredChat,
    User,
    UserPage,
)
from parley.store.consent import has_blocked
from parley.store.rows import StoreCounts
from parley.store.rules import (
    emptied,
    folded,
    is_found_by,
)
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

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        users = self._tables.users
        return {user_id: users[user_id] for user_id in user_ids if user_id in users}

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


class MemoryDirectory:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def create_chat(self, chat: StoredChat, member_ids: Sequence[str]) -> tuple[StoredChat, bool]:
        tables, people = self._tables, tuple(sorted({*member_ids, chat.created_by}))
        if chat.chat_type is ChatType.DIRECT:
            if any(has_blocked(tables.said(person), chat.created_by) for person in people):
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

    async def chat_ids_of(self, user_id: str, *, unasked: bool = False) -> list[str]:
        chats = self._tables.chats
        return [one for one in self._tables.chats_of(user_id) if not unasked or user_id in chats[one].unasked]

    async def sharing_chats(self, user_id: str, others: Sequence[str]) -> set[str]:
        chats = self._tables.chats
        known = {other for one in self._tables.chats_of(user_id) for other in chats[one].members}
        return known & set(others)

    async def fence(self, user_id: str, chat_ids: Sequence[str] | None = None) -> None:
        """Every append reads what is stored."""
