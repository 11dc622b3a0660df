"""Three real nodes on real services under load, while nodes and services are killed and nodes are paused.

PARLEY_SIMULATE_ROUNDS sets how often each fault comes; PARLEY_SIMULATE_SEED repeats a run's choices (not its
timing). A failed run leaves its history beside the test's data. Workers deliver and ring all the while.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from parley.ephemeral.ports import NODE_LEASE_SECONDS
from parley.testing.faults import CRASH
from tests.clusters import MODES, asking_sequencers, cluster_of, own_names, running, sequencers_of
from tests.harness.cluster import ClusterProcess
from tests.harness.history import check
from tests.harness.server import ServerProcess
from tests.harness.tables import tables_of
from tests.seeds import ROUNDS, SEED
from tests.selection import thorough
from tests.services import OwnServices
from tests.simulation.cluster_crowd import ClusterCrowd, gathered
from tests.simulation.receiving_end import logs_of
from tests.simulation.test_kill_minus_nine import until_dead

ROUNDS_PER_TURN = 30
TURNS = max(1, ROUNDS // ROUNDS_PER_TURN)
FAULT_SECONDS_MAX = 60
PAUSE_SECONDS = NODE_LEASE_SECONDS + 1.5
SAID_BETWEEN = 40
"""So many messages are acknowledged before, and again after each fault."""
SAID_MEANWHILE = 10

CRASH_SECONDS_MAX = 6.0
"""A node that does not come to the point where it was to crash is killed wherever it is."""
REACHED_MAX = 40

NODES = ("n1", "n2", "n3")
SERVICES = ("dynamodb", "redis", "kafka")
FAULTS = (
    "crash n1 before_write",
    "crash n2 after_commit_before_ack",
    "crash n3 mid_fanout",
    "kill kafka",
    "kill redis",
    "pause",
    "roll",
)
CRASH_BETWEEN_PHASES = "crash n1 after_allocate"
SHORT = {
    "atomic": FAULTS,
    "dynamodb": (CRASH_BETWEEN_PHASES, "pause"),
    "redis": (CRASH_BETWEEN_PHASES, "kill redis"),
    "sequencer": (CRASH_BETWEEN_PHASES, "kill s1"),
}
OTHER_MODES = [thorough(mode, "atomic meets the same faults") for mode in SHORT if mode != "atomic"]
LONG = {
    "atomic": FAULTS,
    "dynamodb": (CRASH_BETWEEN_PHASES, *FAULTS),
    "redis": (CRASH_BETWEEN_PHASES, *FAULTS),
    "sequencer": (CRASH_BETWEEN_PHASES, "kill s1", "pause s2", *FAULTS),
}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServices]:
    with OwnServices(tmp_path_factory.mktemp("cluster") / "services") as own:
        own.up(*SERVICES)
        yield own


@pytest.mark.timeout(120 + TURNS * (3 + len(FAULTS)) * FAULT_SECONDS_MAX)
@pytest.mark.parametrize("mode", ["atomic", *OTHER_MODES])
async def test_nothing_is_lost_doubled_reordered_or_skipped(
    mode: str, services: OwnServices, tmp_path: Path
) -> None:
    """Whatever dies or stands still, what everybody was told, or rung for, agrees with the store."""
    turns = [LONG[mode] if turn else SHORT[mode] for turn in range(TURNS)]
    await survive(mode, turns, services, {}, tmp_path)


async def survive(
    mode: str,
    turns: Sequence[Sequence[str]],
    services: OwnServices,
    settings: Mapping[str, str],
    tmp_path: Path,
) -> None:
    """Three nodes under load, and turns of faults, each of them in an order of its own."""
    random = Random(f"{SEED} cluster {mode}")
    allocating = MODES[mode] if mode in MODES else asking_sequencers()
    environment = {**services.environment(), **own_names(), **settings, **allocating}
    cluster = cluster_of(tmp_path, environment, NODES)
    async with (
        sequencers_of(cluster, tmp_path) as sequencers,
        running(cluster),
        ClientSession() as session,
        gathered(cluster, session, random, rings=mode == "atomic") as crowd,
    ):
        for faults in turns:
            for fault in random.sample(faults, len(faults)):
                await crowd.until_said(SAID_BETWEEN)
                await suffer(crowd, cluster, services, sequencers, fault)
        await crowd.until_said(SAID_BETWEEN)
        await crowd.finish()
        await assert_promise_kept(crowd, cluster, tmp_path / "history.jsonl")


async def suffer(
    crowd: ClusterCrowd,
    cluster: ClusterProcess,
    services: OwnServices,
    sequencers: dict[str, ServerProcess],
    fault: str,
) -> None:
    """One fault and its end, with the crowd talking all the while."""
    match fault.split():
        case ["roll"]:
            await roll(crowd, cluster)
        case ["pause"]:
            await pause(crowd, crowd.random.choice(crowd.nodes))
        case ["pause", name] if name in sequencers:
            await pause(crowd, sequencers[name])
        case ["pause", service]:
            await asyncio.to_thread(services.pause, service)
            try:
                await crowd.until_said(SAID_MEANWHILE)
            finally:
                await asyncio.to_thread(services.resume, service)
        case ["kill", name] if name in sequencers:
            await asyncio.to_thread(sequencers[name].kill)
            await crowd.until_said(SAID_MEANWHILE)
            await asyncio.to_thread(sequencers[name].start)
        case ["crash", name, label]:
            await crash(crowd, cluster[name], label)
        case ["kill", service]:
            await asyncio.to_thread(services.kill, service)
            if not is_needed(cluster, service):
                await crowd.until_said(SAID_MEANWHILE)
            await asyncio.to_thread(services.start, service)


async def crash(crowd: ClusterCrowd, node: ServerProcess, label: str) -> None:
    """kill -9 at any moment, and once more at a labelled one."""
    await asyncio.to_thread(node.kill)
    await crowd.until_said(SAID_MEANWHILE)
    await asyncio.to_thread(node.start, {CRASH: f"{label}:{crowd.random.randint(1, REACHED_MAX)}"})
    await until_dead(node, CRASH_SECONDS_MAX)
    await crowd.until_said(SAID_MEANWHILE)
    await asyncio.to_thread(node.start)


def is_needed(cluster: ClusterProcess, service: str) -> bool:
    """Whether nothing can be sent without it: only a Redis that gives the numbers."""
    return service == "redis" and cluster.environment.get("PARLEY_STORE_ALLOCATOR") == "redis"


async def pause(crowd: ClusterCrowd, node: ServerProcess) -> None:
    """Stand still for longer than a lease; the others go on without it."""
    node.pause()
    try:
        await asyncio.gather(asyncio.sleep(PAUSE_SECONDS), crowd.until_said(SAID_MEANWHILE))
    finally:
        node.resume()


async def roll(crowd: ClusterCrowd, cluster: ClusterProcess) -> None:
    """A new version on one node after the other."""
    for node in cluster:
        assert await asyncio.to_thread(node.terminate) == 0
        await asyncio.to_thread(node.start)
        await crowd.until_said(SAID_MEANWHILE)


async def assert_promise_kept(crowd: ClusterCrowd, cluster: ClusterProcess, history_file: Path) -> None:
    async with tables_of(cluster.environment) as tables:
        await tables.read_into(crowd.history)
    crowd.history.write(history_file)
    breaches = [*crowd.order.overtaken, *check(crowd.history)]
    breaches += await crowd.end.breaches(logs_of(crowd.history))
    crowd.end.write(history_file.with_name("arrivals.jsonl"))
    assert not breaches, f"seed {SEED}, history in {history_file}\n" + "\n".join(map(str, breaches[:20]))
