"""The `Relations` port on DynamoDB: contacts, blocks, and how people are related.

The item (`user_id`, `other_id`) says whether the first person has the second as a contact or has blocked
them. The first person's own item counts both. Most people have no blocks, so most reads end there.

A block and its consequences are one transaction. If the two people have a direct chat, it marks the blocked
person's membership there and gives the chat a new membership revision, which every append compares (see
`atomic`). So an append on another node that still has the old membership fails its condition, reads again and
is refused. A block whose response was lost can be repeated: it was done or not, never half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, cast

from parley.clock import Clock
from parley.dynamodb import (
    Action,
    ConditionCheck,
    Delete,
    Dynamo,
    Item,
    TransactionCanceled,
    UpdateItem,
    is_valid_key,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.errors import NO_SUCH_USER, Refused, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import RelatedUser, Relation, Relationship, User, Visibility
from parley.store.dynamodb.chat_state import IS_BLOCKED, DynamoChatStates, fence
from parley.store.dynamodb.consents import (
    BLOCKED_SINCE,
    CONTACT_SINCE,
    COUNT,
    SINCE,
    relation_key,
)
from parley.store.dynamodb.people import EXISTS, NAMES, REVISION, USERS, person_key, read_people, user_in
from parley.store.dynamodb.schema import CHATS, COUNTERS, DELIVERY, DIRECT_CHATS, MEMBERSHIPS, RELATIONS
from parley.store.rules import RELATIONS_MAX, TOO_MANY_RELATED, direct_key

ATTEMPTS_MAX = 10
READS_AT_ONCE_MAX = 16
RELATIONS_PER_UNIT = 32
"""A query reads this many relations for one unit; read by key, each costs a unit."""
RELATIONS_PER_PAGE_MIN = 100

ChatIdsOf = Callable[[str], Awaitable[list[str]]]


class DynamoRelations:
    """`states`: this node's cache of chats. `chat_ids_of`: returns every chat that a person is in."""

    def __init__(
        self, dynamo: Dynamo, states: DynamoChatStates, clock: Clock, make_ids: Ids, chat_ids_of: ChatIdsOf
    ) -> None:
        self._dynamo = dynamo
        self._states = states
        self._clock = clock
        self._ids = make_ids
        self._chat_ids_of = chat_ids_of

    # Writing

    async def set_relation(
        self, user_id: str, other_id: str, relation: Relation, since: str | None
    ) -> str | None:
        for _ in range(ATTEMPTS_MAX):
            item: Item = {}
            if is_valid_key(user_id, other_id):
                item = await self._dynamo.get(RELATIONS, relation_key(user_id, other_id)) or {}
            actions = await self._actions(user_id, other_id, relation, since, item)
            if not actions:
                return str(item[SINCE[relation]]) if since is not None else None
            try:
                await self._transact(actions)
            except TransactionCanceled:
                continue  # something has changed since it was read
            return since
        raise StoreUnavailable("too many concurrent writes to the relations of these two people")

    async def _transact(self, actions: list[Action]) -> None:
        token = self._ids.next(EVENT, self._clock())
        await retry_unknown(lambda: self._dynamo.transact(actions, token))
        for action in actions:
            if isinstance(action, UpdateItem) and action.table == CHATS:
                self._states.doubt(str(action.key["chat_id"]))

    async def _actions(
        self, user_id: str, other_id: str, relation: Relation, since: str | None, item: Item
    ) -> list[Action]:
        """The transaction that sets the relation. Empty if it is already set."""
        people = await self._people([user_id, other_id])
        if since is not None and not {user_id, other_id} <= people.keys():
            raise Refused(NO_SUCH_USER)
        if (SINCE[relation] in item) == (since is not None):
            return []
        if since is not None and number(people[user_id], COUNT[relation]) >= RELATIONS_MAX[relation]:
            raise Refused(TOO_MANY_RELATED[relation])
        actions = [_write_relation(user_id, other_id, relation, since, item)]
        if user_id in people:
            actions.append(_write_count(user_id, relation, is_more=since is not None))
        if relation is Relation.BLOCK:
            actions += await self._write_direct_chat(user_id, other_id, is_blocked=since is not None)
        return actions

    async def _write_direct_chat(self, user_id: str, other_id: str, is_blocked: bool) -> list[Action]:
        """The writes of a block, or of its end, to their direct chat; if they have none, a check of that."""
        key: Item = {"direct_key": direct_key([user_id, other_id])}
        direct = await self._dynamo.get(DIRECT_CHATS, key)
        if direct is None:
            return [ConditionCheck(DIRECT_CHATS, key, "attribute_not_exists(direct_key)")]
        chat: Item = {"chat_id": direct["chat_id"]}
        member = chat | {"user_id": other_id}
        row, counter = await asyncio.gather(
            self._dynamo.get(MEMBERSHIPS, member), self._dynamo.get(COUNTERS, chat)
        )
        exists, missing = "attribute_exists(chat_id)", "attribute_not_exists(chat_id)"
        mark: Action
        if row is None:
            mark = ConditionCheck(MEMBERSHIPS, member, missing)
        elif is_blocked:
            mark = UpdateItem(MEMBERSHIPS, member, f"SET {IS_BLOCKED} = :blocked", {":blocked": True}, exists)
        else:
            mark = UpdateItem(MEMBERSHIPS, member, f"REMOVE {IS_BLOCKED}", None, exists)
        if not is_blocked:  # needs no new revision: no node caches that a member is blocked
            return [mark]
        revision = self._ids.next(EVENT, self._clock())
        return [mark, *fence(str(chat["chat_id"]), revision, counter)]

    # Reading

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[RelatedUser]:
        if not is_valid_key(user_id) or limit < 1:
            return []
        found: list[Item] = []
        start = relation_key(user_id, after_user_id) if is_valid_key(after_user_id) else None
        while len(found) < limit:
            page = await self._dynamo.query(
                RELATIONS,
                "user_id = :user",
                {":user": user_id},
                filter=f"attribute_exists({SINCE[relation]})",
                limit=max(limit - len(found), RELATIONS_PER_PAGE_MIN),
                start=start,
            )
            found, start = found + page.items, page.next_key
            if start is None:
                break
        return [
            RelatedUser(cast(str, item["other_id"]), cast(str, item[SINCE[relation]]))
            for item in found[:limit]
        ]

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        return {user_id: user_in(item) for user_id, item in (await self._people(user_ids)).items()}

    async def _people(self, user_ids: Iterable[str]) -> dict[str, Item]:
        return await read_people(self._dynamo, user_ids)

    async def visibility(self, user_ids: Sequence[str]) -> dict[str, Visibility]:
        people = await self._people(user_ids)
        blockers = [user_id for user_id, item in people.items() if number(item, COUNT[Relation.BLOCK]) > 0]
        blocked = dict(
            zip(blockers, await map_concurrently(self._blocked_by, blockers, READS_AT_ONCE_MAX), strict=True)
        )
        return {
            user_id: Visibility(user.send_read_receipts, blocked.get(user_id, frozenset()), user.is_bot)
            for user_id, user in ((user_id, user_in(item)) for user_id, item in people.items())
        }

    async def _blocked_by(self, user_id: str) -> frozenset[str]:
        items = await self._dynamo.query_all(
            RELATIONS,
            "user_id = :user",
            {":user": user_id},
            filter=f"attribute_exists({BLOCKED_SINCE})",
            projection="other_id",
        )
        return frozenset(cast(str, item["other_id"]) for item in items)

    async def relationships(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Relationship]:
        people = await self._people([*user_ids, viewer_id] if user_ids else [])
        viewer = people.get(viewer_id, {})
        if viewer_id not in user_ids:
            people.pop(viewer_id, None)
        others = {user_id: item for user_id, item in people.items() if user_id != viewer_id}
        mine = await self._relations_of(viewer_id, viewer, list(others))
        theirs = await self._relations_to(viewer_id, others)
        known = {user_id for user_id in others if CONTACT_SINCE in mine.get(user_id, {})}
        known &= {user_id for user_id, item in theirs.items() if CONTACT_SINCE in item}
        if not acquainted:
            known |= await self._sharing_chats(viewer_id, [each for each in others if each not in known])
        return {
            user_id: Relationship(
                user=user_in(item),
                is_contact=CONTACT_SINCE in mine.get(user_id, {}),
                has_contact=CONTACT_SINCE in theirs.get(user_id, {}),
                is_blocked=BLOCKED_SINCE in mine.get(user_id, {}),
                has_blocked=BLOCKED_SINCE in theirs.get(user_id, {}),
                is_acquainted=acquainted or user_id in known or user_id == viewer_id,
            )
            for user_id, item in people.items()
        }

    async def _relations_of(self, viewer_id: str, viewer: Item, others: list[str]) -> dict[str, Item]:
        """The viewer's relations to these people, read by keys or by a query, whichever is cheaper."""
        total = sum(max(0, number(viewer, count)) for count in COUNT.values())
        if not total or not others:
            return {}
        if total > len(others) * RELATIONS_PER_UNIT:
            keys = [relation_key(viewer_id, other) for other in others]
            items = await self._dynamo.batch_get(RELATIONS, keys)
        else:
            items = await self._dynamo.query_all(RELATIONS, "user_id = :user", {":user": viewer_id})
        return {cast(str, item["other_id"]): item for item in items}

    async def _relations_to(self, viewer_id: str, others: dict[str, Item]) -> dict[str, Item]:
        """The relations of these people to the viewer."""
        keys = [
            relation_key(user_id, viewer_id)
            for user_id, item in others.items()
            if any(number(item, count) for count in COUNT.values()) and is_valid_key(viewer_id)
        ]
        items = await self._dynamo.batch_get(RELATIONS, keys)
        return {cast(str, item["user_id"]): item for item in items}

    async def _sharing_chats(self, viewer_id: str, others: list[str]) -> set[str]:
        """Those of these people who are in a chat with the viewer."""
        chats = set(await self._chat_ids_of(viewer_id)) if others else set[str]()
        if not chats:
            return set()
        keys = {direct_key([viewer_id, other]): other for other in others}
        places: list[Item] = [{"direct_key": key} for key in keys if is_valid_key(key)]
        direct = {
            keys[cast(str, item["direct_key"])]
            for item in await self._dynamo.batch_get(DIRECT_CHATS, places)
            if item["chat_id"] in chats
        }
        rest = [other for other in others if other not in direct]
        shared = await map_concurrently(
            lambda other: self._is_in_one_of(other, chats), rest, READS_AT_ONCE_MAX
        )
        return direct | {other for other, is_shared in zip(rest, shared, strict=True) if is_shared}

    async def _is_in_one_of(self, user_id: str, chats: set[str]) -> bool:
        start: Item | None = None
        while True:
            page = await self._dynamo.query(
                DELIVERY,
                "user_id = :user",
                {":user": user_id, ":left": True},
                filter="has_left <> :left",
                projection="chat_id",
                start=start,
            )
            if any(row["chat_id"] in chats for row in page.items):
                return True
            start = page.next_key
            if start is None:
                return False


