"""What a person says to being added to a chat, and the condition under which that is still so.

The person's own item has a revision, `consent_revision`. Everything that decides about their consent moves
it, when it is written (`Directory.fence`). A transaction that adds a person compares it, so an addition under
way fails if one of these changes meanwhile, and is decided again. A person without one has said nothing.

How many chats they were put into unasked is counted in their rows of the chats. Two additions at the same
time may count the same, so from half of the limit on each addition by a stranger also moves the revision: of
those at the same time one is done, and the others count again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from parley.store.consent import Newcomer, newcomers, uninvited
from parley.store.dynamodb.driver import (
    Action,
    ConditionCheck,
    Delete,
    Dynamo,
    Item,
    UpdateItem,
)
from parley.store.dynamodb.people import (
    EXISTS,
    NAMES,
    REVISION,
    USERS,
    person_key,
    read_people,
    user_in,
)
from parley.store.dynamodb.records import DynamoRecords, place_of, put_over
from parley.store.dynamodb.schema import DELIVERY, records_of
from parley.store.tables import CONSENTS, INVITED_PEOPLE
from parley.wire.limits import UNASKED_CHATS_MAX, USER_CHATS_MAX

IS_UNASKED = "is_unasked"
"""On a person's row of a chat: a member who was not their contact added them."""
MOVE_CONSENT = f"ADD {REVISION} :one"
"""What a person says to being added is decided again."""
CONTENDED_FROM = UNASKED_CHATS_MAX // 2

DynamoNewcomer = Newcomer["int | None"]


class DynamoConsents:
    def __init__(self, dynamo: Dynamo, records: DynamoRecords) -> None:
        self._dynamo = dynamo
        self._records = records

    async def newcomers(self, actor_id: str, user_ids: Sequence[str]) -> dict[str, DynamoNewcomer]:
        """Those who exist and are not deleted, in their order."""
        found = await read_people(self._dynamo, user_ids)
        people = {
            user_id: (user_in(item), cast("int | None", item.get(REVISION)))
            for user_id, item in found.items()
        }
        return await newcomers(
            self._records, actor_id, people, self._count_chats, lambda revision: revision is None
        )

    async def _count_chats(self, user_id: str) -> tuple[int, int]:
        """Stops counting at the limit."""
        total = unasked = 0
        start: Item | None = None
        while True:
            page = await self._dynamo.query(
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


def still_says(person: DynamoNewcomer) -> Action:
    """The condition of the transaction that adds a person: nothing of what was decided by has changed."""
    key, values = person_key(person.user_id), Item()
    condition = f"{EXISTS} AND attribute_not_exists({REVISION})"
    if person.revision is not None:
        condition, values = f"{EXISTS} AND {REVISION} = :seen", {":seen": person.revision}
    if person.is_unasked and person.facts.consent.unasked_chats >= CONTENDED_FROM:
        return UpdateItem(USERS, key, MOVE_CONSENT, values | {":one": 1}, condition, NAMES)
    return ConditionCheck(USERS, key, condition, values or None, NAMES)


def end_invitation(person: DynamoNewcomer, chat_id: str) -> list[Action]:
    """With the transaction that puts a person into a chat, their invitation to it ends, if there is one."""
    without = uninvited(person.said, chat_id)
    if without is None or person.said is None:
        return []
    line = place_of((chat_id, person.user_id))
    return [put_over(CONSENTS, without, person.said), Delete(records_of(INVITED_PEOPLE), line)]
