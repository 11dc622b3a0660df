"""Nodes whose requests to DynamoDB fail as the real one's may: conflicts, throttling, lost answers."""

from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from parley.testing.dynamodb_faults import VARIABLE
from tests.clusters import MODES, nodes_on_shared_services, running
from tests.seeds import ROUNDS, SEED
from tests.selection import thorough
from tests.simulation.cluster_crowd import gathered
from tests.simulation.test_cluster_faults import assert_promise_kept

SAID_PER_ROUND = 5
ROUND_SECONDS_MAX = 5
NAMES = ("healthy", "faulty1", "faulty2")
SHARES = (
    "throttle:0.05,transact_conflict:0.1,timeout_done:0.03,timeout_not_done:0.03"
    ",server_error:0.03,unprocessed:0.1,torn_page:0.2"
)


@pytest.mark.timeout(120 + ROUNDS * ROUND_SECONDS_MAX)
@pytest.mark.parametrize("mode", ["atomic", thorough("dynamodb", "the same in the other mode")])
async def test_no_ack_is_false_whatever_the_store_answers(mode: str, tmp_path: Path) -> None:
    """Refusals are temporary and acks are true, on nodes where every third request or so goes wrong."""
    faults = {name: {VARIABLE: f"{SHARES},seed:{SEED + n}"} for n, name in enumerate(NAMES) if n}
    nodes = nodes_on_shared_services(tmp_path, NAMES, MODES[mode], faults)
    random = Random(f"{SEED} store {mode}")
    async with (
        running(nodes) as cluster,
        ClientSession() as session,
        gathered(cluster, session, random) as crowd,
    ):
        for _ in range(ROUNDS):
            await crowd.until_said(SAID_PER_ROUND)
        await crowd.finish()
        await assert_promise_kept(crowd, cluster, tmp_path / "history.jsonl")
