"""A node joins its rooms: what each of them relies on is really connected, and really started."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from parley import config
from parley.app import App
from parley.app.buses import EmbeddedBusEngine
from parley.core.jobs import Job
from tests.waiting import deadline, stretched

SHARED = {
    "PARLEY_STORE_ENGINE": "dynamodb",
    "PARLEY_DYNAMODB_ENDPOINT": "http://127.0.0.1:9",
    "PARLEY_DYNAMODB_REGION": "local",
    "PARLEY_KAFKA_BROKERS": "127.0.0.1:9",
    "PARLEY_CLUSTER_SECRET": "the secret of a node that is not started",
}
"""Services at a port where nobody listens: a node is made here, not started."""


def made(folder: Path, **settings: str) -> App:
    chosen, unknown = config.load(
        None, {"PARLEY_SERVER_DATA": str(folder), "PARLEY_SERVER_PORT": "0", **settings}
    )
    assert not unknown
    return App(chosen, environment={})


START = """
import asyncio, sys
from parley import config
from parley.app import App
from parley.gateway.system import openapi_document

async def start(folder):
    app = App(config.load(None, {"PARLEY_SERVER_DATA": folder, "PARLEY_SERVER_PORT": "0"})[0], environment={})
    await app.start()
    await app.stop()

asyncio.run(start(sys.argv[1]))
assert not openapi_document.cache_info().currsize, "the OpenAPI document"
print(*sys.modules)
"""
FOR_LATER = {
    "PIL",
    "aiokafka",
    "botocore",
    "cassandra",
    "cryptography",
    "jwt",
    "obstore",
    "redis",
    "zstandard",
}
"""Packages that only some servers need, or only later."""


def test_a_start_loads_nothing_for_later(tmp_path: Path) -> None:
    """Clients wait for a server that starts again: it loads and makes only what it needs at once."""
    started = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=stretched(50),
    )
    assert FOR_LATER.isdisjoint(started.stdout.split())


class Working(EmbeddedBusEngine):
    """A bus with work to do beside the news."""

    def __init__(self) -> None:
        super().__init__()
        self.is_working = asyncio.Event()

    def jobs(self) -> list[Job]:
        return [Job(name="work", run=self._work, interval_seconds=0.01, timeout_seconds=None)]

    async def _work(self) -> None:
        self.is_working.set()


@pytest.mark.parametrize(("roles", "sweeps"), [("gateway,ingest,delivery", True), ("gateway,ingest", False)])
async def test_a_node_that_delivers_sweeps(tmp_path: Path, roles: str, sweeps: bool) -> None:
    """The sweeper is among the jobs of every node with the role delivery, and of no other."""
    app = made(tmp_path, PARLEY_CLUSTER_ROLES=roles, **SHARED)
    assert ("outbox_sweep" in [job.name for job in app.bus_engine.jobs()]) is sweeps


async def test_a_node_does_the_work_of_its_bus(tmp_path: Path) -> None:
    """What a bus asks to be run, the sweeper among it, runs once the node is started."""
    app = made(tmp_path)
    app.bus_engine = bus = Working()
    await app.start()
    try:
        async with deadline():
            await bus.is_working.wait()
    finally:
        await app.stop()


async def test_what_the_hub_reads_waits_for_answers(tmp_path: Path) -> None:
    """On a node among others the hub asks for the same pending sends that both ways to send keep."""
    app = made(tmp_path, **SHARED)
    assert app.cluster is not None
    assert app.hub._pending_sends is app.cluster.forwarder._pending is app.local_sender._pending


async def test_people_hear_of_changes_before_members_do(tmp_path: Path) -> None:
    """What is remembered of a chat's people is forgotten with every change that the hub hears of."""
    app = made(tmp_path)
    assert app.hub._chat_changed == app.social.chat_changed
    assert app.accounts._changed == app.social.person_changed


@pytest.mark.parametrize(("ack", "waits"), [("stored", False), ("published", True)])
async def test_an_ack_waits_for_the_bus_where_configured(tmp_path: Path, ack: str, waits: bool) -> None:
    """With `bus.ack = published`, and only then, sends are confirmed by the publisher."""
    app = made(tmp_path, PARLEY_BUS_ACK=ack, **SHARED)
    assert (app.bus_engine.confirm is not None) is waits
    assert app.local_sender._confirm == app.bus_engine.confirm
