"""What a person says to being put into a chat, read for the write that puts them there.

A shared store first reads a revision of the person, then this. The write compares the revision, and whoever
changes what a person says moves it afterwards (`Directory.fence`): so what has changed meanwhile is decided
again. An engine that decides in the transaction of the write reads the same records there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from parley.concurrency import map_concurrently
from parley.core.consent import ConsentFacts
from parley.core.permissions import JoinFacts
from parley.model import AccountState, Invitation, PersonConsent, Role, User
from parley.store.ports import Records
from parley.store.rules import expired_invitations
from parley.store.tables import CONSENTS, CONTACTS, alone

COUNTS_AT_ONCE_MAX = 16

Revision = TypeVar("Revision")
CountChats = Callable[[str], Awaitable[tuple[int, int]]]
"""How many chats a person is in, and how many of them unasked."""


class Newcomer(NamedTuple, Generic[Revision]):
    """A person who may be added: what they say to it, and as of which revision."""

    user_id: str
    facts: JoinFacts
    """Those about the person, not about the chat."""
    said: PersonConsent | None
    revision: Revision

    @property
    def is_unasked(self) -> bool:
        return not self.facts.consent.is_contact

    def facts_in(self, chat_id: str, members: int, now_ms: int) -> JoinFacts:
        """The same with those about a chat."""
        invitation = invitation_in(self.said, chat_id, now_ms)
        invited_as: Role | None = invitation.role if invitation is not None else None
        return replace(self.facts, chat_members=members, invited_as=invited_as)


async def newcomers(
    records: Records,
    actor_id: str,
    people: Mapping[str, tuple[User, Revision]],
    count_chats: CountChats,
    is_silent: Callable[[Revision], bool] = lambda _: False,
) -> dict[str, Newcomer[Revision]]:
    """Those of these people who are not deleted, in their order.

    `is_silent`: whether the person has never said anything, by their revision, so that nothing is looked for.
    """
    living = [user_id for user_id, (user, _) in people.items() if user.state is not AccountState.DELETED]
    spoken = [user_id for user_id in living if not is_silent(people[user_id][1])]
    (said, contacts), counts = await asyncio.gather(
        _said_to(records, actor_id, spoken), map_concurrently(count_chats, living, COUNTS_AT_ONCE_MAX)
    )
    return {
        user_id: Newcomer(
            user_id,
            join_facts(people[user_id][0], said.get(user_id), actor_id, user_id in contacts, counted),
            said.get(user_id),
            people[user_id][1],
        )
        for user_id, counted in zip(living, counts, strict=True)
    }


async def _said_to(
    records: Records, actor_id: str, user_ids: list[str]
) -> tuple[dict[str, PersonConsent], set[str]]:
    """What these people have said, and who of them has the actor as a contact."""
    found = await records.get(CONSENTS, [alone(user_id) for user_id in user_ids])
    said = {one.user_id: one for one in found if one is not None}
    asked = [(user_id, actor_id) for user_id, one in said.items() if one.contacts]
    contacts = await records.get(CONTACTS, asked)
    return said, {one.user_id for one in contacts if one is not None}


def join_facts(
    user: User, said: PersonConsent | None, actor_id: str, is_contact: bool, chats: tuple[int, int]
) -> JoinFacts:
    """`is_contact`: the person has the actor as a contact. `chats`: see `CountChats`."""
    total, unasked = chats
    return JoinFacts(
        user_chats=total,
        is_disabled=user.state is AccountState.DISABLED,
        consent=ConsentFacts(
            who_may_add=user.who_may_add,
            is_contact=is_contact,
            has_blocked=has_blocked(said, actor_id),
            unasked_chats=unasked,
        ),
    )


def has_blocked(said: PersonConsent | None, other_id: str) -> bool:
    return said is not None and other_id in said.blocks


def invitation_in(said: PersonConsent | None, chat_id: str, now_ms: int) -> Invitation | None:
    """The pending invitation to a chat."""
    expired = expired_invitations(now_ms)
    for one in said.invitations if said is not None else ():
        if one.chat_id == chat_id and one.invited_at > expired:
            return one
    return None


def uninvited(said: PersonConsent | None, chat_id: str) -> PersonConsent | None:
    """Without the invitation to a chat; None if there is none."""
    if said is None or all(one.chat_id != chat_id for one in said.invitations):
        return None
    return replace(said, invitations=tuple(one for one in said.invitations if one.chat_id != chat_id))
