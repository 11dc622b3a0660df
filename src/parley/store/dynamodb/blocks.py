"""Who of two people has blocked the other, and how a transaction makes sure that it is still so."""

from __future__ import annotations

from typing import NamedTuple

from parley.store.dynamodb.actions import Action, Check
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.values import Item

RELATIONS = "relations"
BLOCKED_SINCE = "blocked_since"
CONTACT_SINCE = "contact_since"


class Blocks(NamedTuple):
    """Between one who acts and another one."""

    by_actor: bool = False
    by_other: bool = False


def relation_key(user_id: str, other_id: str) -> Item:
    return {"user_id": user_id, "other_id": other_id}


async def blocks_between(dynamo: Dynamo, actor_id: str, other_id: str) -> Blocks:
    """Read strongly, each by itself: see `still`."""
    keys = [relation_key(actor_id, other_id), relation_key(other_id, actor_id)]
    items = await dynamo.batch_get(RELATIONS, keys)
    blockers = {item["user_id"] for item in items if BLOCKED_SINCE in item}
    return Blocks(actor_id in blockers, other_id in blockers)


def still(actor_id: str, other_id: str, blocks: Blocks) -> list[Action]:
    """Conditions of a transaction that rests on this."""
    return [
        _check(actor_id, other_id, blocks.by_actor),
        _check(other_id, actor_id, blocks.by_other),
    ]


def _check(user_id: str, other_id: str, is_blocked: bool) -> Check:
    condition = f"attribute_{'exists' if is_blocked else 'not_exists'}({BLOCKED_SINCE})"
    return Check(RELATIONS, relation_key(user_id, other_id), condition)
