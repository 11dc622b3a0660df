"""Two nodes against one, under the same load; and the cost of forwarding.

DynamoDB Local is slower than one node, so two nodes are not faster on it: what counts there is that they
are not slower, and the CPU for each message. With a stand-in that has the delay of a real DynamoDB, the
nodes themselves are measured; both share one core here, so their CPU for each message counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bench.dynamodb import crowd
from bench.dynamodb.nodes import FORWARD_FAILURES, FORWARDED, FORWARDED_BATCHES, STORED, Nodes
from bench.dynamodb.stage import AWS_LIKE_DELAY_MS, EVERY_ROLE, SharedStage
from bench.measuring import Stretch, drain, measure
from bench.roles import Load
from bench.rows import Row, acks_row, ratio_row

Begin = Callable[[Load, Nodes], Awaitable[None]]


async def two_nodes(stage: SharedStage) -> list[Row]:
    chat = await stage.populate(crowd.hot_chat)
    talking = await stage.populate(crowd.pairs)

    async def hot(load: Load, nodes: Nodes) -> None:
        everywhere = range(len(nodes))
        await chat.connect(load, nodes, writing=everywhere, reading=everywhere)

    async def pairs(load: Load, nodes: Nodes) -> None:
        await crowd.talk(load, nodes, talking)

    rows = await _compare(stage, "local_hot", "hot chat, DynamoDB Local", hot, crowd.READERS, None)
    async with stage.stand_in(AWS_LIKE_DELAY_MS) as endpoint:
        where = f"stand-in of {AWS_LIKE_DELAY_MS} ms"
        chat = await stage.populate(crowd.hot_chat)
        rows += await _compare(stage, "hot", f"hot chat, {where}", hot, crowd.READERS, endpoint)
        rows += await _compare(stage, "pairs", f"{crowd.PAIRS} pairs, {where}", pairs, 1, endpoint)
    return rows


async def _compare(
    stage: SharedStage, name: str, label: str, begin: Begin, deliveries: int, endpoint: str | None
) -> list[Row]:
    one = await _play(stage, 1, begin, deliveries, endpoint)
    two = await _play(stage, 2, begin, deliveries, endpoint)
    cpu = two.cpu_us_per(two.acks) / one.cpu_us_per(one.acks)
    return [
        acks_row(f"shared_one_node_{name}", f"one node, {label}", one),
        acks_row(f"shared_two_nodes_{name}", f"two nodes, {label}", two),
        ratio_row(
            f"shared_two_nodes_rate_{name}", "acks/s of two nodes against one", two.acks / one.acks, []
        ),
        ratio_row(f"shared_two_nodes_cpu_{name}", "CPU per message of two nodes against one", cpu, []),
    ]


async def _play(
    stage: SharedStage, count: int, begin: Begin, deliveries: int, endpoint: str | None
) -> Stretch:
    load = Load()
    async with stage.nodes(*[EVERY_ROLE] * count, endpoint=endpoint) as nodes:
        await begin(load, nodes)
        stretch = await measure(load, nodes, stage.seconds, stage.warm_up_seconds)
        stretch.notes += await drain(load, deliveries_per_ack=deliveries)
        if count > 1:
            stretch.notes += forwarding_in(await nodes.metrics())
    return stretch


def forwarding_in(metrics: dict[str, float]) -> list[str]:
    """How much was forwarded, in batches of what size, and whether calls failed."""
    forwarded, batches = metrics.get(FORWARDED, 0), metrics.get(FORWARDED_BATCHES, 0)
    share = forwarded / max(metrics.get(STORED, 0), 1)
    notes = [f"{share:.0%} of the messages were forwarded, {forwarded / max(batches, 1):.1f} in a call"]
    if failures := metrics.get(FORWARD_FAILURES, 0):
        # The stand-in stores nothing, so two nodes that both append would write conflicting logs.
        notes.append(f"{failures:.0f} calls failed, so that both nodes appended: this row is no result")
    return notes
