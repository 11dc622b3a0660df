"""Every contract test that takes `engine` runs once per engine.

Engines that differ only in who gives the numbers run the suites that numbers matter to.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.dynamodb import Dynamo, ItemPage
from parley.store.sqlite import inspection, transfer
from tests.contracts.engines import ENGINES, Engine, SqliteEngine
from tests.memory import maintenance

ALL_OF_THE_LOG = ("test_log_", "test_store_model")
SUITES = {
    "dynamodb-redis": (*ALL_OF_THE_LOG, "test_repairs", "test_transfer"),
    "dynamodb-sequencer": ALL_OF_THE_LOG,
}
"""Which suites an engine runs, if not all. A sequencer's counters are in the tables: repairs are the same."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        suite = metafunc.module.__name__.rpartition(".")[2]
        names = [name for name in ENGINES if suite.startswith(SUITES.get(name, ("",)))]
        metafunc.parametrize("engine", names, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return ENGINES[request.param](tmp_path)


@pytest.fixture(params=["atomic", "two_phase"])
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteEngine:
    """For what is promised of SQLite alone."""
    return SqliteEngine(request.param, tmp_path)


@pytest.fixture
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every engine reads for commands in pages of two rows, so that a small store has many."""
    for name in ("CHATS_PER_PAGE", "ROWS_PER_PAGE", "ENTRIES_PER_CHUNK", "KEYS_PER_PAGE"):
        monkeypatch.setattr(inspection, name, 2)
    for name in ("ROWS_PER_PAGE", "ENTRIES_PER_PAGE"):
        monkeypatch.setattr(transfer, name, 2)
    monkeypatch.setattr(maintenance, "ROWS_PER_PAGE", 2)
    monkeypatch.setattr(Dynamo, "query", _limited(Dynamo.query))
    monkeypatch.setattr(Dynamo, "scan", _limited(Dynamo.scan))


def _limited(ask: Callable[..., Awaitable[ItemPage]]) -> Callable[..., Awaitable[ItemPage]]:
    async def asked(dynamo: Dynamo, *arguments: Any, **options: Any) -> ItemPage:
        return await ask(dynamo, *arguments, **{"limit": 2, **options})

    return asked
