"""Who was invited to a chat instead of being added. Read strongly.

An invitation is in the consent of the person for whom it waits, where their blocks are: so of an invitation
and a block one knows of the other. A line by chat says whose consent to look into. It is written first and
never relied on.

An invitation waits for 30 days (`INVITATION_DAYS`); then it is as if it had never been.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from parley.clock import Clock, from_iso
from parley.concurrency import map_concurrently
from parley.core.consent import TOO_MANY_INVITED, ConsentFacts
from parley.core.permissions import ALREADY_MEMBER
from parley.errors import BLOCKED, NO_SUCH_USER, Refused
from parley.model import AccountState, Invitation, InvitedPerson, PersonConsent
from parley.records.consent import Consents
from parley.store.consent import invitation_in, newcomers, uninvited
from parley.store.ports import Directory, Profiles, Records
from parley.store.rules import expired_invitations
from parley.store.tables import INVITED_PEOPLE, PutRecord, RemoveRecord
from parley.wire.limits import INVITATIONS_MAX, INVITATIONS_PER_INVITER_MAX

WRITES_AT_ONCE_MAX = 16


class Invitations:
    def __init__(self, records: Records, directory: Directory, accounts: Profiles, clock: Clock) -> None:
        self._records = records
        self._directory = directory
        self._accounts = accounts
        self._clock = clock
        self._consents = Consents(records, directory)

    async def consents(self, actor_id: str, user_ids: Sequence[str]) -> dict[str, ConsentFacts]:
        """For each of these who exists, what decides whether this person may add them."""
        people = await self._accounts.profiles(user_ids)
        found = await newcomers(
            self._records,
            actor_id,
            {user_id: (user, None) for user_id, user in people.items()},
            self._count_chats,
        )
        return {user_id: one.facts.consent for user_id, one in found.items()}

    async def _count_chats(self, user_id: str) -> tuple[int, int]:
        """Only the unasked ones are in what is asked for."""
        unasked = len(await self._directory.chat_ids_of(user_id, unasked=True))
        return unasked, unasked

    async def invite(self, invitation: Invitation) -> list[str]:
        """Durable before it returns. Another invitation of the person to the chat is replaced.

        Refused: a person who does not exist, is a member, or has blocked the inviter, not even by an
        invitation that has begun; and more than `INVITATIONS_PER_INVITER_MAX` of one inviter to the person.
        If more than `INVITATIONS_MAX` wait for the person, the oldest end: returns the chats of these.
        """
        user_id, chat_id = invitation.user_id, invitation.chat_id
        await self._check(user_id, chat_id)
        self._with(invitation, await self._consents.of_one(user_id))
        line = InvitedPerson(chat_id=chat_id, user_id=user_id, at_ms=from_iso(invitation.invited_at))
        await self._records.commit(INVITED_PEOPLE, [PutRecord(line)])
        before, after = await self._consents.change(user_id, lambda said: self._with(invitation, said))
        await self._directory.fence(user_id, [])
        try:
            await self._check(user_id, chat_id)  # who joined meanwhile may not have seen the invitation
        except Refused:
            await self.end(user_id, chat_id)
            raise
        kept = {one.chat_id for one in after.invitations}
        gone = [one for one in before.invitations if one.chat_id not in kept]
        await self._forget_lines(user_id, (one.chat_id for one in gone))
        expired = expired_invitations(self._clock())
        return sorted(one.chat_id for one in gone if one.invited_at > expired)

    async def _check(self, user_id: str, chat_id: str) -> None:
        user = (await self._accounts.profiles([user_id])).get(user_id)
        if user is None or user.state is AccountState.DELETED:
            raise Refused(NO_SUCH_USER)
        if await self._directory.role(chat_id, user_id) is not None:
            raise Refused(ALREADY_MEMBER)

    def _with(self, invitation: Invitation, said: PersonConsent) -> PersonConsent:
        if invitation.invited_by in said.blocks:
            raise Refused(BLOCKED)
        expired = expired_invitations(self._clock())
        others = [
            one for one in said.invitations if one.chat_id != invitation.chat_id and one.invited_at > expired
        ]
        if sum(one.invited_by == invitation.invited_by for one in others) >= INVITATIONS_PER_INVITER_MAX:
            raise Refused(TOO_MANY_INVITED)
        waiting = sorted([*others, invitation], key=lambda one: (one.invited_at, one.chat_id))
        kept = sorted(waiting[-INVITATIONS_MAX:], key=lambda one: one.chat_id)
        return replace(said, invitations=tuple(kept))

    async def _forget_lines(self, user_id: str, chat_ids: Iterable[str]) -> None:
        async def forget(chat_id: str) -> None:
            await self._records.commit(INVITED_PEOPLE, [RemoveRecord((chat_id, user_id))])

        await map_concurrently(forget, chat_ids, WRITES_AT_ONCE_MAX)

    async def invitation(self, user_id: str, chat_id: str) -> Invitation | None:
        """The pending invitation of a person to a chat."""
        return invitation_in(await self._consents.of_one(user_id), chat_id, self._clock())

    async def of_user(self, user_id: str, after_chat_id: str, limit: int) -> list[Invitation]:
        """A person's pending invitations, in the order of the chats' ids, after one."""
        expired = expired_invitations(self._clock())
        found = (await self._consents.of_one(user_id)).invitations
        return [one for one in found if one.invited_at > expired and one.chat_id > after_chat_id][:limit]

    async def of_chat(self, chat_id: str, after_user_id: str, limit: int) -> list[Invitation]:
        """A chat's pending invitations, in the order of the people's ids, after one."""
        found: list[Invitation] = []
        after = after_user_id
        while len(found) < limit:
            lines = await self._records.page(INVITED_PEOPLE, chat_id, after, limit)
            said = await self._consents.of([one.user_id for one in lines])
            for line in lines:
                invitation = invitation_in(said.get(line.user_id), chat_id, self._clock())
                found += [invitation] if invitation is not None else []
            if len(lines) < limit:
                break
            after = lines[-1].user_id
        return found[:limit]

    async def end(self, user_id: str, chat_id: str) -> bool:
        """The invitation is over, durably: it can no longer be accepted. False if there was none."""
        before, after = await self._consents.change(user_id, lambda said: uninvited(said, chat_id) or said)
        if before == after:
            return False
        await self._directory.fence(user_id, [])
        await self._forget_lines(user_id, [chat_id])
        was_pending = invitation_in(before, chat_id, self._clock()) is not None
        return was_pending and await self._directory.role(chat_id, user_id) is None
