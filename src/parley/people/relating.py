"""Whom a person knows and whom they have blocked, and finding people."""

from __future__ import annotations

from msgspec import Struct

from parley.clock import Clock, iso
from parley.errors import BAD_REQUEST, NO_SUCH_USER, Refused
from parley.model import Relation, User
from parley.people.signals import PersonChanged, Signalling
from parley.store.ports import Accounts, Relations
from parley.wire.limits import PAGE_ENTRIES_MAX, USERNAME_LETTERS_MAX

NOT_YOURSELF = BAD_REQUEST.because("this is about other people, not yourself")


class Acquaintance(Struct, frozen=True):
    """A contact, or somebody who is blocked, with their names."""

    user: User
    since: str


class Relating:
    def __init__(self, relations: Relations, accounts: Accounts, signals: Signalling, clock: Clock) -> None:
        self._relations = relations
        self._accounts = accounts
        self._signals = signals
        self._clock = clock

    async def add(self, user_id: str, other_id: str, relation: Relation) -> Acquaintance:
        """Hold somebody so from now on; whoever is held so already stays as they are."""
        if user_id == other_id:
            raise Refused(NOT_YOURSELF)
        now = iso(self._clock())
        since = await self._relations.relate(user_id, other_id, relation, now)
        self._signals.tell(PersonChanged(user_id))
        profiles = await self._relations.profiles([other_id])
        if other_id not in profiles:
            raise Refused(NO_SUCH_USER)
        return Acquaintance(profiles[other_id], since or now)

    async def remove(self, user_id: str, other_id: str, relation: Relation) -> None:
        """Hold somebody so no more, also if they never were."""
        await self._relations.relate(user_id, other_id, relation, None)
        self._signals.tell(PersonChanged(user_id))

    async def listed(self, user_id: str, relation: Relation, after: str, limit: int) -> list[Acquaintance]:
        held = await self._relations.related(user_id, relation, after, min(limit, PAGE_ENTRIES_MAX))
        profiles = await self._relations.profiles([one.user_id for one in held])
        return [Acquaintance(profiles[one.user_id], one.since) for one in held if one.user_id in profiles]

    async def find(self, username: str) -> User:
        """The person with exactly this username."""
        found = await self._accounts.user_by_name(username) if _may_be_name(username) else None
        if found is None:
            raise Refused(NO_SUCH_USER)
        return found[0]


def _may_be_name(username: str) -> bool:
    return 1 <= len(username) <= USERNAME_LETTERS_MAX
