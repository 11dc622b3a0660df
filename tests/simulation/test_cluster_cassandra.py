"""Three real nodes on three replicas of Cassandra, Kafka and Redis, while nodes, replicas and services fail.

PARLEY_SIMULATE_ROUNDS sets how often each fault comes, and in how many modes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.local_services import CASSANDRA_RING
from tests.clusters import on_cassandra
from tests.services import OwnServices
from tests.simulation.test_cluster_faults import (
    CRASH_BETWEEN_PHASES,
    FAULT_SECONDS_MAX,
    FAULTS,
    TURNS,
    survive,
)

IS_LONG = TURNS > 1
FIRST, SECOND, THIRD = CASSANDRA_RING
REPLICA_FAULTS = (f"kill {SECOND}", f"pause {THIRD}")
COMPACT = (*REPLICA_FAULTS, "crash n2 after_commit_before_ack", "kill kafka", "kill redis", "pause")
"""What one run of all tests tries, in atomic."""
ALL = (*FAULTS, *REPLICA_FAULTS, f"kill {FIRST}", f"pause {FIRST}")
LONG = {
    "atomic": ALL,
    "store": (CRASH_BETWEEN_PHASES, *ALL),
    "redis": (CRASH_BETWEEN_PHASES, *ALL),
    "sequencer": (CRASH_BETWEEN_PHASES, "kill s1", "pause s2", *ALL),
}
START_SECONDS_MAX = 240


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServices]:
    """A ring whose replicas are on disk, so that one that was killed has what it acknowledged."""
    with OwnServices(tmp_path_factory.mktemp("ring") / "services") as own:
        own.up(FIRST, "redis", "kafka")
        own.up(SECOND, THIRD)
        yield own


@pytest.mark.thorough("test_cluster_faults has the same faults on other services")
@pytest.mark.timeout(START_SECONDS_MAX + TURNS * (3 + len(ALL)) * FAULT_SECONDS_MAX)
@pytest.mark.parametrize("mode", LONG if IS_LONG else ["atomic"])
async def test_nothing_is_lost_on_three_replicas(mode: str, services: OwnServices, tmp_path: Path) -> None:
    """Whichever node, replica or service fails, what everybody was told agrees with the store."""
    turns = [LONG[mode]] * TURNS if IS_LONG else [COMPACT]
    await survive(mode, turns, services, on_cassandra(replicas=len(CASSANDRA_RING)), tmp_path)
