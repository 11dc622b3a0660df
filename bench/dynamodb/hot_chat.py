"""One hot chat on DynamoDB Local: full transactions against transactions of one message, in one run."""

from __future__ import annotations

from bench.dynamodb import crowd
from bench.dynamodb.stage import SharedStage
from bench.measuring import Stretch, drain, measure
from bench.roles import Load
from bench.rows import Row, acks_row, ratio_row
from parley.testing.faults import BATCH_MAX

ROUNDS = 2


async def hot_chat(stage: SharedStage) -> list[Row]:
    """Both ways in turn, so that a slower machine slows both."""
    chat = await stage.populate(crowd.hot_chat)
    full, alone = [], []
    for _ in range(stage.pick(ROUNDS, 1)):
        full.append(await _play(stage, chat, {}))
        alone.append(await _play(stage, chat, {BATCH_MAX: "1"}))
    best_full, best_alone = (max(runs, key=lambda run: run.acks) for runs in (full, alone))
    return [
        acks_row("shared_hot_chat", "hot chat, full transactions", best_full),
        acks_row("shared_hot_chat_alone", "hot chat, one message per transaction", best_alone),
        ratio_row(
            "shared_batching",
            "acks/s, full transactions against single ones",
            best_full.acks / best_alone.acks,
            [f"rounds: {_rates(full)} against {_rates(alone)} acks/s"],
        ),
    ]


async def _play(stage: SharedStage, chat: crowd.HotChat, environment: dict[str, str]) -> Stretch:
    load = Load()
    async with stage.nodes(environment=environment) as nodes:
        await chat.connect(load, nodes, writing=[0], reading=[0])
        stretch = await measure(load, nodes, stage.seconds, stage.warm_up_seconds)
        stretch.notes.append(f"DynamoDB Local, Kafka and Redis used {stretch.helpers_cores:.2f} cores")
        stretch.notes += await drain(load, deliveries_per_ack=crowd.READERS)
    return stretch


def _rates(runs: list[Stretch]) -> str:
    return ", ".join(f"{run.acks:.0f}" for run in runs)
