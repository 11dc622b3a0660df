"""Every contract test that takes `engine` runs once per engine.

Engines that differ only in who gives the numbers run the suites that numbers matter to: those of the log.
"""

from pathlib import Path

import pytest

from tests.contracts.engines import ENGINES, Engine, SqliteEngine

OTHER_ALLOCATORS = {"dynamodb-redis", "dynamodb-sequencer"}
SUITES_OF_THE_LOG = ("test_log_", "test_store_model")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        is_log = metafunc.module.__name__.rpartition(".")[2].startswith(SUITES_OF_THE_LOG)
        names = [name for name in ENGINES if is_log or name not in OTHER_ALLOCATORS]
        metafunc.parametrize("engine", names, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture(params=["atomic", "two_phase"])
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteEngine:
    """For what is promised of SQLite alone."""
    return SqliteEngine(request.param, tmp_path)
