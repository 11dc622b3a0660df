"""Allocation and the persist path of one node, behind a stand-in that answers as late as DynamoDB."""

from __future__ import annotations

from bench.dynamodb import crowd
from bench.dynamodb.stage import SharedStage
from bench.measuring import drain, measure
from bench.roles import Load
from bench.rows import Row
from bench.scenarios.persist import MODES, SEQUENCING, WRITERS, rows_of


async def persist(stage: SharedStage) -> list[Row]:
    return [row for mode in MODES for count in WRITERS for row in await _play(stage, mode, count)]


async def _play(stage: SharedStage, mode: str, count: int) -> list[Row]:
    """In a chat of its own: the stand-in forgets it when it ends."""
    load, chat = Load(), await stage.populate(crowd.hot_chat)
    chat.writers = chat.writers[:count]
    async with (
        stage.remembering_stand_in() as endpoint,
        stage.nodes(endpoint=endpoint, environment={SEQUENCING: mode}) as nodes,
    ):
        await chat.connect(load, nodes, writing=[0], reading=[0])
        stretch = await measure(load, nodes, stage.seconds, stage.warm_up_seconds)
        metrics = await nodes[0].metrics()
        stretch.notes += await drain(load, deliveries_per_ack=crowd.READERS)
    return rows_of("shared_", mode, count, metrics, stretch)
