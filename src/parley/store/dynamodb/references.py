"""Breaches that only DynamoDB can have: attributes that contradict another table, and orphaned items.

There are no foreign keys and no joins, so tables refer to each other and repeat each other's counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import cast

from msgspec import Struct

from parley.model import Role
from parley.store.dynamodb.driver import Dynamo, Item, Value, map_concurrently, number
from parley.store.dynamodb.scans import chat_pages, is_lasting, member_pages, table_pages, text_of
from parley.store.dynamodb.schema import (
    CHATS,
    COUNTERS,
    DELIVERY,
    DEVICES,
    DIRECT_CHATS,
    KEYS,
    MEMBERSHIPS,
    MESSAGES,
    TABLES,
)
from parley.store.invariants import Breach

CHATS_AT_ONCE_MAX = 8
COUNT_MEMBERS = "set member_count and owner_count of the chat in chats to what chat_memberships holds"
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


class Reference(Struct):
    """Each item of a table refers to an item of another, `by` these attributes or those of its key."""

    table: str
    target: str
    is_wrong: Callable[[Item, Item | None], bool] = is_orphan
    by: tuple[str, ...] = ()

    def key_of(self, row: Item) -> Item:
        names = KEY_NAMES[self.target]
        return {name: row.get(own) for name, own in zip(names, self.by or names, strict=True)}


REFERENCES = (
    Reference(COUNTERS, CHATS, is_orphaned_counter),
    Reference(MEMBERSHIPS, CHATS),
    Reference(DELIVERY, CHATS),
    Reference(DEVICES, CHATS),
    Reference(DIRECT_CHATS, CHATS, differs("direct_key")),
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
        """Check the member counts of chats."""
        async for chats in chat_pages(self._dynamo, chat_ids):
            for breaches in await map_concurrently(self._check_chat, chats, CHATS_AT_ONCE_MAX):
                for breach in breaches:
                    yield breach

    async def _check_chat(self, chat: Item) -> list[Breach]:
        chat_id, breaches = cast(str, chat["chat_id"]), list[Breach]()
        if await is_lasting(partial(self._is_miscounted, chat_id)):
            problem = "member_count or owner_count of the chat is wrong"
            breaches.append(Breach("membership", problem, COUNT_MEMBERS, chat_id))
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

    # Whole tables

    async def table_breaches(self, *, whole: bool) -> AsyncIterator[Breach]:
        """`whole`: include orphaned entries and keys, which reads all of them once more."""
        for reference in (*REFERENCES, *(LOGS if whole else ())):
            async for rows in table_pages(self._dynamo, reference.table):
                for breach in await self._check_rows(reference, rows):
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


def _values(key: Item) -> tuple[Value, ...]:
    return tuple(key.values())
