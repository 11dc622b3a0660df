"""What follows from the deletion of an account: the person leaves groups, and their lists are emptied.

The account itself is deleted in one write, which also marks that this is to be done. It is done chat by chat,
through the log like any other change, and may stop and begin again anywhere: what is done is not found again.
See docs/accounts.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from parley.chats.membership import Membership
from parley.clock import Clock
from parley.core.jobs import Job
from parley.errors import Refused
from parley.model import AccountDeletion, AccountState, ChatMember, ChatType, PersonDevices, Relation, Role
from parley.records.account_admin import AccountAdmin
from parley.records.book import Book
from parley.records.invitations import Invitations
from parley.records.relations import Relations
from parley.store.ports import Directory

FIRST_LOOK_SECONDS = 1.0
"""The other parts of a node start first."""
LOOK_SECONDS = 60.0
LOOK_SECONDS_MAX = 900.0
"""Somebody may have been in thousands of groups; what is done by then is not done again."""
SETTLED_MS = 120_000
"""A request that let the person in just before the deletion is over by then."""
CHATS_AT_ONCE_MAX = 8
MEMBERS_PER_PAGE = 500
RELATIONS_PER_PAGE = 100
INVITATIONS_PER_PAGE = 100

log = structlog.get_logger("parley.accounts")


class AccountDeletions:
    """Finishes deletions that were begun on any node, or by a command.

    `forget_devices`: a person's devices get no more notifications. `forget_tokens`: no program acts for them.
    """

    def __init__(
        self,
        *,
        admin: AccountAdmin,
        directory: Directory,
        relations: Relations,
        invitations: Invitations,
        membership: Membership,
        clock: Clock,
        forget_devices: Callable[[str], Awaitable[int]],
        forget_tokens: Callable[[str], Awaitable[None]],
        device_lists: Book[PersonDevices],
        forget_answers: Callable[[str], Awaitable[None]],
    ) -> None:
        self._admin = admin
        self._directory = directory
        self._relations = relations
        self._invitations = invitations
        self._membership = membership
        self._clock = clock
        self._forget_devices = forget_devices
        self._forget_tokens = forget_tokens
        self._device_lists = device_lists
        self._forget_answers = forget_answers
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There is a new one."""
        self._woken.set()

    @property
    def job(self) -> Job:
        """On every node, because each begins at once with what was asked of it. Two do each other no harm."""
        return Job(
            name="account_deletions",
            does="takes deleted people out of their chats, and deletes what is theirs",
            run=self.look,
            interval_seconds=LOOK_SECONDS,
            timeout_seconds=LOOK_SECONDS_MAX,
            first_seconds=FIRST_LOOK_SECONDS,
            until_woken=self._woken.wait,
        )

    async def look(self) -> None:
        """Advance each deletion that is not finished."""
        self._woken.clear()
        for deletion in await self._admin.deletions():
            await self.advance(deletion)

    async def advance(self, deletion: AccountDeletion) -> None:
        """Do what is left to do now. The mark goes when nothing was left, long enough after the deletion."""
        user_id = deletion.user_id
        await self._admin.delete_user(user_id, "", deletion.since_ms)
        groups = await self._groups_of(user_id)
        for start in range(0, len(groups), CHATS_AT_ONCE_MAX):
            some = groups[start : start + CHATS_AT_ONCE_MAX]
            await asyncio.gather(*(self._leave(chat_id, user_id) for chat_id in some))
        for relation in Relation:
            await self._forget(user_id, relation)
        await self._forget_devices(user_id)
        await self._forget_tokens(user_id)
        await self._device_lists.remove(user_id)
        await self._forget_answers(user_id)
        while pending := await self._invitations.of_user(user_id, "", INVITATIONS_PER_PAGE):
            for invitation in pending:
                await self._invitations.end(user_id, invitation.chat_id)
        if not groups and self._clock() - deletion.since_ms >= SETTLED_MS:
            await self._admin.finish_deletion(user_id)
            log.info("account deleted", user_id=user_id)

    async def _groups_of(self, user_id: str) -> list[str]:
        """Direct chats keep their two people."""
        found = []
        for chat_id in await self._directory.chat_ids_of(user_id):
            chat = await self._directory.chat(chat_id)
            if chat is not None and chat.chat_type is ChatType.GROUP:
                found.append(chat_id)
        return found

    async def _leave(self, chat_id: str, user_id: str) -> None:
        """A refusal says that it is done already, or that another pass must decide anew."""
        with contextlib.suppress(Refused):
            if await self._directory.role(chat_id, user_id) is Role.OWNER:
                heir = await self._heir(chat_id, user_id)
                if heir is not None:
                    await self._membership.set_role(chat_id, user_id, heir, Role.OWNER)
            await self._membership.remove(chat_id, user_id, user_id)

    async def _heir(self, chat_id: str, user_id: str) -> str | None:
        """Who owns the group from now on: an admin before a member, and the one who joined first.

        None if there is another owner, or no other member.
        """
        best: tuple[bool, int, str] | None = None
        after = ""
        while page := await self._directory.members(chat_id, after, MEMBERS_PER_PAGE):
            after = page[-1].user_id
            for member in await self._living(page):
                if member.role is Role.OWNER:
                    return None
                rank = member.role is not Role.ADMIN, member.joined_sequence, member.user_id
                best = rank if best is None else min(best, rank)
        return best[2] if best is not None else None

    async def _living(self, members: list[ChatMember]) -> list[ChatMember]:
        """Those whose accounts are not deleted."""
        profiles = await self._relations.profiles([member.user_id for member in members])
        gone = {user.user_id for user in profiles.values() if user.state is AccountState.DELETED}
        return [member for member in members if member.user_id not in gone]

    async def _forget(self, user_id: str, relation: Relation) -> None:
        while held := await self._relations.related(user_id, relation, "", RELATIONS_PER_PAGE):
            for other in held:
                await self._relations.set_relation(user_id, other.user_id, relation, None)
