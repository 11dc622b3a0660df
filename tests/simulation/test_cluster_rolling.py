"""A new version comes on one node after the other, while people use the SDK through a balancer."""

import asyncio
from itertools import count
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from parley.client import Client
from tests.clusters import ATOMIC, nodes_on_shared_services, running, until_acquainted
from tests.harness.cluster import ClusterProcess
from tests.harness.events import Acknowledged, SendRejected
from tests.harness.history import check
from tests.harness.proxy import Balancer
from tests.harness.tables import tables_of
from tests.integration.sdk import Account, Recorder, client, new_group, newcomer
from tests.seeds import ROUNDS, SEED
from tests.simulation.receiving_end import logs_of, receiving_end
from tests.waiting import eventually

ROUNDS_PER_ROLL = 30
ROLLS = max(1, ROUNDS // ROUNDS_PER_ROLL)
ROLL_SECONDS_MAX = 60
BATCH = 20
CAUGHT_UP_SECONDS_MAX = 45.0
NAMES = ("n1", "n2")
FOR_EVER = 2**53


@pytest.mark.timeout(210 + ROLLS * ROLL_SECONDS_MAX)
async def test_a_rolling_restart_costs_nobody_a_message(tmp_path: Path) -> None:
    """SDK users send and read on: each message is acknowledged, stored once, read and delivered in order."""
    async with (
        running(nodes_on_shared_services(tmp_path, NAMES, ATOMIC)) as cluster,
        ClientSession() as session,
        receiving_end(cluster, session, rings=True) as end,
    ):
        ports = [node.port for node in cluster]
        async with Balancer(ports, Random(SEED)) as front:
            accounts = [await newcomer(cluster["n1"]) for _ in range(3)]
            away = Account(end.person.user_id, end.person.token, end.person.device_id)
            recorder = Recorder(await new_group(cluster["n1"], [*accounts, away]))
            await use(recorder, cluster, front, accounts)
        assert not [event for event in recorder.history.events if isinstance(event, SendRejected)]
        async with tables_of(cluster.environment) as tables:
            await tables.read_into(recorder.history)
        breaches = [*check(recorder.history), *await end.breaches(logs_of(recorder.history))]
        assert not breaches, "\n".join(map(str, breaches[:20]))


async def use(recorder: Recorder, cluster: ClusterProcess, front: Balancer, accounts: list[Account]) -> None:
    """Two write and one reads, until every node has been restarted."""
    ann, ben, cat = accounts
    async with client(front.url, ann) as one, client(front.url, ben) as two, client(front.url, cat) as three:
        is_over = asyncio.Event()
        reading = asyncio.create_task(recorder.read(three, cat, FOR_EVER))
        writing = [
            asyncio.create_task(write(recorder, me, account, is_over))
            for me, account in ((one, ann), (two, ben))
        ]
        for _ in range(ROLLS):
            await roll(cluster)
        is_over.set()
        await asyncio.gather(*writing)
        acks = [event for event in recorder.history.events if isinstance(event, Acknowledged)]
        last = max(ack.sequence for ack in acks)
        await eventually(lambda: recorder.seen_by(cat)[-1:] == [last], CAUGHT_UP_SECONDS_MAX)
        reading.cancel()
        assert recorder.seen_by(cat) == list(range(1, last + 1))


async def write(recorder: Recorder, me: Client, account: Account, is_over: asyncio.Event) -> None:
    for number in count():
        await recorder.send(me, account, [f"{number} {n}" for n in range(BATCH)])
        if is_over.is_set():
            return


async def roll(cluster: ClusterProcess) -> None:
    """SIGTERM and start, one node after the other."""
    async with ClientSession() as session:
        for node in cluster:
            assert await asyncio.to_thread(node.terminate) == 0
            await asyncio.to_thread(node.start)
            await until_acquainted(session, list(cluster))
