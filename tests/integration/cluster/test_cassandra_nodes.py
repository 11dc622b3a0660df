"""Two real nodes on Cassandra, Kafka and Redis: what a cluster promises, whichever store it has."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.clusters import MODES, on_cassandra, own_names, until_acquainted
from tests.harness.cassandra_tables import connection_of
from tests.harness.clients import HttpClient, Person, RawClient
from tests.harness.cluster import ClusterProcess
from tests.harness.server import run_parley
from tests.services import service_environment

NAMES = ("n1", "n2")
WRITERS = 12

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=["atomic", "redis"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterProcess]:
    """Two nodes that share a keyspace, topics and keys of their own."""
    found = [service_environment(name) for name in ("cassandra", "kafka", "redis")]
    environment = {
        **{name: value for variables in found for name, value in variables.items()},
        **own_names(),
        **on_cassandra(),
        **MODES[request.param],
    }
    try:
        with ClusterProcess(tmp_path, environment, NAMES) as started:
            yield started
    finally:
        drop(environment)


def drop(environment: Mapping[str, str]) -> None:
    connection = connection_of(environment)
    connection.connect()
    connection.execute(f"DROP KEYSPACE IF EXISTS {connection.address.keyspace}")
    connection.shutdown()


async def test_two_nodes_serve_one_chat(cluster: ClusterProcess) -> None:
    """Writers on both get distinct numbers, readers on both hear all in one order, a kill loses nothing."""
    async with ClientSession() as session, AsyncExitStack() as stack:
        await until_acquainted(session, list(cluster))
        first, second = (HttpClient(session, cluster[name].url) for name in NAMES)
        ann, ben = await first.newcomer("ann"), await second.newcomer("ben")
        chat_id = await HttpClient(session, cluster["n1"].url, ann.token).create_group(ben)

        async def connected(name: str, person: Person, live: bool) -> RawClient:
            return await stack.enter_async_context(RawClient(session, cluster[name].url, person, live=live))

        readers = [await connected(name, ben, True) for name in NAMES]
        writers = [await connected(NAMES[n % 2], ann, False) for n in range(WRITERS)]
        acks = await asyncio.gather(
            *(writer.send_message(chat_id, f"writer {n}") for n, writer in enumerate(writers))
        )
        assert [ack["type"] for ack in acks] == ["ack"] * WRITERS
        numbers = sorted(int(ack["sequence"]) for ack in acks)
        assert len(set(numbers)) == WRITERS
        await asyncio.gather(*(reader.live_entry(chat_id, numbers[-1]) for reader in readers))
        by_sequence = sorted(acks, key=lambda ack: int(ack["sequence"]))
        wanted = [ack["message_id"] for ack in by_sequence]
        for reader in readers:
            assert [entry["message_id"] for entry in reader.live_entries(chat_id)] == wanted
        cluster["n1"].kill()
        survivor = await connected("n2", ben, False)
        found = {entry["message_id"] for entry in await survivor.sync_all(chat_id)}
        assert set(wanted) <= found
    checked = await asyncio.to_thread(run_parley, "check", environment=cluster.environment)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    doctor = await asyncio.to_thread(run_parley, "doctor", environment=cluster.environment)
    assert "Cassandra" in doctor.stdout, doctor.stdout + doctor.stderr
