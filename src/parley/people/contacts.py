"""A user's contacts and blocks, and the search for a user by name."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from parley.clock import Clock, iso
from parley.ephemeral.ports import Signals
from parley.ephemeral.signals import UserChangedSignal
from parley.errors import BAD_REQUEST, NO_SUCH_USER, Refused
from parley.model import Relation, User
from parley.records.accounts import Accounts
from parley.records.relations import Relations
from parley.wire.limits import PAGE_ENTRIES_MAX, USERNAME_CHARS_MAX

NOT_YOURSELF = BAD_REQUEST.because("you cannot add or block yourself")


class RelatedProfile(Struct, frozen=True):
    """A contact or a blocked user, with their names."""

    user: User
    since: str


class ContactService:
    def __init__(self, relations: Relations, accounts: Accounts, signals: Signals, clock: Clock) -> None:
        self._relations = relations
        self._accounts = accounts
        self._signals = signals
        self._clock = clock

    async def add(self, user_id: str, other_id: str, relation: Relation) -> RelatedProfile:
        """Add a person to the contacts, or block them. Repeating it changes nothing."""
        if user_id == other_id:
            raise Refused(NOT_YOURSELF)
        now = iso(self._clock())
        since = await self._relations.set_relation(user_id, other_id, relation, now)
        self._signals.publish(UserChangedSignal(user_id))
        profiles = await self._relations.profiles([other_id])
        if other_id not in profiles:
            raise Refused(NO_SUCH_USER)
        return RelatedProfile(profiles[other_id], since or now)

    async def remove(self, user_id: str, other_id: str, relation: Relation) -> None:
        """Remove a contact or a block. It is no error if there is none."""
        await self._relations.set_relation(user_id, other_id, relation, None)
        self._signals.publish(UserChangedSignal(user_id))

    async def listed(self, user_id: str, relation: Relation, after: str, limit: int) -> list[RelatedProfile]:
        held = await self._relations.related(user_id, relation, after, min(limit, PAGE_ENTRIES_MAX))
        profiles = await self._relations.profiles([one.user_id for one in held])
        return [RelatedProfile(profiles[one.user_id], one.since) for one in held if one.user_id in profiles]

    async def profiles(self, user_ids: Sequence[str]) -> list[User]:
        """Those of these people who exist, in this order."""
        found = await self._relations.profiles(user_ids)
        return [found[user_id] for user_id in user_ids if user_id in found]

    async def find(self, username: str) -> User:
        """The user with exactly this username."""
        is_possible = 1 <= len(username) <= USERNAME_CHARS_MAX
        found = await self._accounts.user_by_name(username) if is_possible else None
        if found is None:
            raise Refused(NO_SUCH_USER)
        return found[0]
