"""kill -9 at every labelled point and at random under load: nothing acknowledged is lost, nothing is twice.

PARLEY_SIMULATE_ROUNDS rounds in total, half in each sequencing mode; PARLEY_SIMULATE_SEED repeats a run's
choices (not its timing). A failed run leaves its history beside the test's data.
"""

import asyncio
import signal
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from parley.testing import faults
from tests.harness.history import check
from tests.harness.recording import read_store
from tests.harness.server import ServerFailed, ServerProcess, run_parley
from tests.seeds import ROUNDS, SEED
from tests.simulation.crowd import Crowd

ROUND_SECONDS_MAX = 12

CRASH_SECONDS_MAX = 1.5
KILL_SECONDS_MAX = 0.5
START_SECONDS_MAX = 0.8
REACHED_MAX = 40

AT_RANDOM, AT_START = "at random", "at start"
MOMENTS = {
    "atomic": [label for label in faults.LABELS if label != "after_allocate"],
    "two_phase": list(faults.LABELS),
}


@pytest.mark.timeout(60 + ROUNDS * ROUND_SECONDS_MAX)
@pytest.mark.parametrize("mode", MOMENTS)
async def test_nothing_acknowledged_is_lost_and_nothing_is_twice(mode: str, tmp_path: Path) -> None:
    """However often and wherever the server is killed, everybody's history agrees with the store."""
    random = Random(f"{SEED} {mode}")
    server = ServerProcess(tmp_path / "data", {"PARLEY_STORE_SEQUENCING": mode})
    async with ClientSession() as session:
        crowd = Crowd(server, session, random)
        try:
            await asyncio.to_thread(server.start)
            await crowd.gather()
            for moment in islice(cycle([*MOMENTS[mode], AT_RANDOM, AT_RANDOM, AT_START]), ROUNDS // 2):
                await die(crowd, moment)
            await asyncio.to_thread(server.restart)
            await crowd.finish()
        finally:
            await asyncio.to_thread(server.kill)
    assert_promise_kept(crowd, tmp_path / "history.jsonl")


async def die(crowd: Crowd, moment: str) -> None:
    """Let the crowd talk to the server until it dies at this moment."""
    server, random = crowd.server, crowd.random
    await asyncio.to_thread(server.kill)
    if moment == AT_START:
        server.spawn()
        await asyncio.sleep(random.uniform(0, START_SECONDS_MAX))
        return
    crash = {faults.CRASH: f"{moment}:{random.randint(1, REACHED_MAX)}"} if moment in faults.LABELS else {}
    try:
        await asyncio.to_thread(server.start, crash)
    except ServerFailed:
        assert server.wait() == -signal.SIGKILL, (
            "it ended in another way than by the crash in its own recovery"
        )
        return
    crowd.server_is_up()
    await until_dead(server, CRASH_SECONDS_MAX if crash else random.uniform(0.02, KILL_SECONDS_MAX))
    assert crowd.failed_member() is None, crowd.failed_member()


async def until_dead(server: ServerProcess, seconds_max: float) -> None:
    """Wait until it has died by itself, or kill it when the time has come."""
    died = asyncio.create_task(asyncio.to_thread(server.wait))
    await asyncio.wait([died], timeout=seconds_max)
    await asyncio.to_thread(server.kill)
    await died


def assert_promise_kept(crowd: Crowd, history_file: Path) -> None:
    read_store(crowd.history, crowd.server.sqlite_path)
    crowd.history.write(history_file)
    breaches = check(crowd.history)
    assert not breaches, f"seed {SEED}, history in {history_file}\n" + "\n".join(map(str, breaches[:20]))
    assert sum(crowd.acknowledged.values()) > ROUNDS, "the crowd hardly got a word in"
    checked = run_parley("check", "--data", str(crowd.server.data))
    assert checked.returncode == 0, checked.stdout + checked.stderr
