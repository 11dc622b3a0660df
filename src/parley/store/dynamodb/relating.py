"""Writing a relation, in one transaction with all that follows from it.

A block follows the blocked one into the direct chat of the two: their membership there is marked, and the
membership gets a new revision, which every append compares (see `fences`). So an append that is under way
on any node, with a memory from before the block, fails its condition, looks again and is refused. As all of
it is one transaction, whoever repeats a block that was not answered finds it done or undone, never half.
"""

from __future__ import annotations

import asyncio

from parley.clock import Clock
from parley.errors import Refused, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import Relation
from parley.store.dynamodb.actions import Action, Check, Delete, Update
from parley.store.dynamodb.blocks import BLOCKED_SINCE, CONTACT_SINCE, RELATIONS, relation_key
from parley.store.dynamodb.changes import USERS
from parley.store.dynamodb.client import Dynamo, Item, TransactionCanceled
from parley.store.dynamodb.directory import DIRECT_CHATS
from parley.store.dynamodb.fences import update_chat
from parley.store.dynamodb.states import CHATS, COUNTERS, IS_BLOCKED, MEMBERSHIPS, ChatStates, number
from parley.store.dynamodb.together import is_key, repeated
from parley.store.rules import RELATIONS_MAX, TOO_MANY_RELATED, direct_key, no_user

SINCE = {Relation.CONTACT: CONTACT_SINCE, Relation.BLOCK: BLOCKED_SINCE}
COUNT = {Relation.CONTACT: "contact_count", Relation.BLOCK: "block_count"}
"""On the person's own item: how many they hold so. Most hold nobody, and then nobody has to look."""
LOOKS_MAX = 10


class Relating:
    """`states`: what this node remembers of chats, so that it need not find out by a failed write."""

    def __init__(self, dynamo: Dynamo, states: ChatStates, clock: Clock, make_ids: Ids) -> None:
        self._dynamo = dynamo
        self._states = states
        self._clock = clock
        self._ids = make_ids

    async def relate(self, user_id: str, other_id: str, relation: Relation, since: str | None) -> str | None:
        for _ in range(LOOKS_MAX):
            held = await self._held(user_id, other_id)
            actions = await self._plan(user_id, other_id, relation, since, held)
            if not actions:
                return str(held[SINCE[relation]]) if since is not None else None
            try:
                await self._transact(actions)
            except TransactionCanceled:
                continue  # something is not as it was read: the next look decides
            return since
        raise StoreUnavailable("these two are being written to by too many at once")

    async def _transact(self, actions: list[Action]) -> None:
        token = self._ids.next(EVENT, self._clock())
        await repeated(lambda: self._dynamo.transact(actions, token))
        for action in actions:
            if isinstance(action, Update) and action.table == CHATS:
                self._states.doubt(str(action.key["chat_id"]))

    async def _plan(
        self, user_id: str, other_id: str, relation: Relation, since: str | None, held: Item
    ) -> list[Action]:
        """What makes it true, under the conditions that it rests on; nothing if it is true already."""
        people = await self._people(user_id, other_id)
        for person in (user_id, other_id) if since is not None else ():
            if person not in people:
                raise Refused(no_user(person))
        if (SINCE[relation] in held) == (since is not None):
            return []
        if since is not None and number(people[user_id], COUNT[relation]) >= RELATIONS_MAX[relation]:
            raise Refused(TOO_MANY_RELATED[relation])
        actions: list[Action] = [_hold(user_id, other_id, relation, since, held)]
        if user_id in people:
            actions.append(_count(user_id, relation, is_more=since is not None))
        if relation is Relation.BLOCK:
            actions += await self._follow(user_id, other_id, is_blocked=since is not None)
        return actions

    async def _people(self, *user_ids: str) -> dict[str, Item]:
        keys: list[Item] = [{"user_id": user_id} for user_id in dict.fromkeys(user_ids) if is_key(user_id)]
        return {str(item["user_id"]): item for item in await self._dynamo.batch_get(USERS, keys)}

    async def _held(self, user_id: str, other_id: str) -> Item:
        if not is_key(user_id, other_id):
            return {}
        return await self._dynamo.get(RELATIONS, relation_key(user_id, other_id)) or {}

    async def _follow(self, user_id: str, other_id: str, is_blocked: bool) -> list[Action]:
        """What a block, or its end, does to the direct chat of the two; or that there still is none."""
        place: Item = {"direct_key": direct_key([user_id, other_id])}
        direct = await self._dynamo.get(DIRECT_CHATS, place)
        if direct is None:
            return [Check(DIRECT_CHATS, place, "attribute_not_exists(direct_key)")]
        chat: Item = {"chat_id": direct["chat_id"]}
        member = chat | {"user_id": other_id}
        row, counter = await asyncio.gather(
            self._dynamo.get(MEMBERSHIPS, member), self._dynamo.get(COUNTERS, chat)
        )
        marking = _mark(member, is_blocked) if row is not None else _nothing_at(MEMBERSHIPS, member)
        if not is_blocked:  # who is marked is looked at each time: nobody remembers it
            return [marking]
        revision = self._ids.next(EVENT, self._clock())
        fence = _fence(chat, revision) if counter is not None else _nothing_at(COUNTERS, chat)
        return [marking, update_chat(str(chat["chat_id"]), {"membership_revision": revision}), fence]


def _hold(user_id: str, other_id: str, relation: Relation, since: str | None, held: Item) -> Action:
    key, name = relation_key(user_id, other_id), SINCE[relation]
    if since is not None:
        return Update(
            RELATIONS, key, f"SET {name} = :since", {":since": since}, f"attribute_not_exists({name})"
        )
    others = [other for other in SINCE.values() if other != name]
    if any(other in held for other in others):
        return Update(RELATIONS, key, f"REMOVE {name}", None, f"attribute_exists({name})")
    alone = "".join(f" AND attribute_not_exists({other})" for other in others)
    return Delete(RELATIONS, key, f"attribute_exists({name}){alone}")


def _count(user_id: str, relation: Relation, is_more: bool) -> Update:
    name, key = COUNT[relation], Item({"user_id": user_id})
    if not is_more:
        return Update(USERS, key, f"ADD {name} :less", {":less": -1}, "attribute_exists(user_id)")
    condition = f"attribute_exists(user_id) AND (attribute_not_exists({name}) OR {name} < :most)"
    return Update(USERS, key, f"ADD {name} :one", {":one": 1, ":most": RELATIONS_MAX[relation]}, condition)


def _mark(member: Item, is_blocked: bool) -> Update:
    if is_blocked:
        values: Item = {":blocked": True}
        return Update(
            MEMBERSHIPS, member, f"SET {IS_BLOCKED} = :blocked", values, "attribute_exists(chat_id)"
        )
    return Update(MEMBERSHIPS, member, f"REMOVE {IS_BLOCKED}", None, "attribute_exists(chat_id)")


def _fence(chat: Item, revision: str) -> Update:
    """The counter, too: appends of `atomic` compare the revision there, and modes may be changed."""
    values: Item = {":revision": revision}
    return Update(COUNTERS, chat, "SET membership_revision = :revision", values, "attribute_exists(chat_id)")


def _nothing_at(table: str, key: Item) -> Check:
    return Check(table, key, "attribute_not_exists(chat_id)")
