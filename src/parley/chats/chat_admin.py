"""Chats of others, as a backend arranges them: on behalf of an owner, by the rules that hold for owners."""

from __future__ import annotations

from collections.abc import Sequence

from parley.chats.invitations import InvitationService, NewcomersAdded
from parley.chats.membership import Membership
from parley.errors import NO_SUCH_USER, NOT_FOUND, Refused
from parley.model import AccountState, ChatType, Role
from parley.records.accounts import Accounts
from parley.store.ports import Directory
from parley.wire.limits import PAGE_ENTRIES_MAX

NO_SUCH_CHAT = NOT_FOUND.because("there is no such chat")
NO_OWNER = NOT_FOUND.because("this chat has no owner who could do that")


class ChatAdmin:
    def __init__(
        self, membership: Membership, invitations: InvitationService, directory: Directory, accounts: Accounts
    ) -> None:
        self._membership = membership
        self._invitations = invitations
        self._directory = directory
        self._accounts = accounts

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
        owner_id = await self._owner(chat_id)
        if await self._directory.role(chat_id, user_id) is not None:
            await self._membership.remove(chat_id, owner_id, user_id)

    async def _owner(self, chat_id: str) -> str:
        """Its creator, as long as they own it, or the first other owner."""
        chat = await self._directory.chat(chat_id)
        if chat is None:
            raise Refused(NO_SUCH_CHAT)
        if await self._directory.role(chat_id, chat.created_by) is Role.OWNER:
            return chat.created_by
        after = ""
        while page := await self._directory.members(chat_id, after, PAGE_ENTRIES_MAX):
            for member in page:
                if member.role is Role.OWNER:
                    return member.user_id
            after = page[-1].user_id
        raise Refused(NO_OWNER)
