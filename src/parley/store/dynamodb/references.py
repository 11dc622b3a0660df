"""Breaches that only DynamoDB can have: attributes that contradict another table, and orphaned items.

There are no foreign keys and no joins, so tables refer to each other and repeat each other's counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import cast

from msgspec import Struct

from parley.dynamodb import Dynamo, Item, Value, map_concurrently, number
from parley.model import ChatType, Relation, Role
from parley.store.dynamodb.chat_state import IS_BLOCKED
from parley.store.dynamodb.consents import COUNT, SINCE
from parley.store.dynamodb.people import USERS
from parley.store.dynamodb.relations import blocks_between
from parley.store.dynamodb.scans import chat_pages, is_lasting, member_pages, table_pages, text_of
from parley.store.dynamodb.schema import (
    CHAT_INVITATIONS,
    CHATS,
    COUNTERS,
    DELIVERY,
    DEVICES,
    DIRECT_CHATS,
    INVITATIONS,
    KEYS,
    MEMBERSHIPS,
    MESSAGES,
    PARTITION,
    PLACE,
    RELATIONS,
    TABLES,
)
from parley.store.invariants import Breach
from parley.store.tables import ALONE

CHATS_AT_ONCE_MAX = 8
COUNT_MEMBERS = "set member_count and owner_count of the chat in chats to what chat_memberships holds"
COUNT_RELATIONS = "set contact_count and block_count of the person in users to what relations holds"
MARK_BLOCKED = (
    "set is_blocked in chat_memberships as relations has it (blocked_since), and then a new"
    " membership_revision in chats and chat_counters, the same in both"
)
ORPHANS_LISTED_MAX = 10
"""Of each table: a problem of one row is often a problem of thousands."""

KEY_NAMES = {
    table.name: [table.hash_key] if table.range_key is None else [table.hash_key, table.range_key]
    for table in TABLES.values()
}


def is_orphan(row: Item, target: Item | None) -> bool:
    """Whether its parent does not exist. Rows of a chat that is being created are written before the chat."""
    return target is None and not row.get("early")


def is_orphaned_counter(counter: Item, chat: Item | None) -> bool:
    """A counter at 0 may be that of a chat that was never created."""
    return chat is None and number(counter, "sequence_counter") > 0


def differs(*names: str) -> Callable[[Item, Item | None], bool]:
    """Whether its target does not exist, or does not refer back to it."""

    def differ(row: Item, target: Item | None) -> bool:
        return target is None or any(row.get(name) != target.get(name) for name in names)

    return differ


def is_uncounted(row: Item, user: Item | None) -> bool:
    """Whether its user does not exist, or has a count of 0, with which this row is never read."""
    return user is None or any(
        SINCE[relation] in row and number(user, COUNT[relation]) < 1 for relation in Relation
    )


class Reference(Struct):
    """Each item of a table refers to an item of another, `by` these attributes or those of its key."""

    table: str
    target: str
    is_wrong: Callable[[Item, Item | None], bool] = is_orphan
    by: tuple[str, ...] = ()

    def key_of(self, row: Item) -> Item:
        if self.target == USERS:
            return {PARTITION: row.get(self.by[0] if self.by else "user_id"), PLACE: ALONE}
        names = KEY_NAMES[self.target]
        return {name: row.get(own) for name, own in zip(names, self.by or names, strict=True)}


REFERENCES = (
    Reference(COUNTERS, CHATS, is_orphaned_counter),
    Reference(MEMBERSHIPS, CHATS),
    Reference(DELIVERY, CHATS),
    Reference(DEVICES, CHATS),
    Reference(DIRECT_CHATS, CHATS, differs("direct_key")),
    Reference(RELATIONS, USERS, is_uncounted),
    Reference(RELATIONS, USERS, by=("other_id",)),
    Reference(INVITATIONS, USERS),
    Reference(INVITATIONS, CHATS),
    Reference(INVITATIONS, CHAT_INVITATIONS, differs("invited_by", "role", "invited_at")),
    Reference(CHAT_INVITATIONS, INVITATIONS, differs("invited_by", "role", "invited_at")),
)
LOGS = (Reference(MESSAGES, CHATS), Reference(KEYS, CHATS))
"""The big tables. The check has read the rows of existing chats, so only orphaned rows are new."""


class ReferenceCheck:
    """Checks attributes that repeat another table, and references between items."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._listed: dict[str, set[str]] = {}

    # Chats

    async def chat_breaches(self, chat_ids: Sequence[str] | None) -> AsyncIterator[Breach]:
        """Check the member counts of chats, and the block marks of direct chats."""
        async for chats in chat_pages(self._dynamo, chat_ids):
            for breaches in await map_concurrently(self._check_chat, chats, CHATS_AT_ONCE_MAX):
                for breach in breaches:
                    yield breach

    async def _check_chat(self, chat: Item) -> list[Breach]:
        chat_id, breaches = cast(str, chat["chat_id"]), list[Breach]()
        if await is_lasting(partial(self._is_miscounted, chat_id)):
            problem = "member_count or owner_count of the chat is wrong"
            breaches.append(Breach("membership", problem, COUNT_MEMBERS, chat_id))
        people = str(chat.get("direct_key", "")).split("|")
        # A chat with oneself has no other person to block.
        is_pair = chat.get("chat_type") == ChatType.DIRECT.value and len(people) == 2
        if is_pair and await is_lasting(partial(self._is_mismarked, chat_id, *people)):
            problem = "is_blocked in chat_memberships contradicts relations"
            breaches.append(Breach("membership", problem, MARK_BLOCKED, chat_id))
        return breaches

    async def _is_miscounted(self, chat_id: str) -> bool:
        """Whether items and counts differ, although nothing changed during the reads."""
        before, count, owners = await self._dynamo.get(CHATS, {"chat_id": chat_id}), 0, 0
        async for rows in member_pages(self._dynamo, chat_id):
            count += len(rows)
            owners += sum(row.get("role") == Role.OWNER.value for row in rows)
        after = await self._dynamo.get(CHATS, {"chat_id": chat_id})
        if before is None or after is None:
            return False
        is_still = before.get("membership_revision") == after.get("membership_revision")
        return is_still and (number(after, "member_count"), number(after, "owner_count")) != (count, owners)

    async def _is_mismarked(self, chat_id: str, one: str, other: str) -> bool:
        """Whether the block marks of the direct chat of these two are wrong."""
        keys: list[Item] = [{"chat_id": chat_id, "user_id": user_id} for user_id in (one, other)]
        rows = await self._dynamo.batch_get(MEMBERSHIPS, keys)
        if len(rows) < 2:
            return False  # its key is wrong, which is reported as such
        marked = {cast(str, row["user_id"]): bool(row.get(IS_BLOCKED)) for row in rows}
        blocks = await blocks_between(self._dynamo, one, other)
        return marked != {one: blocks.by_other, other: blocks.by_actor}

    # Whole tables

    async def table_breaches(self, *, whole: bool) -> AsyncIterator[Breach]:
        """`whole`: include orphaned entries and keys, which reads all of them once more."""
        for reference in (*REFERENCES, *(LOGS if whole else ())):
            async for rows in table_pages(self._dynamo, reference.table):
                for breach in await self._check_rows(reference, rows):
                    yield breach
        async for people in table_pages(self._dynamo, USERS):
            for breach in await self._check_relation_counts(people):
                yield breach

    async def _check_rows(self, reference: Reference, rows: list[Item]) -> list[Breach]:
        keys = {_values(reference.key_of(row)): reference.key_of(row) for row in rows}
        whole = [key for key in keys.values() if None not in key.values()]
        found = {
            _values({name: item[name] for name in KEY_NAMES[reference.target]}): item
            for item in await self._dynamo.batch_get(reference.target, whole)
        }
        breaches = []
        for row in rows:
            if reference.is_wrong(row, found.get(_values(reference.key_of(row)))):
                breaches += await self._list(reference, row)
        return breaches

    async def _list(self, reference: Reference, row: Item) -> list[Breach]:
        """One breach for each missing target, not for each item that refers to it."""
        key = reference.key_of(row)
        name = ", ".join(text_of(key, attribute) for attribute in key)
        listed = self._listed.setdefault(f"{reference.table} {reference.target}", set())
        if name in listed or len(listed) >= ORPHANS_LISTED_MAX:
            return []
        if not await is_lasting(partial(self._is_wrong, reference, row)):
            return []
        listed.add(name)
        problem = f"{reference.table}: an item refers to {name}, which {reference.target} does not confirm"
        remedy = f"delete the item from {reference.table}, or restore the other one from a backup"
        return [Breach("references", problem, remedy, cast("str | None", row.get("chat_id")))]

    async def _is_wrong(self, reference: Reference, row: Item) -> bool:
        own = await self._dynamo.get(reference.table, {n: row[n] for n in KEY_NAMES[reference.table]})
        key = reference.key_of(row)
        target = None if None in key.values() else await self._dynamo.get(reference.target, key)
        return own is not None and reference.is_wrong(own, target)

    async def _check_relation_counts(self, users: list[Item]) -> list[Breach]:
        """Check a page of people. For a person with a count of 0 and relations, see `is_uncounted`."""
        breaches = []
        for user in users:
            is_holding = any(number(user, count) for count in COUNT.values())
            if is_holding and await is_lasting(partial(self._has_wrong_counts, user)):
                problem = f"contact_count or block_count of {text_of(user, PARTITION)} contradicts relations"
                breaches.append(Breach("references", problem, COUNT_RELATIONS))
        return breaches

    async def _has_wrong_counts(self, user: Item) -> bool:
        """Whether items and counts differ, although the counts did not change during the reads."""
        before, held = await self._relation_counts(user), Counter[Relation]()
        rows = await self._dynamo.query_all(RELATIONS, "user_id = :user", {":user": user[PARTITION]})
        for row in rows:
            held.update(relation for relation in Relation if SINCE[relation] in row)
        after = await self._relation_counts(user)
        return before == after and after != [held[relation] for relation in Relation]

    async def _relation_counts(self, user: Item) -> list[int]:
        found = await self._dynamo.get(USERS, {name: user[name] for name in KEY_NAMES[USERS]}) or {}
        return [number(found, COUNT[relation]) for relation in Relation]


def _values(key: Item) -> tuple[Value, ...]:
    return tuple(key.values())
