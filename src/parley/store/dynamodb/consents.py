"""What a person says to being added to a chat, and the condition under which that is still so.

The person's own item has a revision, `consent_revision`. Everything that decides about their consent moves
it: their settings, contacts and blocks, and the state of their account. A transaction that adds a person
compares it, so an addition under way fails if one of these changes meanwhile, and is decided again.

How many chats they were put into unasked is counted in their rows of the chats. Two additions at the same
time may count the same, so from half of the limit on each addition by a stranger also moves the revision: of
those at the same time one is done, and the others count again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from parley.core.consent import ConsentFacts
from parley.core.permissions import JoinFacts
from parley.dynamodb import (
    Action,
    ConditionCheck,
    Dynamo,
    Item,
    UpdateItem,
    is_valid_key,
    map_concurrently,
    number,
)
from parley.model import AccountState, Relation
from parley.store.dynamodb.people import (
    EXISTS,
    NAMES,
    REVISION,
    USERS,
    person_key,
    read_people,
    user_in,
)
from parley.store.dynamodb.schema import DELIVERY, RELATIONS
from parley.wire.limits import UNASKED_CHATS_MAX, USER_CHATS_MAX

CONTACT_SINCE = "contact_since"
BLOCKED_SINCE = "blocked_since"
SINCE = {Relation.CONTACT: CONTACT_SINCE, Relation.BLOCK: BLOCKED_SINCE}
COUNT = {Relation.CONTACT: "contact_count", Relation.BLOCK: "block_count"}
"""Attributes of the person's own item: how many contacts they have, and how many people they block."""
IS_UNASKED = "is_unasked"
"""On a person's row of a chat: a member who was not their contact added them."""
COUNTS_AT_ONCE_MAX = 16
MOVE_CONSENT = f"ADD {REVISION} :one"
"""What a person says to being added is decided again."""
CONTENDED_FROM = UNASKED_CHATS_MAX // 2


class Newcomer(NamedTuple):
    """A person who may be added: what they say to it, and as of which revision."""

    user_id: str
    facts: JoinFacts
    """Those about the person, not about the chat."""
    revision: int | None

    @property
    def is_unasked(self) -> bool:
        return not self.facts.consent.is_contact

    @property
    def fence(self) -> Action:
        """The condition of the transaction that adds them: nothing of this has changed."""
        if self.is_unasked and self.facts.consent.unasked_chats >= CONTENDED_FROM:
            condition, values = self._is_as_seen
            key = person_key(self.user_id)
            return UpdateItem(USERS, key, MOVE_CONSENT, values | {":one": 1}, condition, NAMES)
        return self.check

    @property
    def check(self) -> Action:
        """The same, where nothing is counted."""
        condition, values = self._is_as_seen
        return ConditionCheck(USERS, person_key(self.user_id), condition, values or None, NAMES)

    @property
    def _is_as_seen(self) -> tuple[str, Item]:
        if self.revision is None:
            return f"{EXISTS} AND attribute_not_exists({REVISION})", {}
        return f"{EXISTS} AND {REVISION} = :seen", {":seen": self.revision}


def relation_key(user_id: str, other_id: str) -> Item:
    return {"user_id": user_id, "other_id": other_id}


async def newcomers(dynamo: Dynamo, actor_id: str, user_ids: Sequence[str]) -> dict[str, Newcomer]:
    """Those who exist and are not deleted, in their order. The revision is read before what it covers."""
    people = await read_people(dynamo, user_ids)
    profiles = {user_id: user_in(item) for user_id, item in people.items()}
    users = {
        user_id: item
        for user_id, item in people.items()
        if profiles[user_id].state is not AccountState.DELETED
    }
    known = list(users)
    related = [
        relation_key(user_id, actor_id)
        for user_id in known
        if any(number(users[user_id], count) for count in COUNT.values()) and is_valid_key(actor_id)
    ]
    relations = {cast(str, item["user_id"]): item for item in await dynamo.batch_get(RELATIONS, related)}
    counts = await map_concurrently(lambda user: count_chats(dynamo, user), known, COUNTS_AT_ONCE_MAX)
    return {
        user_id: Newcomer(
            user_id,
            JoinFacts(
                user_chats=total,
                is_disabled=profiles[user_id].state is AccountState.DISABLED,
                consent=ConsentFacts(
                    who_may_add=profiles[user_id].who_may_add,
                    is_contact=CONTACT_SINCE in relations.get(user_id, {}),
                    has_blocked=BLOCKED_SINCE in relations.get(user_id, {}),
                    unasked_chats=unasked,
                ),
            ),
            cast("int | None", users[user_id].get(REVISION)),
        )
        for user_id, (total, unasked) in zip(known, counts, strict=True)
    }


async def count_chats(dynamo: Dynamo, user_id: str) -> tuple[int, int]:
    """How many chats a person is in, and how many of them unasked. Stops counting at the limit."""
    total = unasked = 0
    start: Item | None = None
    while True:
        page = await dynamo.query(
            DELIVERY,
            "user_id = :user",
            {":user": user_id, ":left": True},
            filter="has_left <> :left",
            projection=IS_UNASKED,
            start=start,
        )
        total += len(page.items)
        unasked += sum(bool(row.get(IS_UNASKED)) for row in page.items)
        start = page.next_key
        if start is None or total > USER_CHATS_MAX:
            return total, unasked
