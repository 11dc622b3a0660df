"""Chats of others, as operators and backends arrange them: in the name of a member, mostly of an owner."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from parley import ids
from parley.chats.invitations import InvitationService, NewcomersAdded
from parley.chats.membership import OPERATOR, Membership
from parley.errors import NO_SUCH_MESSAGE, NO_SUCH_USER, NOT_FOUND, Refused
from parley.model import AccountState, ChatMember, ChatType, Draft, Kind, Role, StoredChat
from parley.records.accounts import Accounts
from parley.records.invitations import Invitations
from parley.sending.message_actions import MessageActions
from parley.store.ports import Directory
from parley.wire.limits import PAGE_ENTRIES_MAX

NO_SUCH_CHAT = NOT_FOUND.because("there is no such chat")
NO_OWNER = NOT_FOUND.because("this chat has no owner who could do that")
NO_MEMBER = NOT_FOUND.because("nobody is in this chat any more")
UUID_BYTES = 16
BY_OPERATOR = msgspec.json.encode({"by": OPERATOR}).decode()
RANK = (Role.MEMBER, Role.ADMIN, Role.OWNER)


class ChatAdmin:
    def __init__(
        self,
        *,
        membership: Membership,
        invitations: InvitationService,
        directory: Directory,
        accounts: Accounts,
        waiting: Invitations,
        actions: MessageActions,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._membership = membership
        self._invitations = invitations
        self._directory = directory
        self._accounts = accounts
        self._waiting = waiting
        self._actions = actions
        self._random_bytes = random_bytes

    async def create(
        self,
        owner_id: str,
        chat_type: ChatType,
        member_ids: Sequence[str],
        title: str | None,
        open_to_join: bool,
        chat_id: str = "",
    ) -> NewcomersAdded:
        """A chat whose owner is this person."""
        owner = await self._accounts.user(owner_id)
        if owner is None or owner.state is AccountState.DELETED:
            raise Refused(NO_SUCH_USER)
        return await self._invitations.create(owner_id, chat_type, member_ids, title, open_to_join, chat_id)

    async def put_member(self, chat_id: str, user_id: str, role: Role) -> tuple[int | None, bool]:
        """Where it was written, if it was not so before, and whether the person was invited instead."""
        owner_id = await self._owner(chat_id)
        before = await self._directory.role(chat_id, user_id)
        if before is role:
            return None, False
        if before is not None:
            return (await self._membership.set_role(chat_id, owner_id, user_id, role)).sequence, False
        done = await self._invitations.add(chat_id, owner_id, [user_id], role)
        return done.appended.sequence if done.appended is not None else None, bool(done.invited)

    async def remove_member(self, chat_id: str, user_id: str) -> None:
        """Nothing is written for somebody who is no member."""
        actor_id = await self._somebody(await self._chat(chat_id))
        if await self._directory.role(chat_id, user_id) is not None:
            await self._membership.remove(chat_id, actor_id, user_id, by_operator=True)

    async def rename(self, chat_id: str, title: str) -> None:
        chat = await self._chat(chat_id)
        await self._membership.rename(chat_id, await self._somebody(chat), title, by_operator=True)

    async def delete_message(self, chat_id: str, message_id: str) -> None:
        """Its body is gone when this returns, also in a direct chat. May be repeated."""
        chat = await self._chat(chat_id)
        entry = await self._actions.find(chat_id, message_id)
        if entry is None:
            raise Refused(NO_SUCH_MESSAGE)
        if entry.deleted is True:
            return
        client_message_id = str(uuid.UUID(bytes=self._random_bytes(UUID_BYTES), version=4))
        draft = Draft(
            chat_id=chat_id,
            sender_id=await self._somebody(chat, entry.sender_id),
            content=BY_OPERATOR,
            content_type="application/json",
            client_message_id=client_message_id,
            client_key=ids.client_key(client_message_id),
            kind=Kind.DELETE.value,
            target_id=message_id,
            by_operator=True,
        )
        await self._actions.send(draft)

    async def empty(self, chat_id: str) -> None:
        """Take everybody out of a group, the last owner at last, and end its invitations. May be repeated."""
        chat = await self._chat(chat_id)
        if chat.chat_type is ChatType.DIRECT:
            return
        while invited := await self._waiting.of_chat(chat_id, "", PAGE_ENTRIES_MAX):
            for one in invited:
                await self._waiting.end(one.user_id, chat_id)
        for is_owner in (False, True):
            members = [one async for one in self._members(chat_id) if (one.role is Role.OWNER) == is_owner]
            for member in members:
                actor_id = await self._somebody(chat)
                await self._membership.remove(chat_id, actor_id, member.user_id, by_operator=True)

    async def _chat(self, chat_id: str) -> StoredChat:
        chat = await self._directory.chat(chat_id)
        if chat is None:
            raise Refused(NO_SUCH_CHAT)
        return chat

    async def _somebody(self, chat: StoredChat, preferred_id: str = "") -> str:
        """A member in whose name an operator acts: this one, or the highest in rank whom it meets first."""
        if preferred_id and await self._directory.role(chat.chat_id, preferred_id) is not None:
            return preferred_id
        if await self._directory.role(chat.chat_id, chat.created_by) is Role.OWNER:
            return chat.created_by
        best: ChatMember | None = None
        async for member in self._members(chat.chat_id):
            if best is None or RANK.index(member.role) > RANK.index(best.role):
                best = member
            if best.role is Role.OWNER:
                break
        if best is None:
            raise Refused(NO_MEMBER)
        return best.user_id

    async def _owner(self, chat_id: str) -> str:
        """Its creator, as long as they own it, or the first other owner."""
        chat = await self._chat(chat_id)
        if await self._directory.role(chat_id, chat.created_by) is Role.OWNER:
            return chat.created_by
        async for member in self._members(chat_id):
            if member.role is Role.OWNER:
                return member.user_id
        raise Refused(NO_OWNER)

    async def _members(self, chat_id: str) -> AsyncIterator[ChatMember]:
        after = ""
        while page := await self._directory.members(chat_id, after, PAGE_ENTRIES_MAX):
            for member in page:
                yield member
            after = page[-1].user_id
