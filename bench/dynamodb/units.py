"""Capacity units that DynamoDB would charge, counted from the requests.

DynamoDB Local counts a transaction as one item of each table, so it reports too little for writes: its
figure is only a note to our count, which follows AWS's rules (`bench.dynamodb.pricing`). Its figures for
reads are right.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bench.dynamodb.pricing import write_units
from bench.dynamodb.stage import SharedStage
from bench.dynamodb.transactions import FULL, draft_for
from bench.rows import Row
from bench.world import DEVICE_ID, Person, World
from parley.accounts.accounts import hash_token
from parley.clock import wall_clock
from parley.records.kinds import Kinds
from parley.store.dynamodb.allocator import DynamoAllocator
from parley.store.dynamodb.driver import Dynamo, Fault
from parley.store.dynamodb.store import DynamoStore
from parley.store.ports import Allocator

SOURCE_UNITS = 5
"""For comparison, allocation in a request of its own: one for the number, four for entry and key."""
CHATS_LOOKED_AT = 50
BATCHES = 4

AllocateBy = Callable[[Dynamo], Allocator]


class Meter:
    """Counts every request before it is sent."""

    def __init__(self) -> None:
        self.write_units: Counter[str] = Counter()

    def __call__(self, operation: str, request: Mapping[str, Any]) -> Fault | None:
        self.write_units[operation] += write_units(operation, request)
        return None

    @property
    def total(self) -> int:
        return sum(self.write_units.values())


async def capacity(stage: SharedStage) -> list[Row]:
    person, chats = await stage.populate(_chats)
    modes: list[tuple[str, AllocateBy | None]] = [("atomic", None), ("two_phase", _counter)]
    rows = [
        await _append(stage, person, chat_id, mode, allocate_by, size)
        for chat_id, (mode, allocate_by) in zip(chats, modes, strict=False)
        for size in (FULL, 1)
    ]
    return rows + await _beside(stage, person, chats)


async def _chats(world: World) -> tuple[Person, list[str]]:
    [person] = await world.people(1)
    return person, [await world.group([person]) for _ in range(CHATS_LOOKED_AT)]


def _counter(dynamo: Dynamo) -> Allocator:
    return DynamoAllocator(dynamo, clock=wall_clock, random=random.random)


async def _append(
    stage: SharedStage, person: Person, chat_id: str, mode: str, allocate_by: AllocateBy | None, size: int
) -> Row:
    """A few transactions of one size; the first append of a store fills its caches."""
    meter = Meter()
    async with stage.store(faults=meter, allocate_by=allocate_by, publishes=True) as store:
        await store.log.append([draft_for(chat_id, person.user_id)])
        capacity = store.dynamo.capacity
        reported, counted = sum(capacity.write_units.values()), meter.total
        read = sum(capacity.read_units.values())
        for _ in range(BATCHES):
            await store.log.append([draft_for(chat_id, person.user_id) for _ in range(size)])
        messages = BATCHES * size
        counted = meter.total - counted
        reported = sum(capacity.write_units.values()) - reported
        read = sum(capacity.read_units.values()) - read
    way = f"{size} per transaction" if size > 1 else "one per transaction"
    return Row(
        name=f"shared_units_{mode}_{size}",
        label=f"{mode}, {way}",
        unit="write units/message",
        value=counted / messages,
        batch=size,
        notes=[
            f"and {read / messages:.2f} read units",
            f"DynamoDB Local reports {reported / messages:.2f}; two requests would cost {SOURCE_UNITS}",
        ],
    )


async def _beside(stage: SharedStage, person: Person, chats: list[str]) -> list[Row]:
    """Other costs of a message and a connection: marks, positions, sessions, heads."""
    meter = Meter()
    async with stage.store(faults=meter, publishes=True) as store:
        [appended] = (await store.log.append([draft_for(chats[2], person.user_id)])).outcomes
        sequence = getattr(appended, "sequence", 1)
        store.outbox.note_published(chats[2], sequence)
        mark = await _writes(meter, store.outbox.flush)
        store.cursors.note_acked(person.user_id, DEVICE_ID, chats[2], sequence, wall_clock())
        position = await _writes(meter, store.cursors.flush)
        session = await _reads(
            store, lambda: Kinds(store, wall_clock).sessions.by_token(hash_token(person.token))
        )
        heads = await _reads(store, lambda: store.log.heads(chats)) / len(chats)
        membership = await _reads(store, lambda: store.directory.chat_ids_of(person.user_id))
        page = await _reads(store, lambda: store.log.read(chats[0], 0, 100))
    index = "1 more each when the chat enters and leaves the index of unpublished chats"
    return [
        _units("shared_units_mark", "mark of a chat that became quiet", mark, "write units", [index]),
        _units("shared_units_position", "position of one device", position, "write units"),
        _units("shared_units_session", "session of a heartbeat", session, "read units"),
        _units("shared_units_head", "head of one chat, looked at", heads, "read units"),
        _units("shared_units_membership", f"the {len(chats)} chats of a person", membership, "read units"),
        _units("shared_units_page", "page of 100 messages of 128 bytes", page, "read units"),
    ]


async def _writes(meter: Meter, work: Callable[[], Awaitable[object]]) -> float:
    before = meter.total
    await work()
    return meter.total - before


async def _reads(store: DynamoStore, work: Callable[[], Awaitable[object]]) -> float:
    before = sum(store.dynamo.capacity.read_units.values())
    await work()
    return sum(store.dynamo.capacity.read_units.values()) - before


def _units(name: str, label: str, value: float, unit: str, notes: list[str] | None = None) -> Row:
    return Row(name=name, label=label, unit=unit, value=value, notes=notes or [])
