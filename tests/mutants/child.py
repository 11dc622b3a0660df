"""One run of pytest, forked off a process that has imported the libraries: that is most of a short run."""

import importlib
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.faults import ROOT

LIBRARIES = (
    "aiohttp.web",
    "aiokafka",
    "apsw",
    "argon2",
    "botocore.session",
    "msgspec",
    "prometheus_client",
    "pytest",
    "redis.asyncio",
    "structlog",
    "yaml",
)
OURS = frozenset({"bench", "docs", "ops", "parley", "tests"})
"""What must come from the copy."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(list(LIBRARIES))


def run_pytest(
    folder: Path, arguments: Sequence[str], environment: dict[str, str], output: Path, seconds_max: float
) -> int:
    """Pytest's exit status; TimeoutError when it does not end."""
    process = CONTEXT.Process(target=_main, args=(folder, list(arguments), environment, output))
    process.start()
    process.join(seconds_max)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"it did not end in {seconds_max:.0f} s")
    assert process.exitcode is not None, "it was waited for"
    return process.exitcode


def _main(folder: Path, arguments: list[str], environment: dict[str, str], output: Path) -> None:
    """As if a fresh interpreter had been started in the copy."""
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    others = [path for path in sys.path if Path(path).resolve() not in (ROOT, ROOT / "src", folder)]
    sys.path[:] = [str(folder / "src"), str(folder), *others]
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    importlib.invalidate_caches()
    sys.argv = ["pytest", *arguments]
    sys.exit(pytest.main(arguments))
