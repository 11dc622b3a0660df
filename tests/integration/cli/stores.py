"""Stores for the commands to work on: made once through the real rooms, copied for each test."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from parley.checks.check import check
from parley.clock import Clock
from parley.ids import Ids
from parley.store.invariants import Findings, OnProgress, no_progress
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics
from tests.integration.small_world import VOID_AT, Ticking, populate


def open_store(folder: Path, clock: Clock) -> SqliteStore:
    make_ids = Ids(random.Random(1).getrandbits)
    return SqliteStore(folder, clock=clock, ids=make_ids, metrics=Metrics(clock))


async def _fill(folder: Path) -> None:
    store = open_store(folder, Ticking())
    await store.open()
    await populate(store)
    await store.close()


def fill(folder: Path) -> None:
    """The small world, with a void in its group."""
    asyncio.run(_fill(folder))
    change(
        folder,
        f"UPDATE entries SET kind = 0, sender_no = NULL, client_id = NULL, message_id = NULL, wire = NULL"
        f" WHERE chat_no = 1 AND sequence = {VOID_AT}",
    )


def change(folder: Path, *statements: str) -> None:
    """What somebody with sqlite3 in hand can do to a store."""
    with closing(sqlite3.connect(folder / "parley.db", timeout=10, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def one(folder: Path, query: str) -> object:
    """The single value that a query finds."""
    with closing(sqlite3.connect(folder / "parley.db", timeout=10)) as connection:
        row = connection.execute(query).fetchone()
        return row[0] if row else None


def check_folder(
    folder: Path, chat_ids: list[str] | None = None, on_progress: OnProgress = no_progress
) -> Findings:
    """What `parley check` finds."""

    async def look() -> Findings:
        store = open_store(folder, Ticking())
        try:
            return await check(store, chat_ids, on_progress)
        finally:
            await store.close()

    return asyncio.run(look())
