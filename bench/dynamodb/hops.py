"""What a message costs at each hop: every role in a process of its own, with CPU per process.

The CPU that a process uses when idle is subtracted. The store is a stand-in with the delay of a real
DynamoDB, Kafka is real. `client` and `publishing` measure single steps of a process alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.dynamodb import crowd
from bench.dynamodb.nodes import Nodes
from bench.dynamodb.stage import AWS_LIKE_DELAY_MS, SharedStage
from bench.measuring import Stretch, drain, measure
from bench.roles import Load
from bench.rows import Row

WRITING, INGEST, READING, NOBODY, ROUTING = range(5)
ROLES = ("gateway", "ingest", "gateway", "gateway", "delivery")
STEPS = {
    WRITING: "gateway of the writers: socket, session, forward, ack",
    INGEST: "ingest: take calls, append, publish to Kafka",
    READING: "gateway of the readers: take routed entries, fan out",
    NOBODY: "gateway of nobody: nothing is routed to it",
    ROUTING: "router: consume, look up, forward, commit",
}
SETTLE_SECONDS = 2.0
"""A node that has just started is not idle yet."""

Begin = Callable[[Load, Nodes], Awaitable[None]]


async def hops(stage: SharedStage) -> list[Row]:
    chat = await stage.populate(crowd.hot_chat)
    talking = await stage.populate(crowd.pairs)

    async def hot(load: Load, nodes: Nodes) -> None:
        await chat.connect(load, nodes, writing=[WRITING], reading=[READING])

    async def quiet(load: Load, nodes: Nodes) -> None:
        await crowd.write_apart(load, nodes, talking, writing=WRITING, reading=READING)

    async with stage.stand_in(AWS_LIKE_DELAY_MS) as endpoint:
        rows = await _play(stage, "hot", "hot chat", hot, crowd.READERS, endpoint)
        rows += await _play(stage, "pairs", f"{crowd.PAIRS} chats of two", quiet, 1, endpoint)
    return rows


async def _play(
    stage: SharedStage, name: str, label: str, begin: Begin, deliveries: int, endpoint: str
) -> list[Row]:
    load = Load()
    async with stage.nodes(*ROLES, endpoint=endpoint) as nodes:
        await asyncio.sleep(SETTLE_SECONDS)
        idle = await _cpu_rates(nodes, stage.seconds)
        await begin(load, nodes)
        watching = asyncio.create_task(measure(load, nodes, stage.seconds, stage.warm_up_seconds))
        await asyncio.sleep(stage.warm_up_seconds)
        acks, start = load.acks, time.perf_counter()
        busy = await _cpu_rates(nodes, stage.seconds)
        rate = (load.acks - acks) / (time.perf_counter() - start)
        stretch = await watching
        stretch.notes += await drain(load, deliveries_per_ack=deliveries)
    return [hop_row(name, label, step, busy[step] - idle[step], rate, stretch) for step in STEPS]


async def _cpu_rates(nodes: Nodes, seconds: float) -> list[float]:
    """CPU seconds per second of each node."""
    before, start = [nodes[step].cpu_seconds() for step in STEPS], time.perf_counter()
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - start
    return [(nodes[step].cpu_seconds() - before[step]) / elapsed for step in STEPS]


def hop_row(name: str, label: str, step: int, cpu_rate: float, rate: float, stretch: Stretch) -> Row:
    is_first = step == WRITING
    return Row(
        name=f"shared_hop_{name}_{step}",
        label=f"{label}, {STEPS[step]}",
        unit="µs/message",
        value=1e6 * cpu_rate / max(rate, 1),
        batch=stretch.batch if step == INGEST else None,
        others_cores=stretch.others_cores,
        p50_ms=stretch.ack_ms[0] if is_first else None,
        p99_ms=stretch.ack_ms[1] if is_first else None,
        notes=[f"{rate:,.0f} acks/s", *stretch.notes] if is_first else [],
    )
