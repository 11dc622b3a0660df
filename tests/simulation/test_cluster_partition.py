"""Nodes that cannot reach each other, or only badly, while each of them reaches the store."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from ops.local_services.ports import free_ports
from tests.clusters import MODES, nodes_on_shared_services, running
from tests.harness.proxy import Chaos, ChaosProxy
from tests.seeds import ROUNDS, SEED
from tests.selection import thorough
from tests.simulation.cluster_crowd import gathered
from tests.simulation.test_cluster_faults import assert_promise_kept

NAMES = ("n1", "n2")
ROUNDS_PER_TURN = 30
TURNS = max(1, ROUNDS // ROUNDS_PER_TURN)
TURN_SECONDS_MAX = 120
SAID_BETWEEN = 60
TROUBLES = {
    "bad": Chaos(delay_ms_max=200, cut_share=0.05),
    "refused": Chaos(refuse_connections=True),
    "silent": Chaos(stall_share=1, stall_ms=10_000),
}
"""What the ways between the nodes are like: the last one takes everything and answers nothing."""


@pytest.mark.timeout(210 + TURNS * TURN_SECONDS_MAX)
@pytest.mark.parametrize("mode", ["atomic", thorough("dynamodb", "the same in the other mode")])
async def test_two_nodes_that_both_believe_to_have_a_chat_stay_correct(mode: str, tmp_path: Path) -> None:
    """However badly nodes reach each other, sends go on, and nothing is lost, doubled or reordered."""
    random = Random(f"{SEED} partition {mode}")
    async with ways_between(random) as (ways, settings):
        nodes = nodes_on_shared_services(tmp_path, NAMES, MODES[mode], settings)
        async with (
            running(nodes) as cluster,
            ClientSession() as session,
            gathered(cluster, session, random) as crowd,
        ):
            for trouble in [*TROUBLES.values()] * TURNS:
                for chaos in (trouble, Chaos()):
                    change(ways, chaos)
                    await crowd.until_said(SAID_BETWEEN)
            await crowd.finish()
            await assert_promise_kept(crowd, cluster, tmp_path / "history.jsonl")


@asynccontextmanager
async def ways_between(random: Random) -> AsyncIterator[tuple[list[ChaosProxy], dict[str, dict[str, str]]]]:
    """A way to each node that the others must go, and the settings that make them."""
    ports = free_ports(len(NAMES))
    async with AsyncExitStack() as stack:
        ways = [await stack.enter_async_context(ChaosProxy(port, random)) for port in ports]
        settings = {
            name: {"PARLEY_CLUSTER_PORT": str(port), "PARLEY_CLUSTER_ADVERTISE": way.url}
            for name, port, way in zip(NAMES, ports, ways, strict=True)
        }
        yield ways, settings


def change(ways: list[ChaosProxy], chaos: Chaos) -> None:
    """From now on; what was under way is lost."""
    for way in ways:
        way.chaos = chaos
        way.cut_all()
