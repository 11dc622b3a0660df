"""Every contract test that takes `engine` runs once per engine."""

from pathlib import Path

import pytest

from tests.contracts.engines import ENGINES, Engine, SqliteEngine


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture(params=["atomic", "two_phase"])
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteEngine:
    """For what is promised of SQLite alone."""
    return SqliteEngine(request.param, tmp_path)
