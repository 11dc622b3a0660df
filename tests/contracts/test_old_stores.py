"""Stores of the version before records had tables of their own: brought up to date, everything is there."""

import stat
from pathlib import Path
from typing import Any

import apsw
import pytest
from structlog.testing import capture_logs

from parley.errors import ConfigError, ParleyError
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.schema import VERSION as DYNAMODB_VERSION
from parley.store.folder import DATABASE_NAME
from parley.store.sqlite import moved, record_rows, schema
from parley.store.sqlite.parts import SqliteParts, SqliteRebuild
from parley.store.sqlite.schema import MIGRATIONS
from tests.contracts.dynamodb_engine import DynamoOpenStore
from tests.contracts.engines import SqliteEngine
from tests.contracts.old_stores import (
    DYNAMODB,
    SQLITE,
    OldStore,
    assert_held,
    assert_served,
    assert_whole,
    what_it_held,
    write_dynamodb,
    write_sqlite,
)
from tests.services import fresh_prefix

pytestmark = pytest.mark.timeout(180)


def opened_sqlite() -> OldStore:
    """Opening the file frees what a crash left claimed."""
    old = what_it_held("sqlite-16")
    for queue in old.records["DeliveryQueue"]:
        queue["due_ms"] = 0
    return old


async def test_a_file_is_brought_up_to_date_when_it_is_opened(tmp_path: Path) -> None:
    """With a copy of it first, that only the server may read; one line says so, and none when it is done."""
    write_sqlite(tmp_path / DATABASE_NAME)
    old = opened_sqlite()
    for turn in range(2):
        with capture_logs() as lines:
            async with SqliteEngine("atomic", tmp_path).opened() as store:
                if not turn:
                    await assert_whole(store, old)
                    await assert_served(store, old)
                assert store.breaches() == []
        told = [line for line in lines if line["event"] == "the store was brought up to date"]
        assert len(told) == 1 - turn
    copy = tmp_path / f"{DATABASE_NAME}.version-{SQLITE}"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with apsw.Connection(str(copy)) as connection:
        assert connection.pragma("user_version") == SQLITE
        assert connection.execute("SELECT count(*) FROM webhooks").get == 2
    connection.close()
    with apsw.Connection(str(tmp_path / DATABASE_NAME)) as connection:
        assert connection.pragma("user_version") == len(MIGRATIONS), "by which the old version refuses it"
    connection.close()


@pytest.mark.parametrize("at", range(3))
async def test_a_file_that_cannot_be_brought_up_to_date_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """However far it came: the next start does it all."""
    write_sqlite(tmp_path / DATABASE_NAME)
    loaded, left = record_rows.load, at * 5 + 1

    def fail(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise apsw.FullError("the disk is full")
        loaded(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(moved, "load", fail)
        with pytest.raises(ParleyError, match="the disk is full"):
            async with SqliteEngine("atomic", tmp_path).opened():
                pass
    with apsw.Connection(str(tmp_path / DATABASE_NAME)) as connection:
        assert connection.pragma("user_version") == SQLITE
        assert connection.execute("SELECT count(*) FROM webhooks").get == 2
    connection.close()
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        await assert_whole(store, opened_sqlite())


async def test_a_backup_that_the_old_version_made_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that was in its tables, of which this version only knows what they become."""
    (tmp_path / "old").mkdir()
    write_sqlite(tmp_path / "old" / DATABASE_NAME)
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", MIGRATIONS[:SQLITE])
        kept = SqliteParts(tmp_path / "old").rest(0, 0)
    built = SqliteRebuild(tmp_path / "new", SQLITE)
    built.add_entries(kept.entries_part)
    built.set_rest(kept.state_part)
    built.finish(0, ends_sessions=False)
    async with SqliteEngine("atomic", tmp_path / "new").opened() as store:
        await assert_held(store, opened_sqlite(), besides=frozenset({"ChatRecord"}))  # epochs are new
        assert store.breaches() == []


class OldDynamo(DynamoOpenStore):
    """Tables as they were, of this test alone; a part of what is written may be refused."""

    async def write(self) -> None:
        self.prefix = fresh_prefix()
        async with self._tables() as dynamo:
            await write_dynamodb(dynamo)

    async def init(self, dynamo: Dynamo | None = None) -> list[str]:
        said: list[str] = []
        operator = self.make_operator()
        try:
            await operator.create(said.append)
        finally:
            await operator.close()
        return said


async def test_tables_of_dynamodb_are_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one command, which may be cut short anywhere: no server starts before it has ended."""
    store = OldDynamo(None, {})
    await store.write()
    put, left = Dynamo.batch_put, 4

    async def fail(dynamo: Dynamo, table: str, items: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ParleyError("the command was killed")
        await put(dynamo, table, items)

    with monkeypatch.context() as patched:
        patched.setattr(Dynamo, "batch_put", fail)
        with pytest.raises(ParleyError, match="killed"):
            await store.init()
    with pytest.raises(ConfigError, match=f"old version {DYNAMODB}: run parley store init"):
        async with store.operator() as operator:
            await operator.open()
    said = await store.init()
    assert f"upgraded from version {DYNAMODB} to {DYNAMODB_VERSION}" in said
    assert not any("moved" in line for line in await store.init())
    await store.open()
    try:
        old = what_it_held("dynamodb-13")
        await assert_whole(store, old)
        await assert_served(store, old)
    finally:
        await store.close()
