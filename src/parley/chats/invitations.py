"""People come into chats: added where they consent to it, invited where they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from parley.chats.membership import Membership
from parley.clock import MS_PER_DAY, Clock, from_iso, iso
from parley.core.consent import INVITATION_NEEDED, NO_INVITATION, decide_adding
from parley.core.permissions import decide_withdrawal
from parley.ephemeral.ports import Signals
from parley.ephemeral.signals import InvitationEndedSignal, InvitationSignal
from parley.errors import BLOCKED, NOT_A_MEMBER, Refusal, Refused
from parley.model import Appended, ChatType, Invitation, Role, StoredChat, User
from parley.records.invitations import Invitations
from parley.records.relations import Relations
from parley.store.ports import Directory
from parley.wire.limits import INVITATION_DAYS, PAGE_ENTRIES_MAX

ATTEMPTS_MAX = 3
"""People may change their minds while a chat is created; so often it is decided again."""
INVITED_AT_ONCE = 64


class NewcomersAdded(Struct):
    """What became of people who were to come into a chat. Who is in neither list was refused.

    `appended`: the last change of the log, None if there was none.
    """

    chat: StoredChat | None = None
    is_new: bool = False
    appended: Appended | None = None
    added: list[str] = []
    invited: list[str] = []


class InvitationView(Struct, frozen=True):
    """An invitation with the names that a list shows; None for what does not exist any more."""

    invitation: Invitation
    title: str | None
    user: User | None
    by: User | None


class InvitationService:
    def __init__(
        self,
        membership: Membership,
        directory: Directory,
        invitations: Invitations,
        relations: Relations,
        signals: Signals,
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._directory = directory
        self._invitations = invitations
        self._relations = relations
        self._signals = signals
        self._clock = clock

    # Into chats

    async def create(
        self,
        creator_id: str,
        chat_type: ChatType,
        member_ids: Sequence[str],
        title: str | None = None,
        open_to_join: bool = False,
        chat_id: str = "",
    ) -> NewcomersAdded:
        """A chat with those of these people who may be added; the others are invited.

        A direct chat needs the other person's consent: refused with `INVITATION_NEEDED` without it.
        """
        others = sorted(set(member_ids) - {creator_id})
        for attempt in range(1, ATTEMPTS_MAX + 1):
            needed = set() if chat_type is ChatType.DIRECT else await self._only_invited(creator_id, others)
            added = [user_id for user_id in others if user_id not in needed]
            try:
                chat, is_new = await self._membership.create(
                    creator_id, chat_type, added, title, open_to_join, chat_id
                )
            except Refused as error:
                is_final = chat_type is ChatType.DIRECT or attempt == ATTEMPTS_MAX
                if error.refusal != INVITATION_NEEDED or is_final:
                    raise
                continue
            invited = await self._invite_all(chat, sorted(needed), creator_id)
            return NewcomersAdded(chat, is_new, None, added, invited)
        raise AssertionError("the last attempt returns or raises")

    async def _only_invited(self, actor_id: str, user_ids: list[str]) -> set[str]:
        """Those of these who may not simply be added. Refused if one of them has blocked the actor."""
        consents = await self._invitations.consents(actor_id, user_ids)
        refusals = {user_id: decide_adding(facts) for user_id, facts in consents.items()}
        if BLOCKED in refusals.values():
            raise Refused(BLOCKED)
        return {user_id for user_id, refusal in refusals.items() if refusal is not None}

    async def _invite_all(self, chat: StoredChat, user_ids: list[str], by: str) -> list[str]:
        """Those who could be invited. The chat is there already, so one who cannot be stops no other."""
        invited: list[str] = []
        for first in range(0, len(user_ids), INVITED_AT_ONCE):
            some = user_ids[first : first + INVITED_AT_ONCE]
            outcomes = await asyncio.gather(*(self._try_invite(chat, one, by) for one in some))
            invited += [one for one, refusal in zip(some, outcomes, strict=True) if refusal is None]
        return invited

    async def _try_invite(self, chat: StoredChat, user_id: str, by: str) -> Refusal | None:
        try:
            await self._invite(chat, user_id, by, Role.MEMBER)
        except Refused as error:
            return error.refusal
        return None

    async def add(self, chat_id: str, actor_id: str, user_ids: Sequence[str], role: Role) -> NewcomersAdded:
        """Add people one after the other, and invite those who may not be added; a refusal ends it."""
        done = NewcomersAdded()
        for user_id in user_ids:
            try:
                done.appended = await self._membership.add(chat_id, actor_id, user_id, role)
                done.added.append(user_id)
            except Refused as error:
                if error.refusal != INVITATION_NEEDED:
                    raise
                chat, _ = await self._membership.chat_for(chat_id, actor_id)
                await self._invite(chat, user_id, actor_id, role)
                done.invited.append(user_id)
        return done

    async def _invite(self, chat: StoredChat, user_id: str, by: str, role: Role) -> None:
        invitation = Invitation(user_id, chat.chat_id, by, role, iso(self._clock()))
        ended = await self._invitations.invite(invitation)
        for chat_id in ended:
            self._signals.publish(InvitationEndedSignal(user_id, chat_id))
        self._signals.publish(
            InvitationSignal(
                user_id=user_id,
                chat_id=chat.chat_id,
                title=chat.title,
                by=by,
                role=role,
                invited_at=invitation.invited_at,
                expires_at=expires_at(invitation),
            )
        )

    # For the invited person

    async def mine(self, user_id: str, after: str, limit: int) -> list[InvitationView]:
        found = await self._invitations.of_user(user_id, after, min(limit, PAGE_ENTRIES_MAX))
        return await self._with_names(found)

    async def accept(self, chat_id: str, user_id: str) -> Appended:
        """Join the chat, with the role that was offered."""
        found = await self._invitations.invitation(user_id, chat_id)
        if found is None:
            raise Refused(NO_INVITATION)
        try:
            return await self._membership.add(chat_id, user_id, user_id, found.role)
        except Refused as error:
            if error.refusal == NOT_A_MEMBER:  # it has ended meanwhile
                raise Refused(NO_INVITATION) from error
            raise

    async def decline(self, chat_id: str, user_id: str) -> None:
        """The inviter is not told."""
        await self._end(user_id, chat_id)

    async def decline_from(self, user_id: str, inviter_id: str) -> None:
        """Decline all that one person has sent, as a block does."""
        found = await self._invitations.of_user(user_id, "", PAGE_ENTRIES_MAX)
        for one in found:
            if one.invited_by == inviter_id and await self._invitations.end(user_id, one.chat_id):
                self._signals.publish(InvitationEndedSignal(user_id, one.chat_id))

    # For those who may invite

    async def of_chat(self, chat_id: str, actor_id: str, after: str, limit: int) -> list[InvitationView]:
        """The chat's pending invitations, for its owners and admins."""
        _, role = await self._membership.chat_for(chat_id, actor_id)
        _check(decide_withdrawal(role, Role.MEMBER))
        found = await self._invitations.of_chat(chat_id, after, min(limit, PAGE_ENTRIES_MAX))
        return await self._with_names(found)

    async def withdraw(self, chat_id: str, actor_id: str, user_id: str) -> None:
        """For those who could remove the person if they had accepted."""
        _, role = await self._membership.chat_for(chat_id, actor_id)
        found = await self._invitations.invitation(user_id, chat_id)
        _check(decide_withdrawal(role, found.role if found is not None else Role.MEMBER))
        await self._end(user_id, chat_id)

    async def _end(self, user_id: str, chat_id: str) -> None:
        if not await self._invitations.end(user_id, chat_id):
            raise Refused(NO_INVITATION)
        self._signals.publish(InvitationEndedSignal(user_id, chat_id))

    async def _with_names(self, found: list[Invitation]) -> list[InvitationView]:
        people = [user_id for one in found for user_id in (one.user_id, one.invited_by)]
        profiles = await self._relations.profiles(list(dict.fromkeys(people)))
        chat_ids = list(dict.fromkeys(one.chat_id for one in found))
        chats = dict(zip(chat_ids, await asyncio.gather(*map(self._directory.chat, chat_ids)), strict=True))
        return [
            InvitationView(
                one,
                chat.title if (chat := chats[one.chat_id]) is not None else None,
                profiles.get(one.user_id),
                profiles.get(one.invited_by),
            )
            for one in found
        ]


def expires_at(invitation: Invitation) -> str:
    return iso(from_iso(invitation.invited_at) + INVITATION_DAYS * MS_PER_DAY)


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal)
