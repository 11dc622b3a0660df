"""Whole tables: nothing belongs to what does not exist, and every position is in its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import cast

from msgspec import Struct

from parley.store.checks import Breach, Findings
from parley.store.dynamodb.accounts import USER_SESSIONS, USERNAMES
from parley.store.dynamodb.blocks import RELATIONS
from parley.store.dynamodb.changes import DELIVERY, USERS
from parley.store.dynamodb.check_cursors import CursorCheck
from parley.store.dynamodb.check_relations import RelationCheck, is_uncounted
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.cursor_writing import DEVICES, SESSIONS
from parley.store.dynamodb.directory import DIRECT_CHATS
from parley.store.dynamodb.entries import KEYS, MESSAGES
from parley.store.dynamodb.looking import stays, told
from parley.store.dynamodb.schema import TABLES
from parley.store.dynamodb.states import CHATS, COUNTERS, MEMBERSHIPS, number
from parley.store.dynamodb.values import Value

STRAYS_TOLD_MAX = 10
"""Of each table; what is wrong with one row of it is often wrong with thousands."""

KEY_NAMES = {
    table.name: [table.hash_key] if table.range_key is None else [table.hash_key, table.range_key]
    for table in TABLES
}


def is_stray(row: Item, target: Item | None) -> bool:
    """What it belongs to does not exist. Rows of a chat that is being created come before it."""
    return target is None and not row.get("early")


def is_stray_counter(counter: Item, chat: Item | None) -> bool:
    """A counter at 0 may be that of a chat which never came to be."""
    return chat is None and number(counter, "sequence_counter") > 0


def differs(*names: str) -> Callable[[Item, Item | None], bool]:
    """What it refers to does not exist, or does not refer back to it."""

    def differ(row: Item, target: Item | None) -> bool:
        return target is None or any(row.get(name) != target.get(name) for name in names)

    return differ


class Reference(Struct):
    """Each item of a table names one of another table: `by` these attributes, or those of the other's key."""

    table: str
    target: str
    is_wrong: Callable[[Item, Item | None], bool] = is_stray
    by: tuple[str, ...] = ()

    def key_of(self, row: Item) -> Item:
        names = KEY_NAMES[self.target]
        return {name: row.get(own) for name, own in zip(names, self.by or names, strict=True)}


REFERENCES = (
    Reference(COUNTERS, CHATS, is_stray_counter),
    Reference(MEMBERSHIPS, CHATS),
    Reference(DELIVERY, CHATS),
    Reference(DEVICES, CHATS),
    Reference(DIRECT_CHATS, CHATS, differs("direct_key")),
    Reference(USERS, USERNAMES, differs("user_id")),
    Reference(USERNAMES, USERS, differs("username")),
    Reference(SESSIONS, USERS),
    Reference(SESSIONS, USER_SESSIONS, differs("token_hash")),
    Reference(USER_SESSIONS, SESSIONS, differs("user_id", "session_id")),
    Reference(RELATIONS, USERS, is_uncounted),
    Reference(RELATIONS, USERS, by=("other_id",)),
)
LOGS = (Reference(MESSAGES, CHATS), Reference(KEYS, CHATS))
"""The big tables: what their chats hold was read already, so only what belongs to no chat is new."""


class ReferenceCheck:
    def __init__(self, dynamo: Dynamo, findings: Findings) -> None:
        self._dynamo = dynamo
        self._findings = findings
        self._cursors = CursorCheck(dynamo, findings)
        self._relations = RelationCheck(dynamo, findings)
        self._known: dict[str, set[str]] = {}

    async def check(self, *, whole: bool) -> None:
        """`whole`: look for entries and keys of no chat, too."""
        for reference in (*REFERENCES, *(LOGS if whole else ())):
            async for rows in self._pages(reference.table):
                await self._check_rows(reference, rows)
                if reference.table in (DELIVERY, DEVICES):
                    await self._cursors.check(reference.table, rows)
                elif reference.table == USERS:
                    await self._relations.check(rows)

    async def _pages(self, table: str) -> AsyncIterator[list[Item]]:
        start: Item | None = None
        while True:
            page = await self._dynamo.scan(table, start=start)
            yield page.items
            start = page.next_key
            if start is None:
                return

    async def _check_rows(self, reference: Reference, rows: list[Item]) -> None:
        keys = {_values(reference.key_of(row)): reference.key_of(row) for row in rows}
        whole = [key for key in keys.values() if None not in key.values()]
        found = {
            _values({name: item[name] for name in KEY_NAMES[reference.target]}): item
            for item in await self._dynamo.batch_get(reference.target, whole)
        }
        for row in rows:
            if reference.is_wrong(row, found.get(_values(reference.key_of(row)))):
                await self._tell(reference, row)

    async def _tell(self, reference: Reference, row: Item) -> None:
        """One breach for each thing that is missing, not for each item that belongs to it."""
        key = reference.key_of(row)
        name = ", ".join(told(key, attribute) for attribute in key)
        known = self._known.setdefault(f"{reference.table} {reference.target}", set())
        if name in known or len(known) >= STRAYS_TOLD_MAX:
            return
        if await stays(partial(self._is_wrong, reference, row)):
            known.add(name)
            chat_id = cast("str | None", row.get("chat_id"))
            says = f"{reference.table}: an item belongs to {name}, which is not so in {reference.target}"
            remedy = f"delete the item from {reference.table}, or restore the other one from a backup"
            self._findings.add(Breach("references", says, remedy, chat_id))

    async def _is_wrong(self, reference: Reference, row: Item) -> bool:
        own = await self._dynamo.get(reference.table, {n: row[n] for n in KEY_NAMES[reference.table]})
        key = reference.key_of(row)
        target = None if None in key.values() else await self._dynamo.get(reference.target, key)
        return own is not None and reference.is_wrong(own, target)


def _values(key: Item) -> tuple[Value, ...]:
    return tuple(key.values())
