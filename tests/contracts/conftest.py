"""Every contract test that takes `engine` runs once per engine.

Engines that differ only in who gives the numbers run the suites that numbers matter to.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from parley.dynamodb import Dynamo, ItemPage
from parley.store.cassandra import inspection as cassandra_inspection
from parley.store.cassandra import record_rows as cassandra_records
from parley.store.cassandra import transfer as cassandra_transfer
from parley.store.sqlite import inspection, transfer
from tests.contracts.cassandra_engine import end_shared_connection
from tests.contracts.engines import ENGINES, Engine, SqliteEngine
from tests.memory import maintenance

ALL_OF_THE_LOG = ("test_log_", "test_store_model")
NUMBERS = ("test_log_sealing", "test_log_counters", "test_repairs")
RACES = ("test_log_appending", "test_log_idempotency", "test_log_membership", "test_log_reading")
SUITES = {
    "dynamodb-redis": (*ALL_OF_THE_LOG, "test_repairs", "test_transfer"),
    "dynamodb-sequencer": ALL_OF_THE_LOG,
    "cassandra-two_phase": (
        *NUMBERS,
        *RACES,
        "test_store_model",
        "test_transfer",
        "test_cold_tier",
        "test_message_life",
    ),
    "cassandra-redis": (*NUMBERS, "test_transfer", "test_cold_tier"),
}
"""Which suites an engine runs, if not all. A sequencer's counters are in the tables: repairs are the same.

What does not depend on who gives the numbers, and decisions that all share, runs on Cassandra in atomic."""
if os.environ.get("PARLEY_TEST_ALL_SUITES"):
    SUITES.clear()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        suite = metafunc.module.__name__.rpartition(".")[2]
        names = [name for name in ENGINES if suite.startswith(SUITES.get(name, ("",)))]
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
