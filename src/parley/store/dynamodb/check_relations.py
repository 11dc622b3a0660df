"""Whether people count whom they hold, and whether blocks are marked where appends look for them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import cast

from parley.model import Relation
from parley.store.checks import Breach, Findings
from parley.store.dynamodb.blocks import RELATIONS, blocks_between
from parley.store.dynamodb.changes import USERS
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.looking import stays, told
from parley.store.dynamodb.relating import COUNT, SINCE
from parley.store.dynamodb.states import IS_BLOCKED, MEMBERSHIPS, number

COUNT_AGAIN = "set contact_count and block_count of the person in users to what relations holds"


def is_uncounted(row: Item, user: Item | None) -> bool:
    """Nobody holds them so, or whoever does is taken to hold nobody, and then this is never read."""
    return user is None or any(
        SINCE[relation] in row and number(user, COUNT[relation]) < 1 for relation in Relation
    )


class RelationCheck:
    def __init__(self, dynamo: Dynamo, findings: Findings) -> None:
        self._dynamo = dynamo
        self._findings = findings

    async def check(self, users: list[Item]) -> None:
        """A page of people; those who hold nobody are somebody else's to tell: see `is_uncounted`."""
        for user in users:
            is_holding = any(number(user, count) for count in COUNT.values())
            if is_holding and await stays(partial(self._is_miscounted, user)):
                says = f"{told(user, 'user_id')} counts other contacts or blocks than there are in relations"
                self._findings.add(Breach("references", says, COUNT_AGAIN))

    async def _is_miscounted(self, user: Item) -> bool:
        """Whether rows and counts differ although the counts stood still while the rows were read."""
        before, held = await self._counts(user), Counter[Relation]()
        rows = await self._dynamo.query_all(RELATIONS, "user_id = :user", {":user": user["user_id"]})
        for row in rows:
            held.update(relation for relation in Relation if SINCE[relation] in row)
        after = await self._counts(user)
        return before == after and after != [held[relation] for relation in Relation]

    async def _counts(self, user: Item) -> list[int]:
        found = await self._dynamo.get(USERS, {"user_id": user["user_id"]}) or {}
        return [number(found, COUNT[relation]) for relation in Relation]


async def is_mismarked(dynamo: Dynamo, chat: Item, people: list[str]) -> bool:
    """Whether a direct chat of these two marks others as blocked than are."""
    one, other = people
    keys: list[Item] = [{"chat_id": chat["chat_id"], "user_id": person} for person in people]
    rows = await dynamo.batch_get(MEMBERSHIPS, keys)
    marked = {cast(str, row["user_id"]): bool(row.get(IS_BLOCKED)) for row in rows}
    blocks = await blocks_between(dynamo, one, other)
    return marked != {one: blocks.by_other, other: blocks.by_actor}
