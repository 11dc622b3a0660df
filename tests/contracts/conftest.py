"""Every contract test that takes `engine` runs once per engine.

In a short run `tests/contracts/suites.py` says on which of them.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.store.cassandra import inspection as cassandra_inspection
from parley.store.cassandra import record_rows as cassandra_records
from parley.store.cassandra import transfer as cassandra_transfer
from parley.store.dynamodb.driver import Dynamo, ItemPage
from parley.store.sqlite import inspection, transfer
from tests.contracts.cassandra_engine import end_shared_connection
from tests.contracts.engines import ENGINES, Engine, SqliteEngine
from tests.contracts.suites import engines_of, may_run_on
from tests.memory import maintenance
from tests.selection import is_short


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        path = metafunc.definition.nodeid.partition("::")[0]
        names = may_run_on(path, ENGINES)
        if is_short(metafunc.config):
            names = engines_of(path, metafunc.function.__name__, names)
        metafunc.parametrize("engine", names, indirect=True)


def pytest_sessionfinish() -> None:
    end_shared_connection()


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
    for module in (cassandra_inspection, cassandra_records):
        monkeypatch.setattr(module, "ROWS_PER_PAGE", 2)
    monkeypatch.setattr(cassandra_transfer, "POSITIONS_PER_PAGE", 2)
    monkeypatch.setattr(Dynamo, "query", _limited(Dynamo.query))
    monkeypatch.setattr(Dynamo, "scan", _limited(Dynamo.scan))


def _limited(ask: Callable[..., Awaitable[ItemPage]]) -> Callable[..., Awaitable[ItemPage]]:
    async def asked(dynamo: Dynamo, *arguments: Any, **options: Any) -> ItemPage:
        return await ask(dynamo, *arguments, **{"limit": 2, **options})

    return asked
