"""People, as the engine itself looks at them: their records."""

from __future__ import annotations

from collections.abc import Iterable

from parley.model import User
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.schema import records_of
from parley.store.tables import ALONE, PEOPLE, user_of

USERS = records_of(PEOPLE)
READ_USER = f"SELECT partition, record, number FROM {USERS} WHERE partition = ? AND place = '{ALONE}'"


async def read_people(cassandra: Cassandra, user_ids: Iterable[str]) -> dict[str, User]:
    """Those who exist, in the order of the ids."""
    asked = [user_id for user_id in dict.fromkeys(user_ids) if is_key(user_id)]
    rows = await cassandra.rows_of(READ_USER, [(user_id,) for user_id in asked])
    people = (PEOPLE.decode(row["record"], row["number"] or 0) for row in rows if row["record"] is not None)
    found = {person.user.user_id: user_of(person) for person in people}
    return {user_id: found[user_id] for user_id in asked if user_id in found}
