"""The `Invitations` port on Cassandra.

Invitations are in the partition of the person who was invited, where blocks are: one batch decides about
both. The table by chat only says whose partitions to look into. A row of it is written first and never
relied on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parley.clock import Clock
from parley.core.consent import TOO_MANY_INVITED, ConsentFacts
from parley.core.permissions import ALREADY_MEMBER
from parley.errors import BLOCKED, NO_SUCH_USER, Refused, StoreUnavailable
from parley.model import Invitation
from parley.store.cassandra.chat_state import ATTEMPTS_MAX, READ_MEMBER
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Row, Statement
from parley.store.cassandra.consents import READ_KIND, READ_ONE, Consents
from parley.store.cassandra.effects import INVITATION
from parley.store.cassandra.relations import DELETE, PUT
from parley.store.cassandra.schema import CHAT_INVITATIONS
from parley.store.rules import expired_invitations
from parley.wire.limits import INVITATION_DAYS, INVITATIONS_MAX, INVITATIONS_PER_INVITER_MAX

NOTE = (
    f"INSERT INTO {CHAT_INVITATIONS} (chat_id, user_id) VALUES (?, ?)"
    f" USING TTL {(INVITATION_DAYS + 1) * 86_400}"
)
READ_NOTED = f"SELECT user_id FROM {CHAT_INVITATIONS} WHERE chat_id = ? AND user_id > ?"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Invitation).decode


class CassandraInvitations:
    def __init__(self, cassandra: Cassandra, clock: Clock, consents: Consents) -> None:
        self._cassandra = cassandra
        self._clock = clock
        self._consents = consents

    async def consents(self, actor_id: str, user_ids: Sequence[str]) -> dict[str, ConsentFacts]:
        found = await self._consents.newcomers(actor_id, user_ids)
        return {user_id: person.facts.consent for user_id, person in found.items()}

    async def invite(self, invitation: Invitation) -> list[str]:
        user_id, chat_id = invitation.user_id, invitation.chat_id
        for _ in range(ATTEMPTS_MAX):
            person = (await self._consents.newcomers(invitation.invited_by, [user_id])).get(user_id)
            if person is None:
                raise Refused(NO_SUCH_USER)
            if person.facts.consent.has_blocked:
                raise Refused(BLOCKED)
            member = await self._cassandra.row(READ_MEMBER, chat_id, user_id)
            if member is not None and member["role"] is not None:
                raise Refused(ALREADY_MEMBER)
            others = [one for one in await self._pending(user_id) if one.chat_id != chat_id]
            if sum(one.invited_by == invitation.invited_by for one in others) >= INVITATIONS_PER_INVITER_MAX:
                raise Refused(TOO_MANY_INVITED)
            waiting = sorted([*others, invitation], key=lambda one: (one.invited_at, one.chat_id))
            ended = sorted(one.chat_id for one in waiting[:-INVITATIONS_MAX])
            await self._cassandra.write(NOTE, chat_id, user_id)
            batch: list[Statement] = [(PUT, (user_id, INVITATION, chat_id, _encode(invitation).decode()))]
            batch += [(DELETE, (user_id, INVITATION, one)) for one in ended]
            if await self._consents.write(user_id, person.revision, *batch):
                return ended
        raise StoreUnavailable("this person's invitations are being written to by too many at once")

    async def _pending(self, user_id: str, after_chat_id: str = "") -> list[Invitation]:
        """In the order of the chats."""
        rows = await self._cassandra.rows(f"{READ_KIND} AND other_id > ?", user_id, INVITATION, after_chat_id)
        return [one for row in rows if (one := self._pending_in(row)) is not None]

    def _pending_in(self, row: Row | None) -> Invitation | None:
        invitation = _decode(row["record"]) if row is not None else None
        if invitation is None or invitation.invited_at <= expired_invitations(self._clock()):
            return None
        return invitation

    async def invitation(self, user_id: str, chat_id: str) -> Invitation | None:
        if not is_key(user_id, chat_id):
            return None
        return self._pending_in(await self._cassandra.row(READ_ONE, user_id, INVITATION, chat_id))

    async def of_user(self, user_id: str, after_chat_id: str, limit: int) -> list[Invitation]:
        return (await self._pending(user_id, after_chat_id))[:limit] if is_key(user_id) else []

    async def of_chat(self, chat_id: str, after_user_id: str, limit: int) -> list[Invitation]:
        found: list[Invitation] = []
        if not is_key(chat_id):
            return found
        for row in await self._cassandra.rows(READ_NOTED, chat_id, after_user_id):
            if len(found) >= limit:
                break
            invitation = await self.invitation(row["user_id"], chat_id)
            found += [invitation] if invitation is not None else []
        return found

    async def end(self, user_id: str, chat_id: str) -> bool:
        for _ in range(ATTEMPTS_MAX):
            revision = await self._consents.revision(user_id) if is_key(user_id) else None
            if await self.invitation(user_id, chat_id) is None:
                return False
            is_joining = await self._consents.is_joining(user_id, chat_id)
            if await self._consents.write(user_id, revision, (DELETE, (user_id, INVITATION, chat_id))):
                await self._consents.end_joining(user_id)
                return not (is_joining and await self._consents.has_joined(user_id, chat_id))
        raise StoreUnavailable("this person's invitations are being written to by too many at once")
