"""Tables with something in them: made through the real rooms, to be broken by hand."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from parley import ids
from parley.clock import from_iso
from parley.model import Relation, Session
from parley.sequencing.dynamodb import DynamoAllocator
from parley.store.checks import Findings
from parley.store.dynamodb.check import check_tables_of
from parley.store.dynamodb.client import Dynamo, Item
from parley.store.dynamodb.entries import put_void
from parley.store.dynamodb.schema import create_tables
from parley.store.dynamodb.store import DynamoStore
from parley.telemetry import Metrics
from tests.integration.small_world import BEGINNING, VOID_AT, Ticking, populate
from tests.services import dynamodb_endpoint, fresh_prefix

REGION = "us-east-1"
GROUP: Item = {"chat_id": "chat_group"}
DIRECT: Item = {"chat_id": "chat_direct"}

T = TypeVar("T")
Work = Callable[[Dynamo], Coroutine[Any, Any, T]]


def at(sequence: int) -> Item:
    """The place of an entry of the group."""
    return {"chat_id": "chat_group", "sequence": sequence}


def open_store(dynamo: Dynamo, *, two_phase: bool = False) -> DynamoStore:
    clock = Ticking()
    allocator = DynamoAllocator(dynamo, clock=clock, random=random.random) if two_phase else None
    make_ids = ids.Ids(random.Random(dynamo.prefix).getrandbits)
    return DynamoStore(dynamo, clock=clock, ids=make_ids, metrics=Metrics(clock), allocator=allocator)


async def fill(dynamo: Dynamo, *, two_phase: bool = False) -> None:
    """The small world with a void in its group; Ben has a session, and Ann blocks him."""
    store = open_store(dynamo, two_phase=two_phase)
    await populate(store)
    await store.accounts.add_session(
        Session("ses_ben", "user_ben", "phone", "a phone", 1, 1, 2**52), b"hash of a token"
    )
    await store.relations.relate("user_ann", "user_ben", Relation.BLOCK, BEGINNING)
    await store.relations.relate("user_ann", "user_cas", Relation.CONTACT, BEGINNING)
    await store.cursors.close()
    await store.outbox.close()
    await _make_void(dynamo, VOID_AT)


async def _make_void(dynamo: Dynamo, sequence: int) -> None:
    entry = await dynamo.get("messages", at(sequence))
    assert entry is not None
    key: Item = {"chat_id": "chat_group", "client_message_id": entry["client_message_id"]}
    await dynamo.delete("idempotency_keys", key)
    await dynamo.put("messages", put_void("chat_group", sequence, 1).item)


@asynccontextmanager
async def filled(*, two_phase: bool = False) -> AsyncIterator[Dynamo]:
    """A client of tables of their own, filled."""
    dynamo = Dynamo(await asyncio.to_thread(dynamodb_endpoint), REGION, prefix=fresh_prefix())
    await dynamo.open()
    try:
        await create_tables(dynamo)
        await fill(dynamo, two_phase=two_phase)
        yield dynamo
    finally:
        await dynamo.close()


async def set_in(dynamo: Dynamo, table: str, key: Item, **attributes: Any) -> None:
    """What somebody with the console in hand can do to an item; None removes an attribute."""
    names = {f"#{name}": name for name in attributes}
    values: Item = {f":{name}": value for name, value in attributes.items() if value is not None}
    sets = ", ".join(f"#{name} = :{name}" for name, value in attributes.items() if value is not None)
    removes = ", ".join(f"#{name}" for name, value in attributes.items() if value is None)
    expression = f"{f'SET {sets}' if sets else ''} {f'REMOVE {removes}' if removes else ''}"
    await dynamo.update(table, key, expression, values or None, names=names)


async def check(dynamo: Dynamo, *chat_ids: str, **options: Any) -> Findings:
    options = {"is_atomic": True, "clock": lambda: from_iso(BEGINNING) + 60_000, **options}
    return await check_tables_of(dynamo, list(chat_ids) or None, **options)


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """For a test that is not a coroutine itself."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
