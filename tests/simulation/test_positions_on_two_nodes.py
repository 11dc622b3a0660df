"""kill -9 of either of two nodes under acks and receipts: what one has answered, the other knows.

The promise is that of `test_positions_survive`, on DynamoDB and Redis. Whoever loses a node goes on with any.
PARLEY_SIMULATE_ROUNDS sets how often a node is killed.
"""

import asyncio
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from parley.testing.faults import CRASH
from tests.clusters import MODES, nodes_on_shared_services, running, until_acquainted
from tests.harness.clients import HttpClient
from tests.harness.cluster import ClusterProcess
from tests.seeds import IS_VARIED, ROUNDS, SEED
from tests.simulation.cluster_crowd import TRY_AGAIN_SECONDS
from tests.simulation.test_kill_minus_nine import KILL_SECONDS_MAX, REACHED_MAX, until_dead
from tests.simulation.test_positions_survive import Movers, assert_promises_kept

NAMES = ("n1", "n2")
ROUNDS_PER_KILL = 15
KILLS = max(2, ROUNDS // ROUNDS_PER_KILL)
KILL_SECONDS = 30
CRASH_SECONDS_MAX = 4.0
AT_RANDOM = "at random"
MOMENTS = ("after_commit_before_ack", AT_RANDOM, "before_write", AT_RANDOM, "mid_fanout", AT_RANDOM)


class NodeMovers(Movers):
    """Each connection goes to any of the nodes."""

    def __init__(self, cluster: ClusterProcess, session: ClientSession, random: Random) -> None:
        self.nodes = list(cluster)
        super().__init__(self.nodes[0], session, random)

    @property
    def url(self) -> str:
        return self.random.choice(self.nodes).url

    async def until_worth_a_try(self, next_start: asyncio.Event) -> None:
        """There is another node at any time."""
        await asyncio.sleep(TRY_AGAIN_SECONDS)


async def die(crowd: NodeMovers, moment: str) -> None:
    """A node is killed, and once more at this moment; the other goes on."""
    node, random = crowd.random.choice(crowd.nodes), crowd.random
    await asyncio.to_thread(node.kill)
    is_labelled = moment != AT_RANDOM
    crash = {CRASH: f"{moment}:{random.randint(1, REACHED_MAX)}"} if is_labelled else {}
    await asyncio.to_thread(node.start, crash)
    await until_dead(node, CRASH_SECONDS_MAX if crash else random.uniform(0.02, KILL_SECONDS_MAX))
    await asyncio.to_thread(node.start)
    assert crowd.failed_member() is None, crowd.failed_member()


@pytest.mark.timeout(120 + KILLS * KILL_SECONDS)
@pytest.mark.parametrize("mode", ["atomic", "redis"] if IS_VARIED else ["atomic"])
async def test_positions_answered_by_one_node_are_known_to_the_other(mode: str, tmp_path: Path) -> None:
    """Whichever node is killed, and whenever, no position goes back on any node, nor beyond its log."""
    random = Random(f"{SEED} {mode} positions on two nodes")
    nodes = nodes_on_shared_services(tmp_path, NAMES, MODES[mode])
    async with running(nodes) as cluster, ClientSession() as session:
        await until_acquainted(session, list(cluster))
        crowd = NodeMovers(cluster, session, random)
        await crowd.gather()
        for moment in islice(cycle(MOMENTS), KILLS):
            await die(crowd, moment)
        await crowd.finish()
        for node in cluster:
            for person in crowd.people:
                await assert_promises_kept(crowd, HttpClient(session, node.url).of(person), person)
    assert crowd.known.reports > ROUNDS, "the crowd hardly got a word in"