def _write_relation(user_id: str, other_id: str, relation: Relation, since: str | None, item: Item) -> Action:
    key, name = relation_key(user_id, other_id), SINCE[relation]
    if since is not None:
        values: Item = {":since": since}
        return UpdateItem(RELATIONS, key, f"SET {name} = :since", values, f"attribute_not_exists({name})")
    others = [other for other in SINCE.values() if other != name]
    if any(other in item for other in others):
        return UpdateItem(RELATIONS, key, f"REMOVE {name}", None, f"attribute_exists({name})")
    no_other = "".join(f" AND attribute_not_exists({other})" for other in others)
    return Delete(RELATIONS, key, f"attribute_exists({name}){no_other}")


def _write_count(user_id: str, relation: Relation, is_more: bool) -> UpdateItem:
    name, key = COUNT[relation], person_key(user_id)
    if not is_more:
        less: Item = {":less": -1, ":one": 1}
        return UpdateItem(USERS, key, f"ADD {name} :less, {REVISION} :one", less, EXISTS, NAMES)
    condition = f"{EXISTS} AND (attribute_not_exists({name}) OR {name} < :most)"
    values: Item = {":one": 1, ":most": RELATIONS_MAX[relation]}
    return UpdateItem(USERS, key, f"ADD {name} :one, {REVISION} :one", values, condition, NAMES)


# Blocks between two people


class Blocks(NamedTuple):
    """Whether the actor has blocked the other person, and the other way round."""

    by_actor: bool = False
    by_other: bool = False


async def blocks_between(dynamo: Dynamo, actor_id: str, other_id: str) -> Blocks:
    """Reads strongly. A transaction that relies on the result must include `check_blocks`."""
    keys = [relation_key(actor_id, other_id), relation_key(other_id, actor_id)]
    items = await dynamo.batch_get(RELATIONS, keys)
    blockers = {item["user_id"] for item in items if BLOCKED_SINCE in item}
    return Blocks(actor_id in blockers, other_id in blockers)


def check_blocks(actor_id: str, other_id: str, blocks: Blocks) -> list[Action]:
    """Conditions of a transaction: the blocks between the two are still these."""
    return [
        ConditionCheck(
            RELATIONS, key, f"attribute_{'exists' if is_blocked else 'not_exists'}({BLOCKED_SINCE})"
        )
        for key, is_blocked in (
            (relation_key(actor_id, other_id), blocks.by_actor),
            (relation_key(other_id, actor_id), blocks.by_other),
        )
    ]
