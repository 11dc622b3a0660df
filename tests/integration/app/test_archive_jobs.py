"""What a node with the role archiver does by itself leaves the same traces as a command."""

import random
from pathlib import Path

import pytest

from parley.app.archive import archive_jobs
from parley.audit import SERVER, AuditTrail
from parley.clock import MS_PER_DAY
from parley.config import Config
from parley.ids import Ids
from tests.contracts.acting import add_group, add_people, entries_of, message
from tests.contracts.engines import SqliteEngine


async def test_automatic_retention_is_audited(tmp_path: Path) -> None:
    """The record is there before a body goes, and says that it was the server."""
    config = Config()
    config.retention.days, config.retention.is_automatic = 7, True
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await store.log.append([message(chat, ann, "old")])
        store.clock.advance(8 * MS_PER_DAY)
        trail = AuditTrail(store.kinds.audit, store.clock, Ids(random.Random(1).getrandbits))
        (job,) = archive_jobs(store.engine, config, store.clock, store.metrics, {}, trail)
        assert await store.kinds.audit.records("", 10) == []
        await job.run()
        (record,) = await store.kinds.audit.records("", 10)
        assert (record.actor, record.action, record.outcome) == (SERVER, "retention.apply", "done")
        assert record.detail == "automatic"
        assert [entry.content for entry in entries_of(await store.log.read(chat, 0, 10))] == [""]


async def test_without_a_record_nothing_is_removed(tmp_path: Path) -> None:
    """An audit log that cannot be written stops the removal."""

    class Broken:
        async def record(self, record: object) -> None:
            raise RuntimeError("no audit")

        async def records(self, before: str, limit: int) -> list[object]:
            return []

    config = Config()
    config.retention.days, config.retention.is_automatic = 7, True
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await store.log.append([message(chat, ann, "old")])
        store.clock.advance(8 * MS_PER_DAY)
        trail = AuditTrail(Broken(), store.clock, Ids(random.Random(1).getrandbits))  # type: ignore[arg-type]
        (job,) = archive_jobs(store.engine, config, store.clock, store.metrics, {}, trail)
        with pytest.raises(RuntimeError, match="no audit"):
            await job.run()
        assert [entry.content for entry in entries_of(await store.log.read(chat, 0, 10))] == ["old"]
