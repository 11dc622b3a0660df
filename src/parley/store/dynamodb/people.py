"""People, as the engine itself looks at them: their records, and what only it has beside these.

The item of a person also has the revision of their consent (see `consents`). Whoever writes the record leaves
that alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from parley.model import AccountState, User
from parley.store.dynamodb.driver import Dynamo, Item, is_valid_key, number
from parley.store.dynamodb.schema import CONSENT_REVISION, NUMBER, PARTITION, PLACE, RECORD, records_of
from parley.store.tables import ALONE, PEOPLE, user_of

USERS = records_of(PEOPLE)
REVISION = CONSENT_REVISION
NAMES = {"#record": RECORD}
EXISTS = "attribute_exists(#record)"


def person_key(user_id: str) -> Item:
    return {PARTITION: user_id, PLACE: ALONE}


def user_in(item: Item) -> User:
    return user_of(PEOPLE.decode(cast(str, item[RECORD]), number(item, NUMBER)))


def account_state(item: Item) -> AccountState:
    return PEOPLE.decode(cast(str, item[RECORD])).user.state


async def read_person(dynamo: Dynamo, user_id: str) -> Item | None:
    return await dynamo.get(USERS, person_key(user_id)) if is_valid_key(user_id) else None


async def read_people(dynamo: Dynamo, user_ids: Iterable[str]) -> dict[str, Item]:
    """The items of those who exist, in the order of the ids."""
    asked = [user_id for user_id in dict.fromkeys(user_ids) if is_valid_key(user_id)]
    items = await dynamo.batch_get(USERS, [person_key(user_id) for user_id in asked])
    found = {cast(str, item[PARTITION]): item for item in items}
    return {user_id: found[user_id] for user_id in asked if user_id in found}
