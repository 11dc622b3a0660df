"""Tables with something in them: made through the real rooms, to be broken by hand."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from parley import ids
from parley.checks.check import check as check_store
from parley.clock import Clock, from_iso
from parley.model import Invitation, Relation, Role, Session
from parley.records.kinds import Kinds
from parley.store.dynamodb.allocator import DynamoAllocator
from parley.store.dynamodb.driver import Dynamo, Item, RequestRejected
from parley.store.dynamodb.entries import put_void
from parley.store.dynamodb.schema import TABLES, Table, create_tables
from parley.store.dynamodb.store import DynamoStore
from parley.store.invariants import Findings
from parley.telemetry import Metrics
from tests.integration.small_world import VOID_AT, Ticking, populate
from tests.services import dynamodb_endpoint, fresh_prefix

REGION = "us-east-1"
BEGINNING = "2100-01-01T00:00:00.000Z"
"""Far ahead: the emulator deletes keys whose time has run out by its own clock, in the midst of any test."""
GROUP: Item = {"chat_id": "chat_group"}
DIRECT: Item = {"chat_id": "chat_direct"}

T = TypeVar("T")
Work = Callable[[Dynamo], Coroutine[Any, Any, T]]


def at(sequence: int) -> Item:
    """The place of an entry of the group."""
    return {"chat_id": "chat_group", "sequence": sequence}


def open_store(
    dynamo: Dynamo,
    *,
    two_phase: bool = False,
    clock: Clock | None = None,
) -> DynamoStore:
    clock = clock or Ticking(BEGINNING)
    allocator = DynamoAllocator(dynamo, clock=clock, random=random.random) if two_phase else None
    make_ids = ids.Ids(random.Random(dynamo.prefix).getrandbits)
    return DynamoStore(
        dynamo,
        clock=clock,
        ids=make_ids,
        metrics=Metrics(clock),
        allocator=allocator,
    )


async def fill(dynamo: Dynamo, *, two_phase: bool = False) -> None:
    """The small world with a void in its group; Ben has a session, Ann blocks him, and Cas is invited."""
    store = open_store(dynamo, two_phase=two_phase)
    await populate(store)
    await Kinds(store, lambda: 0).sessions.add(
        Session("ses_ben", "user_ben", "phone", "a phone", 1, 1, 2**52), b"hash of a token"
    )
    kinds = Kinds(store, Ticking(BEGINNING))
    await kinds.relations.set_relation("user_ann", "user_ben", Relation.BLOCK, BEGINNING)
    await kinds.relations.set_relation("user_ann", "user_cas", Relation.CONTACT, BEGINNING)
    invitation = Invitation("user_cas", "chat_direct", "user_ann", Role.MEMBER, BEGINNING)
    await kinds.invitations.invite(invitation)
    await store.cursors.close()
    await store.outbox.close()
    await _make_void(dynamo, VOID_AT)


async def _make_void(dynamo: Dynamo, sequence: int) -> None:
    entry = await dynamo.get("messages", at(sequence))
    assert entry is not None
    key: Item = {"chat_id": "chat_group", "client_message_id": entry["client_message_id"]}
    await dynamo.batch_delete("idempotency_keys", [key])
    await dynamo.put("messages", put_void("chat_group", sequence, 1).item)


class Filled(NamedTuple):
    """Tables that were filled, and every item that was in them then."""

    prefix: str
    items: dict[str, dict[str, Item]]


_filled: dict[bool, Filled] = {}
"""Of this process, by two_phase: making and filling tables takes longer than the tests that break them."""


@asynccontextmanager
async def filled(*, two_phase: bool = False) -> AsyncIterator[Dynamo]:
    """A client of filled tables that nobody else uses; nothing is left of what an earlier test did there."""
    there = _filled.pop(two_phase, None)
    prefix = fresh_prefix() if there is None else there.prefix
    dynamo = Dynamo(await asyncio.to_thread(dynamodb_endpoint), REGION, prefix=prefix)
    await dynamo.open()
    try:
        if there is None:
            await create_tables(dynamo)
            await fill(dynamo, two_phase=two_phase)
            there = Filled(prefix, {table.name: await _items(dynamo, table) for table in TABLES.values()})
        else:
            await _restore_all(dynamo, there)
        yield dynamo
        _filled[two_phase] = there
    finally:
        await dynamo.close()


async def _items(dynamo: Dynamo, table: Table) -> dict[str, Item]:
    """All of a table, by their keys."""
    page = await dynamo.scan(table.name)
    assert page.next_key is None, "the small world fits into a page"
    return {str(_key(table, item)): item for item in page.items}


async def _restore_all(dynamo: Dynamo, there: Filled) -> None:
    def restore() -> list[Coroutine[Any, Any, None]]:
        return [_restore(dynamo, table, there.items[table.name]) for table in TABLES.values()]

    ends = await asyncio.gather(*restore(), return_exceptions=True)
    if any(isinstance(end, RequestRejected) for end in ends):  # a table was deleted
        await create_tables(dynamo)
        ends = await asyncio.gather(*restore())
    assert not any(ends)


async def _restore(dynamo: Dynamo, table: Table, items: dict[str, Item]) -> None:
    found = await _items(dynamo, table)
    for key, item in found.items():
        if key not in items:
            await dynamo.batch_delete(table.name, [_key(table, item)])
    for key, item in items.items():
        if found.get(key) != item:
            await dynamo.put(table.name, item)


def _key(table: Table, item: Item) -> Item:
    return {name: item[name] for name in (table.hash_key, table.range_key) if name is not None}


async def set_in(dynamo: Dynamo, table: str, key: Item, **attributes: Any) -> None:
    """What somebody with the console in hand can do to an item; None removes an attribute."""
    names = {f"#{name}": name for name in attributes}
    values: Item = {f":{name}": value for name, value in attributes.items() if value is not None}
    sets = ", ".join(f"#{name} = :{name}" for name, value in attributes.items() if value is not None)
    removes = ", ".join(f"#{name}" for name, value in attributes.items() if value is None)
    expression = f"{f'SET {sets}' if sets else ''} {f'REMOVE {removes}' if removes else ''}"
    await dynamo.update(table, key, expression, values or None, names=names)


def soon_after() -> int:
    """A minute after the beginning of the small world."""
    return from_iso(BEGINNING) + 60_000


async def check(
    dynamo: Dynamo, *chat_ids: str, two_phase: bool = False, clock: Clock = soon_after, **options: Any
) -> Findings:
    store = open_store(dynamo, two_phase=two_phase, clock=clock)
    return await check_store(store, list(chat_ids) or None, **options)


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """For a test that is not a coroutine itself."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
