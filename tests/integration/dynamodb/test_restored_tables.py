"""Tables as a point-in-time recovery leaves them: copies of an earlier moment, under another prefix."""

import os
import random
from pathlib import Path

import pytest

from parley.app.migration import copy_side
from parley.clock import wall_clock
from parley.config import Config, load
from parley.core.sync import decide_start
from parley.ids import Ids
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import TABLES, create_tables
from tests.contracts.acting import message
from tests.contracts.dynamodb_engine import DynamoOpenStore
from tests.contracts.full_store import FullStore
from tests.integration.cli.running import parley
from tests.services import dynamodb_endpoint, fresh_prefix

REGION = "local"


async def copy_tables(old: str, new: str) -> None:
    """Every item of every table, as a recovery to new tables brings it."""
    source, target = (Dynamo(dynamodb_endpoint(), REGION, prefix=prefix) for prefix in (old, new))
    await source.open()
    await target.open()
    await create_tables(target)
    for name in TABLES:
        async for items in table_pages(source, name):
            await target.batch_put(name, items)
    await source.close()
    await target.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("allocator", [None, "dynamodb"])
async def test_clients_of_the_lost_tables_start_over(tmp_path: Path, allocator: str | None) -> None:
    """Check, raise epochs, serve: no position of the old tables is taken for one of the new."""
    store = DynamoOpenStore(allocator, {})
    await store.create()
    full = await FullStore(store).fill()
    prefix = fresh_prefix()
    await copy_tables(store.prefix, prefix)
    await store.log.append([message(full.group, full.people["ann"], "after the moment of recovery")])
    (seen,) = (await store.log.heads([full.group])).values()
    await store.close()

    file = tmp_path / "restored.toml"
    mode = "atomic" if allocator is None else "two_phase"
    file.write_text(
        f'[store]\nengine = "dynamodb"\nsequencing = "{mode}"\n'
        f'[dynamodb]\nendpoint = "{dynamodb_endpoint()}"\nregion = "{REGION}"\nprefix = "{prefix}"\n'
    )
    for command in (["check"], ["store", "raise-epochs"], ["store", "raise-epochs", "--apply"], ["check"]):
        done = parley(*command, "--config", str(file))
        assert done.status == 0, done.stdout + done.stderr

    restored = copy_side(config_of(file), wall_clock, Ids(random.SystemRandom().getrandbits), os.environ)
    await restored.engine.open()
    try:
        (head,) = (await restored.engine.log.heads([full.group])).values()
        assert head.sequence == seen.sequence - 1
        assert decide_start(seen.sequence, seen.epoch, head).reset
        draft = message(full.group, full.people["ann"], "another message at the same number")
        await restored.engine.log.append([draft])
        (head,) = (await restored.engine.log.heads([full.group])).values()
        assert head.sequence == seen.sequence
        assert decide_start(seen.sequence, seen.epoch, head).reset, "the number is the same, the log is not"
    finally:
        await restored.engine.close()
    await store.empty()


def config_of(file: Path) -> Config:
    return load(file, {})[0]
