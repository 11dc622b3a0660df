"""The cost of the DynamoDB client alone: for a message in a full transaction, and in one of its own.

It runs against a stand-in that answers at once; the CPU is that of this process, which does nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.dynamodb.stage import SharedStage
from bench.dynamodb.transactions import FULL, actions_of, draft_for
from bench.rows import Row, ratio_row
from bench.world import Person, World
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.store import DynamoStore

AT_ONCE = 8
ROUNDS = 5
TRANSACTIONS_PER_ROUND = {FULL: 120, 1: 1_500}

Send = Callable[[], Awaitable[None]]
"""Sends the next transaction."""
Prepare = Callable[[int, int], list[Send]]
"""Prepares so many transactions with so many messages, for as many senders as run at once."""


async def store_client(stage: SharedStage) -> list[Row]:
    """The client by itself, then the whole append."""
    author, chat_ids = await stage.populate(_author)
    async with stage.stand_in(delay_ms=0) as endpoint:
        dynamo = stage.client(endpoint)
        await dynamo.open()
        try:
            alone = await _compare(stage, "client", "store client", _sender(dynamo, chat_ids[0]))
        finally:
            await dynamo.close()
        async with stage.store(endpoint=endpoint) as store:
            whole = await _compare(stage, "append", "whole append", _appender(store, chat_ids, author))
    return alone + whole


async def _author(world: World) -> tuple[Person, list[str]]:
    [author] = await world.people(1)
    return author, [await world.group([author]) for _ in range(AT_ONCE)]


def _sender(dynamo: Dynamo, chat_id: str) -> Prepare:
    def prepare(transactions: int, messages: int) -> list[Send]:
        actions = actions_of(chat_id, 0, messages)

        async def send() -> None:
            await dynamo.transact(actions, f"evt_{time.perf_counter_ns()}")

        return [send] * transactions

    return prepare


def _appender(store: DynamoStore, chat_ids: list[str], author: Person) -> Prepare:
    """In several chats, because appends to one chat wait for each other."""

    def prepare(transactions: int, messages: int) -> list[Send]:
        return [batch_for(chat_ids[number % len(chat_ids)], messages) for number in range(transactions)]

    def batch_for(chat_id: str, messages: int) -> Send:
        drafts = [draft_for(chat_id, author.user_id) for _ in range(messages)]

        async def append() -> None:
            await store.log.append(drafts)

        return append

    return prepare


async def _compare(stage: SharedStage, name: str, label: str, prepare: Prepare) -> list[Row]:
    """The best of a few rounds for each size, in turn: other programs can only slow a round down."""
    costs: dict[int, list[float]] = {size: [] for size in TRANSACTIONS_PER_ROUND}
    await _round(prepare(4 * AT_ONCE, FULL), FULL)
    for _ in range(stage.pick(ROUNDS, 2)):
        for size, count in TRANSACTIONS_PER_ROUND.items():
            costs[size].append(await _round(prepare(stage.pick(count, count // 4), size), size))
    full, single = min(costs[FULL]), min(costs[1])
    rounds = "; ".join(
        f"{size}: {', '.join(f'{us:.0f}' for us in found)} µs" for size, found in costs.items()
    )
    return [
        _row(f"shared_{name}_full", f"{label}, {FULL} messages per transaction", full, FULL),
        _row(f"shared_{name}_alone", f"{label}, one message per transaction", single, 1),
        ratio_row(f"shared_{name}_ratio", f"{label}, CPU of full against single", full / single, [rounds]),
    ]


async def _round(sends: list[Send], size: int) -> float:
    """CPU microseconds for each message."""
    left = iter(sends)

    async def send_some() -> None:
        for send in left:
            await send()

    cpu = time.process_time()
    await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))
    return 1e6 * (time.process_time() - cpu) / (len(sends) * size)


def _row(name: str, label: str, cpu_us: float, size: int) -> Row:
    return Row(name=name, label=label, unit="µs/message", value=cpu_us, batch=size)
