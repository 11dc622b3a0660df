"""One person as operators see them: chats and how far they are in each, devices, sessions, counts."""

from __future__ import annotations

from msgspec import Struct

from parley.concurrency import map_concurrently
from parley.core.push_devices import PushDevice
from parley.errors import NO_SUCH_USER, Refused
from parley.model import MemberSettings, PersonDevices, Role, Session, StoredChat, User
from parley.push.registrations import PushRegistrations
from parley.records.accounts import Accounts
from parley.records.book import Book
from parley.records.sessions import Sessions
from parley.store.ports import Directory, Log, MemberStates

CHATS_SHOWN_MAX = 100
READS_AT_ONCE_MAX = 16


class ChatOfPerson(Struct, frozen=True):
    chat: StoredChat
    role: Role | None
    head: int
    settings: MemberSettings


class PersonState(Struct, frozen=True, kw_only=True):
    """`chats`: the newest of `chat_count`."""

    user: User
    chats: list[ChatOfPerson]
    chat_count: int
    devices: dict[str, int]
    sessions: list[Session]
    push: list[PushDevice]


class OperatedPeople:
    def __init__(
        self,
        *,
        accounts: Accounts,
        sessions: Sessions,
        directory: Directory,
        member_states: MemberStates,
        log: Log,
        device_lists: Book[PersonDevices],
        push: PushRegistrations,
    ) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._directory = directory
        self._member_states = member_states
        self._log = log
        self._device_lists = device_lists
        self._push = push

    async def show(self, user_id: str) -> PersonState:
        user = await self._accounts.user(user_id)
        if user is None:
            raise Refused(NO_SUCH_USER)
        chat_ids = sorted(await self._directory.chat_ids_of(user_id), reverse=True)
        shown = chat_ids[:CHATS_SHOWN_MAX]
        heads = await self._log.heads(shown) if shown else {}

        async def state(chat_id: str) -> ChatOfPerson | None:
            chat = await self._directory.chat(chat_id)
            if chat is None:
                return None
            role, head = await self._directory.role(chat_id, user_id), heads.get(chat_id)
            settings = (await self._member_states.settings(chat_id, [user_id]))[user_id]
            return ChatOfPerson(chat, role, head.sequence if head is not None else 0, settings)

        found = await map_concurrently(state, shown, READS_AT_ONCE_MAX)
        known = await self._device_lists.get(user_id)
        return PersonState(
            user=user,
            chats=[one for one in found if one is not None],
            chat_count=len(chat_ids),
            devices=known.devices if known is not None else {},
            sessions=await self._sessions.of(user_id),
            push=await self._push.listed(user_id),
        )
