"""Three real nodes whose drafts go through Kafka, while those that append are killed, paused and replaced.

What the crowd was told must agree with the store: nothing acknowledged is lost, nothing is stored twice, and
the order of each sender and chat is kept.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from tests.clusters import ATOMIC, cluster_of, nodes_on_shared_services, running, shared_environment
from tests.harness.cluster import ClusterProcess
from tests.seeds import ROUNDS, SEED
from tests.services import OwnServices
from tests.simulation.cluster_crowd import ClusterCrowd, gathered
from tests.simulation.test_cluster_faults import (
    ROUNDS_PER_TURN,
    SAID_BETWEEN,
    SAID_MEANWHILE,
    assert_promise_kept,
    crash,
    pause,
    roll,
)

BUS = {**ATOMIC, "PARLEY_BUS_INGEST": "bus", "PARLEY_KAFKA_PARTITIONS": "3"}
NODES = ("n1", "n2", "n3")
ROLES = {"n1": {"PARLEY_CLUSTER_ROLES": "gateway,delivery"}}
"""The first one takes drafts and appends none."""
FAULTS = ("kill n2", "crash n3 after_commit_before_ack", "crash n2 before_write", "pause n3", "roll")
AWAY_SECONDS = 5.0
TURNS = max(1, ROUNDS // ROUNDS_PER_TURN)


@pytest.mark.timeout(180 + TURNS * len(FAULTS) * 60)
async def test_nothing_is_lost_doubled_or_reordered_on_the_way_through_the_bus(tmp_path: Path) -> None:
    """Whichever node dies or stands still, with drafts in the topic, in an append or on their way back."""
    random = Random(f"{SEED} bus ingest")
    cluster = nodes_on_shared_services(tmp_path, NODES, BUS, ROLES)
    async with (
        running(cluster),
        ClientSession() as session,
        gathered(cluster, session, random) as crowd,
    ):
        for _ in range(TURNS):
            for fault in random.sample(FAULTS, len(FAULTS)):
                await crowd.until_said(SAID_BETWEEN)
                await suffer(crowd, cluster, fault)
        await crowd.until_said(SAID_BETWEEN)
        await crowd.finish()
        await assert_promise_kept(crowd, cluster, tmp_path / "history.jsonl")


@pytest.mark.timeout(420)
@pytest.mark.thorough("test_cluster_outages has a broker that dies")
async def test_a_broker_that_dies_costs_no_message(tmp_path: Path) -> None:
    """While Kafka is away senders hear that it is temporary or unknown; when it is back all goes on."""
    random = Random(f"{SEED} bus ingest broker")
    with OwnServices(tmp_path / "services") as services:
        await asyncio.to_thread(services.up, "kafka")
        environment = {**shared_environment(), **services.environment("kafka"), **BUS}
        cluster = cluster_of(tmp_path, environment, NODES, ROLES)
        async with (
            running(cluster),
            ClientSession() as session,
            gathered(cluster, session, random) as crowd,
        ):
            await crowd.until_said(SAID_BETWEEN)
            await asyncio.to_thread(services.kill, "kafka")
            await asyncio.sleep(AWAY_SECONDS)
            await asyncio.to_thread(services.start, "kafka")
            await crowd.until_said(SAID_BETWEEN)
            await crowd.finish()
            await assert_promise_kept(crowd, cluster, tmp_path / "history.jsonl")


async def suffer(crowd: ClusterCrowd, cluster: ClusterProcess, fault: str) -> None:
    match fault.split():
        case ["roll"]:
            await roll(crowd, cluster)
        case ["pause", name]:
            await pause(crowd, cluster[name])
        case ["crash", name, label]:
            await crash(crowd, cluster[name], label)
        case ["kill", name]:
            await asyncio.to_thread(cluster[name].kill)
            await crowd.until_said(SAID_MEANWHILE)
            await asyncio.to_thread(cluster[name].start)
