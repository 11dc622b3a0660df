"""The `Relations` port on DynamoDB.

A person's item counts whom they hold. Most hold nobody, so most questions about them end there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from parley.model import Manners, Regard, Related, Relation, User
from parley.store.dynamodb.accounts import user_in
from parley.store.dynamodb.blocks import BLOCKED_SINCE, CONTACT_SINCE, RELATIONS, relation_key
from parley.store.dynamodb.changes import DELIVERY, USERS
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.directory import DIRECT_CHATS
from parley.store.dynamodb.relating import COUNT, SINCE, Relating
from parley.store.dynamodb.states import number
from parley.store.dynamodb.together import is_key, together
from parley.store.rules import direct_key

LOOKS_AT_ONCE_MAX = 16
RELATIONS_PER_UNIT = 32
"""So many are read for one unit when they lie together; one by one, each takes a unit."""
RELATIONS_PER_PAGE_MIN = 100

ChatIdsOf = Callable[[str], Awaitable[list[str]]]


class DynamoRelations:
    """`chat_ids_of`: every chat that a person is in."""

    def __init__(self, dynamo: Dynamo, relating: Relating, chat_ids_of: ChatIdsOf) -> None:
        self._dynamo = dynamo
        self._relating = relating
        self._chat_ids_of = chat_ids_of

    async def relate(self, user_id: str, other_id: str, relation: Relation, since: str | None) -> str | None:
        return await self._relating.relate(user_id, other_id, relation, since)

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[Related]:
        if not is_key(user_id) or limit < 1:
            return []
        found: list[Item] = []
        start = relation_key(user_id, after_user_id) if is_key(after_user_id) else None
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
            Related(cast(str, item["other_id"]), cast(str, item[SINCE[relation]])) for item in found[:limit]
        ]

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        return {user_id: user_in(item) for user_id, item in (await self._people(user_ids)).items()}

    async def _people(self, user_ids: Iterable[str]) -> dict[str, Item]:
        """Items of those who exist, in the order in which they were asked for."""
        asked = [user_id for user_id in dict.fromkeys(user_ids) if is_key(user_id)]
        items = await self._dynamo.batch_get(USERS, [{"user_id": user_id} for user_id in asked])
        found = {cast(str, item["user_id"]): item for item in items}
        return {user_id: found[user_id] for user_id in asked if user_id in found}

    async def manners(self, user_ids: Sequence[str]) -> dict[str, Manners]:
        people = await self._people(user_ids)
        blockers = [user_id for user_id, item in people.items() if number(item, COUNT[Relation.BLOCK]) > 0]
        blocked = dict(
            zip(blockers, await together(self._blocked_by, blockers, LOOKS_AT_ONCE_MAX), strict=True)
        )
        return {
            user_id: Manners(user_in(item).send_read_receipts, blocked.get(user_id, frozenset()))
            for user_id, item in people.items()
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

    # How people stand to each other

    async def regards(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Regard]:
        people = await self._people([*user_ids, viewer_id] if user_ids else [])
        viewer = people.get(viewer_id, {})
        if viewer_id not in user_ids:
            people.pop(viewer_id, None)
        others = {user_id: item for user_id, item in people.items() if user_id != viewer_id}
        mine = await self._held_by(viewer_id, viewer, list(others))
        theirs = await self._holding(viewer_id, others)
        known = {user_id for user_id in others if CONTACT_SINCE in mine.get(user_id, {})}
        known |= {user_id for user_id, held in theirs.items() if CONTACT_SINCE in held}
        if not acquainted:
            known |= await self._sharing_chats(viewer_id, [each for each in others if each not in known])
        return {
            user_id: Regard(
                user=user_in(item),
                is_contact=CONTACT_SINCE in mine.get(user_id, {}),
                has_contact=CONTACT_SINCE in theirs.get(user_id, {}),
                is_blocked=BLOCKED_SINCE in mine.get(user_id, {}),
                has_blocked=BLOCKED_SINCE in theirs.get(user_id, {}),
                is_acquainted=acquainted or user_id in known or user_id == viewer_id,
            )
            for user_id, item in people.items()
        }

    async def _held_by(self, viewer_id: str, viewer: Item, others: list[str]) -> dict[str, Item]:
        """How the viewer holds these, whichever way to read it is cheaper."""
        held = sum(max(0, number(viewer, count)) for count in COUNT.values())
        if not held or not others:
            return {}
        if held > len(others) * RELATIONS_PER_UNIT:
            keys = [relation_key(viewer_id, other) for other in others]
            items = await self._dynamo.batch_get(RELATIONS, keys)
        else:
            items = await self._dynamo.query_all(RELATIONS, "user_id = :user", {":user": viewer_id})
        return {cast(str, item["other_id"]): item for item in items}

    async def _holding(self, viewer_id: str, others: dict[str, Item]) -> dict[str, Item]:
        """How these hold the viewer."""
        keys = [
            relation_key(user_id, viewer_id)
            for user_id, item in others.items()
            if any(number(item, count) for count in COUNT.values()) and is_key(viewer_id)
        ]
        items = await self._dynamo.batch_get(RELATIONS, keys)
        return {cast(str, item["user_id"]): item for item in items}

    async def _sharing_chats(self, viewer_id: str, others: list[str]) -> set[str]:
        """Those who are in a chat with the viewer."""
        chats = set(await self._chat_ids_of(viewer_id)) if others else set[str]()
        if not chats:
            return set()
        keys = {direct_key([viewer_id, other]): other for other in others}
        places: list[Item] = [{"direct_key": key} for key in keys if is_key(key)]
        direct = {
            keys[cast(str, item["direct_key"])]
            for item in await self._dynamo.batch_get(DIRECT_CHATS, places)
            if item["chat_id"] in chats
        }
        rest = [other for other in others if other not in direct]
        shared = await together(lambda other: self._is_in_one_of(other, chats), rest, LOOKS_AT_ONCE_MAX)
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
