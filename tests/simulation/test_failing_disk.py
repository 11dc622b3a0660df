"""A disk that fills up, cannot sync or fails to write, again and again under load: no ack was false.

PARLEY_SIMULATE_ROUNDS faults in total, half in each sequencing mode; every fourth one ends with kill -9.

In two_phase a fault between the phases leaves a number open until it is sealed, and readers stop before it:
for that long what was acknowledged after it is stored but not yet shown. In atomic it is always shown.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from parley.testing import faults
from tests.harness.clients import HttpClient
from tests.harness.server import ServerProcess
from tests.seeds import ROUNDS, SEED
from tests.simulation.crowd import Crowd
from tests.simulation.test_kill_minus_nine import ROUND_SECONDS_MAX, assert_promise_kept

FAULTS = ("full", "sync", "io")
FAULT_SECONDS_MAX = 0.4
HEALTHY_SECONDS_MAX = 0.3
KILL_EVERY = 4


@pytest.mark.timeout(60 + ROUNDS * ROUND_SECONDS_MAX)
@pytest.mark.parametrize("mode", ["atomic", "two_phase"])
async def test_no_ack_is_false_and_service_resumes(mode: str, tmp_path: Path) -> None:
    """Whatever the disk does, what was acknowledged is stored once, and sends succeed when it is well."""
    random = Random(f"{SEED} disk {mode}")
    disk = tmp_path / "disk"
    environment = {"PARLEY_STORE_SEQUENCING": mode, faults.DISK: str(disk)}
    server = ServerProcess(tmp_path / "data", environment)
    async with ClientSession() as session:
        crowd = Crowd(server, session, random)
        try:
            await asyncio.to_thread(server.start)
            await crowd.gather()
            for number in range(ROUNDS // 2):
                await suffer(crowd, disk, random.choice(FAULTS), kill=number % KILL_EVERY == KILL_EVERY - 1)
            await asyncio.to_thread(server.restart)
            await crowd.finish()
        finally:
            await asyncio.to_thread(server.kill)
    assert_promise_kept(crowd, tmp_path / "history.jsonl")


async def suffer(crowd: Crowd, disk: Path, fault: str, kill: bool) -> None:
    """One fault for a while, then a healthy disk; the server may be killed in between."""
    disk.write_text(fault)
    await asyncio.sleep(crowd.random.uniform(0.02, FAULT_SECONDS_MAX))
    if kill:
        await asyncio.to_thread(crowd.server.kill)
    disk.write_text("")
    if kill:
        await asyncio.to_thread(crowd.server.start)
    await until_ready(crowd)
    crowd.server_is_up()
    await asyncio.sleep(crowd.random.uniform(0.02, HEALTHY_SECONDS_MAX))
    assert crowd.failed_member() is None, crowd.failed_member()


async def until_ready(crowd: Crowd) -> None:
    """The server itself says when it can write again."""
    http = HttpClient(crowd.session, crowd.server.url)
    async with asyncio.timeout(ROUND_SECONDS_MAX):
        while (await http.get("/readyz")).status != 200:  # noqa: ASYNC110 - another process knows
            await asyncio.sleep(0.02)
