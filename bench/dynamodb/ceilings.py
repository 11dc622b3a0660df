"""The ceiling of DynamoDB Local with one client and nothing else: compare rates with it."""

from __future__ import annotations

import time

from bench.dynamodb.stage import SharedStage
from bench.dynamodb.transactions import FULL, actions_of
from bench.rows import Row
from parley.ids import EVENT
from parley.store.dynamodb.driver import Dynamo


async def measure_ceilings(stage: SharedStage) -> list[Row]:
    """Full and single transactions in turn, after a warm-up: Java is slow at first."""
    dynamo = stage.client()
    await dynamo.open()
    try:
        for size in (1, FULL):
            await _write(dynamo, size, stage.warm_up_seconds)
        return [await _write(dynamo, size, stage.seconds / 2) for size in (FULL, 1)]
    finally:
        await dynamo.close()


async def _write(dynamo: Dynamo, size: int, seconds: float) -> Row:
    written, cpu, start = 0, time.process_time(), time.perf_counter()
    chat_id = f"chat_ceiling{time.time_ns()}"
    while (elapsed := time.perf_counter() - start) < seconds:
        await dynamo.transact(actions_of(chat_id, written, size), f"{EVENT}{time.time_ns()}")
        written += size
    return Row(
        name=f"dynamodb_local_{size}",
        label=f"DynamoDB Local, {size} per transaction, one after the other",
        unit="messages/s",
        value=written / elapsed,
        cpu_us=1e6 * (time.process_time() - cpu) / written,
        batch=size,
        notes=["CPU is that of the client"],
    )
