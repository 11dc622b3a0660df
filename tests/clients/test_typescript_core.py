"""The core of the TypeScript SDK does what Python's does, life by life, on a network that hurts."""

import subprocess
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import IO

import msgspec
import pytest

from parley.concurrency import map_concurrently
from tests.model_server.server import at_once
from tests.model_server.trace import relive
from tests.node import FOLDER, node_tool, npm
from tests.seeds import IS_VARIED, ROUNDS, try_seed

LIVES = 500 if IS_VARIED else 10 * ROUNDS
"""In one repeat of a long run, of which `make simulate` makes twenty; and in any other run."""


class Relived(msgspec.Struct):
    """The verdict about one life. `difference`: where the other core did otherwise."""

    seed: int
    difference: str | None


def bundled(folder: Path) -> Path:
    """The program that relives, as one file that Node runs."""
    program = folder / "relive.mjs"
    words = ("test/model/relive.ts", "--bundle", "--platform=node", "--format=esm", "--log-level=warning")
    done = node_tool("esbuild", *words, f"--outfile={program}")
    assert done.returncode == 0, done.stdout
    return program


def relived(process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> Relived:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        errors.seek(0)
        pytest.fail(f"Node ended\n{errors.read().decode()}", pytrace=False)
    return msgspec.json.decode(line, type=Relived)


@pytest.mark.randomised
@pytest.mark.timeout(900)
def test_the_core_in_typescript_lives_the_same_lives(seed: int, tmp_path: Path) -> None:
    """Given the same frames, calls, times and chances, it sends, saves, tells and shows the same."""
    random, program, differences = Random(seed), bundled(tmp_path), []
    with TemporaryFile() as errors:
        command = ["node", str(program)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=FOLDER, stdin=pipe, stdout=pipe, stderr=errors) as process:
            assert process.stdin is not None
            for number in range(LIVES + 1):
                if number < LIVES:
                    try_seed()
                    process.stdin.write(relive(random.getrandbits(32)) + b"\n")
                    process.stdin.flush()
                if number:  # one life is relived while the next is made
                    differences.append(relived(process, errors))
            process.stdin.close()
    different = [one for one in differences if one.difference is not None]
    assert len(differences) == LIVES
    assert not different, "\n".join(
        [
            f"{len(different)} of {LIVES} lives were lived otherwise",
            f"life {different[0].seed}, {different[0].difference}",
            f"again: echo {different[0].seed} | .venv/bin/python -m tests.model_server | node {program}",
        ]
    )


@pytest.mark.randomised
@pytest.mark.timeout(300)
def test_the_duties_hold_at_the_model_server_of_python(seed: int) -> None:
    """Each scenario of each duty, and those of other tabs, is played at the same server as Python's lives."""
    try_seed()
    env = {
        "PARLEY_MODEL_SERVER": f"{sys.executable} -m tests.model_server",
        "PARLEY_SIMULATE_SEED": str(seed % 2**31),
    }
    said = npm("exec", "--", "vitest", "run", "test/core/", "--reporter=verbose", env=env)
    assert "22. An overview may be older than a frame that arrived before it." in said


def test_the_model_server_does_several_things_at_once() -> None:
    """Lives of which it could not do a request ended the run, and were never compared."""

    async def double(number: int) -> int:
        return 2 * number

    assert at_once(map_concurrently(double, [1, 2, 3], 2)) == [2, 4, 6]
