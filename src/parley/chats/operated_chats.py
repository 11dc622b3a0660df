"""What operators see of a chat: counters and rules, members with their devices, the log without bodies.

Nobody needs to be a member for it. What the log says is shown only where the caller has asked for it by name,
and records that (`parley.audit`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from parley.chats.log_hasher import LogHasher
from parley.concurrency import map_concurrently
from parley.errors import NOT_FOUND, Refused
from parley.model import ChatMember, ChatType, Head, MemberSettings, Page, PersonDevices, StoredChat, User
from parley.records.book import Book
from parley.records.chat_settings import Retentions
from parley.records.relations import Relations
from parley.store.ports import Cursors, Directory, Log, MemberStates
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_MAX

NO_SUCH_CHAT = NOT_FOUND.because("there is no such chat")
NO_SUCH_MESSAGE_HERE = NOT_FOUND.because("there is no such message in this chat")
COUNT_SECONDS_MAX = 1.0
"""How long one answer counts voids. The next one goes on from there."""
CHATS_COUNTED_MAX = 1_000
LAST_ENTRIES = 50
"""So far back the last entry is looked for, behind voids."""
READS_AT_ONCE_MAX = 16


class VoidCount(Struct, frozen=True):
    """How many of the first positions of a log are void."""

    epoch: int
    through: int = 0
    voids: int = 0


class ChatState(Struct, frozen=True, kw_only=True):
    """`last`: the last entry; None in an empty log. `counter`: None if it is lost."""

    chat: StoredChat
    head: Head
    member_count: int
    people: list[User]
    last: Entry | None
    counter: int | None
    counted: VoidCount
    hash_upto: int
    retention_days: int | None
    is_held: bool

    @property
    def gap_rate(self) -> float:
        return self.counted.voids / self.counted.through if self.counted.through else 0.0


class ListedState(Struct, frozen=True):
    """A chat as a list shows it. `people`: the two of a direct chat."""

    chat: StoredChat
    people: list[User]
    member_count: int
    head: int


class DeviceState(Struct, frozen=True):
    device_id: str
    position: int
    used_ms: int


class MemberProgress(Struct, frozen=True):
    """`user`: None if the account is not there."""

    member: ChatMember
    user: User | None
    settings: MemberSettings
    devices: list[DeviceState]


class MemberPage(Struct, frozen=True):
    members: list[MemberProgress]
    head: int


class OperatedChats:
    """`counter_of` reads the counter of a chat; None if it is lost."""

    def __init__(
        self,
        *,
        log: Log,
        directory: Directory,
        member_states: MemberStates,
        relations: Relations,
        cursors: Cursors,
        device_lists: Book[PersonDevices],
        retentions: Retentions,
        hasher: LogHasher,
        counter_of: Callable[[str], Awaitable[int | None]],
    ) -> None:
        self._log = log
        self._directory = directory
        self._member_states = member_states
        self._relations = relations
        self._cursors = cursors
        self._device_lists = device_lists
        self._retentions = retentions
        self._hasher = hasher
        self._counter_of = counter_of
        self._counted: OrderedDict[str, VoidCount] = OrderedDict()

    async def chat(self, chat_id: str) -> StoredChat:
        """Refused if there is none."""
        chat = await self._directory.chat(chat_id)
        if chat is None:
            raise Refused(NO_SUCH_CHAT)
        return chat

    async def state(self, chat_id: str) -> ChatState:
        chat = await self.chat(chat_id)
        counter = await self._counter_of(chat_id)
        head = await self._head(chat)
        page = await self._log.read_before(chat_id, head.sequence + 1, LAST_ENTRIES)
        kept = (await self._retentions.of([chat_id]))[chat_id]
        return ChatState(
            chat=chat,
            head=head,
            member_count=await self._directory.member_count(chat_id),
            people=await self.people_of(chat),
            last=decode_entry(page.entries[-1]) if page.entries else None,
            counter=counter,
            counted=await self._count_voids(chat_id, head),
            hash_upto=await self._hasher.stored_through(chat_id, head),
            retention_days=kept.days,
            is_held=kept.is_held,
        )

    async def listed(self, chats: Sequence[StoredChat]) -> list[ListedState]:
        heads = await self._log.heads([chat.chat_id for chat in chats]) if chats else {}

        async def state(chat: StoredChat) -> ListedState:
            count, head = await self._directory.member_count(chat.chat_id), heads.get(chat.chat_id)
            return ListedState(chat, await self.people_of(chat), count, head.sequence if head else 0)

        return await map_concurrently(state, chats, READS_AT_ONCE_MAX)

    async def people_of(self, chat: StoredChat) -> list[User]:
        """The two people of a direct chat; nobody in a group, whose members have pages of their own."""
        if chat.chat_type is not ChatType.DIRECT:
            return []
        members = await self._directory.members(chat.chat_id, "", 2)
        users = await self._relations.profiles([member.user_id for member in members])
        return [users[member.user_id] for member in members if member.user_id in users]

    async def _head(self, chat: StoredChat) -> Head:
        heads = await self._log.heads([chat.chat_id])
        return heads.get(chat.chat_id) or Head(chat.epoch, 0)

    async def _count_voids(self, chat_id: str, head: Head) -> VoidCount:
        """As far as there is time. A resolved position stays what it is, so none is read twice."""
        counted = self._counted.pop(chat_id, VoidCount(head.epoch))
        if counted.epoch != head.epoch or counted.through > head.sequence:
            counted = VoidCount(head.epoch)
        time = asyncio.get_running_loop().time
        until = time() + COUNT_SECONDS_MAX
        while counted.through < head.sequence and time() < until:
            page = await self._log.read(chat_id, counted.through, PAGE_ENTRIES_MAX)
            if page.to_sequence <= counted.through:
                break
            counted = VoidCount(head.epoch, page.to_sequence, counted.voids + len(page.voids))
            await asyncio.sleep(0)  # a page of SQLite is read without giving way to anybody
        self._counted[chat_id] = counted
        if len(self._counted) > CHATS_COUNTED_MAX:
            self._counted.popitem(last=False)
        return counted

    async def members(self, chat_id: str, after: str, limit: int) -> MemberPage:
        """In the order of their ids, each with the devices that are known to the server."""
        head = await self._head(await self.chat(chat_id))
        members = await self._directory.members(chat_id, after, limit)
        ids = [member.user_id for member in members]
        users = await self._relations.profiles(ids)
        settings = await self._member_states.settings(chat_id, ids)

        async def state(member: ChatMember) -> MemberProgress:
            devices = await self.devices(chat_id, member.user_id)
            return MemberProgress(member, users.get(member.user_id), settings[member.user_id], devices)

        return MemberPage(await map_concurrently(state, members, READS_AT_ONCE_MAX), head.sequence)

    async def devices(self, chat_id: str, user_id: str) -> list[DeviceState]:
        """The devices of a person and how far each is in a chat, the last used first."""
        known = await self._device_lists.get(user_id)
        last_first = sorted(known.devices.items(), key=lambda one: -one[1]) if known is not None else []
        return [
            DeviceState(device_id, await self._cursors.position(user_id, device_id, chat_id), used_ms)
            for device_id, used_ms in last_first
        ]

    async def log(self, chat_id: str, around: int | str | None, limit: int) -> Page:
        """So many positions around one, or around a message; the last ones without it."""
        head = await self._head(await self.chat(chat_id))
        if isinstance(around, str):
            found = await self._log.find_message(around, [chat_id])
            if found is None:
                raise Refused(NO_SUCH_MESSAGE_HERE)
            around = found[1]
        if around is None or around >= head.sequence:
            return await self._log.read_before(chat_id, head.sequence + 1, limit)
        return await self._log.read(chat_id, max(0, around - 1 - limit // 2), limit)
