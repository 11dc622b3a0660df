"""Backups of a store with a cold tier: both tiers come back together, erased bodies never."""

import asyncio
import gzip
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from parley.app.backups import SqliteFolders, make_backup
from parley.app.migration import copy_side
from parley.archive.segment import SegmentDamaged
from parley.archive.tiers import archived_rows
from parley.backup.backups import Backups
from parley.backup.manifests import COLD, Backup, BackupDamaged
from parley.backup.restores import restore_backup
from parley.bodies.writer import Choice, EntryWriter
from parley.checks.check import check
from parley.clock import MS_PER_DAY
from parley.config import Config
from parley.errors import ConfigError, StoreUnavailable
from parley.objects.targets import objects_at
from parley.store.folder import DATABASE_NAME
from parley.store.sqlite import parts
from parley.store.sqlite.parts import SqliteParts
from tests.contracts.acting import message
from tests.contracts.cold_world import ColdWorld, synced
from tests.contracts.engines import SqliteOpenStore
from tests.integration.backup.test_backups import World

Rows = list[tuple[int, bytes | None]]


class ColdBackups(World):
    """A store with a cold tier, and its backups."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, str(folder / "backups"))
        self.cold_folder = folder / "archive"

    @property
    def cold(self) -> ColdWorld:
        return ColdWorld(self.store, self.folder, objects=objects_at(str(self.cold_folder), {}))

    @property
    def backups(self) -> Backups:
        return Backups(self.objects, self.said.append, objects_at(str(self.cold_folder), {}))

    async def archive(self) -> None:
        self.store.clock.advance(MS_PER_DAY)
        assert (await self.cold.run()).failed == {}

    async def erase(self, sender_id: str) -> None:
        eraser = EntryWriter(self.store.log, self.cold.tier, self.cold.archiver)
        await eraser.erase(self.chat_id, Choice(sender_id=sender_id))
        await eraser.scrub()

    async def log(self) -> Rows:
        return await synced(self.cold.log, self.chat_id)

    async def restored(self, name: str, backup_id: str | None = None) -> Rows:
        """The log of a restored store, over both of its tiers, after every check of it was clean."""
        folder, archive = self.folder / name, self.folder / f"{name}-archive"
        backups = Backups(self.objects, self.said.append, objects_at(str(archive), {}))
        backup = await backups.choose(backup_id)
        await restore_backup(backups, backup, folder, SqliteFolders(), self.clock, ends_sessions=False)
        config = Config()
        config.server.data, config.archive.target = str(folder), str(archive)
        engine = copy_side(config, self.clock, self.ids, {}).engine
        findings = await check(engine, archived=archived_rows(engine))
        await engine.close()
        assert findings.breaches == []
        store = SqliteOpenStore(folder, "atomic", {})
        await store.open()
        try:
            cold = ColdWorld(store, folder, objects=objects_at(str(archive), {}))
            assert (await cold.verify()).faults == []
            return await synced(cold.log, self.chat_id)
        finally:
            await store.close()


@pytest.fixture
def world(tmp_path: Path) -> ColdBackups:
    return ColdBackups(tmp_path)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a log is full with four entries, and is recognised by its last one."""
    monkeypatch.setattr(parts, "PART_ENTRIES_MAX", 4)
    monkeypatch.setattr(parts, "TAIL_ENTRIES", 1)


def stored_bytes(folder: Path) -> bytes:
    """Everything in a folder, unpacked where it is packed."""
    found = b""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            found += gzip.decompress(data) if path.suffix == ".gz" else data
    return found


async def test_hot_and_cold_come_back_together(world: ColdBackups) -> None:
    """Restored elsewhere, the same calls give the same entries, whatever happens to the old archive."""
    async with world:
        await world.say(*(f"message {number}" for number in range(20)))
        await world.archive()
        await world.say("hot", "too")
        before = await world.log()
        made = await world.back_up()
        assert (made.archived_entries, made.entries) == (19, 3)
        for path in world.cold_folder.rglob("*.*"):
            path.unlink()
        assert await world.restored("elsewhere") == before


async def test_an_archived_object_is_copied_once(world: ColdBackups) -> None:
    """A second backup adds the new segment and the new manifest, and can be restored as the first can."""
    async with world:
        await world.say(*(f"message {number}" for number in range(20)))
        await world.archive()
        logs = {(await world.back_up()).backup_id: await world.log()}
        there = {one.key: one.modified_ms for one in await world.objects.find(COLD)}
        await world.say("more", "and more")
        await world.archive()
        logs[(await world.back_up()).backup_id] = await world.log()
        now = {one.key: one.modified_ms for one in await world.objects.find(COLD)}
        assert {key: now[key] for key in there} == there
        assert len(now) == len(there) + 2
        for backup_id, log in logs.items():
            assert await world.restored(backup_id, backup_id) == log


async def test_a_restore_without_a_place_for_the_archive_is_refused(world: ColdBackups) -> None:
    """Before anything is built, with the setting to make."""
    async with world:
        await world.say("one", "two")
        await world.archive()
        await world.back_up()
    backups = Backups(world.objects, world.said.append)
    with pytest.raises(ConfigError, match=r"archive\.target"):
        await restore_backup(
            backups,
            await backups.choose(None),
            world.folder / "r",
            SqliteFolders(),
            world.clock,
            ends_sessions=False,
        )
    assert not (world.folder / "r" / DATABASE_NAME).exists()


async def test_a_backup_without_the_archive_is_refused(world: ColdBackups) -> None:
    """A backup that looks whole and lacks what is archived is worse than none."""
    async with world:
        await world.say("one", "two")
        await world.archive()
        config = Config()
        config.server.data = str(world.data)
        backups = Backups(world.objects, world.said.append)
        with pytest.raises(ConfigError, match=r"archive\.target"):
            await make_backup(backups, config, world.clock, world.ids, is_full=False)
        assert await backups.all() == []


async def test_a_damaged_archive_is_not_backed_up(world: ColdBackups) -> None:
    """Of a segment that is not what it was, no copy is made that looks good."""
    async with world:
        await world.say("one", "two", "three")
        await world.archive()
        (segment,) = world.cold_folder.rglob("*.seg")
        good = segment.read_bytes()
        segment.write_bytes(good[:-1])
        with pytest.raises(SegmentDamaged, match="cut off"):
            await world.back_up()
        segment.unlink()
        with pytest.raises(StoreUnavailable, match="archive"):
            await world.back_up()
        assert await world.backups.all() == []
        segment.write_bytes(good)
        await world.back_up()


async def test_a_changed_object_of_the_archive_is_found_by_a_restore(world: ColdBackups) -> None:
    """Each is checked before the store gets its name."""
    async with world:
        await world.say("one", "two", "three")
        await world.archive()
        await world.back_up()
        for stored in await world.objects.find(COLD):
            file = world.folder / "backups" / stored.key
            good = file.read_bytes()
            file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
            with pytest.raises(BackupDamaged):
                await world.restored("broken")
            assert not (world.folder / "broken" / DATABASE_NAME).exists()
            file.write_bytes(good)
        assert await world.restored("whole") == await world.log()


async def test_an_object_of_another_archive_is_not_overwritten(world: ColdBackups) -> None:
    """A place where something else has the name is refused, and stays as it is."""
    async with world:
        await world.say("one", "two", "three")
        await world.archive()
        await world.back_up()
    (segment,) = world.cold_folder.rglob("*.seg")
    other = world.folder / "r-archive" / segment.relative_to(world.cold_folder)
    other.parent.mkdir(parents=True)
    other.write_bytes(b"another")
    with pytest.raises(BackupDamaged):
        await world.restored("r")
    assert other.read_bytes() == b"another"


class Rewriting(SqliteParts):
    """A source whose archive is rewritten right after each of its first snapshots."""

    def __init__(self, folder: Path, world: "Restless", times: int) -> None:
        super().__init__(folder)
        self.world = world
        self.times = times
        self.loop = asyncio.get_running_loop()

    def rest(self, after: int, since: int) -> Any:
        found = super().rest(after, since)
        if self.times:
            self.times -= 1
            asyncio.run_coroutine_threadsafe(self.world.rewrite(), self.loop).result()
        return found


class Restless(ColdBackups):
    async def rewrite(self) -> None:
        await self.say("more")
        await self.archive()


async def test_an_archive_may_be_rewritten_meanwhile(tmp_path: Path) -> None:
    """The snapshot is taken again: a backup holds a store and the archive that belongs to it."""
    world = Restless(tmp_path)
    async with world:
        await world.say("one", "two", "three")
        await world.archive()
        source = Rewriting(world.data, world, 2)
        await world.backups.make(source, "backup_x", "now", "1", is_full=False)
        assert await world.restored("r") == await world.log()
        endless = Rewriting(world.data, world, 100)
        with pytest.raises(StoreUnavailable, match="rewritten"):
            await world.backups.make(endless, "backup_y", "now", "1", is_full=False)


# Erased bodies


async def both_speak(world: ColdBackups, count: int) -> None:
    for number in range(count):
        await world.store.log.append([message(world.chat_id, world.ann, f"ann secret {number}")])
        await world.store.log.append([message(world.chat_id, world.bob, f"ben {number}")])


@pytest.mark.parametrize("is_archived", [False, True])
async def test_an_erased_body_is_in_no_later_backup(
    world: ColdBackups, small_parts: None, is_archived: bool
) -> None:
    """The parts that hold it are written anew; the others are shared, and the restored log is whole."""
    async with world:
        await world.store.log.append([message(world.chat_id, world.bob, f"calm {n}") for n in range(2_048)])
        await both_speak(world, 10)
        first = await world.back_up()
        if is_archived:
            await world.archive()
            await world.back_up()
        await world.erase(world.ann)
        await world.say("still here")
        later = await world.back_up()
        log = await world.log()
        assert not any(b"ann secret" in (wire or b"") for _, wire in log)
        assert await world.restored("later", later.backup_id) == log
        for name in ("later", "later-archive"):
            assert b"ann secret" not in stored_bytes(world.folder / name)
        if not is_archived:
            assert later.based_on == first.backup_id
            shared = set(later.segments) & set(first.segments)
            assert 200 < len(shared) < len(first.segments)
        await keep_only(world, later)
        assert b"ann secret" not in stored_bytes(world.folder / "backups")


async def keep_only(world: ColdBackups, backup: Backup) -> None:
    """Delete what this backup does not name."""
    named = {part.key for part in await world.backups.every_part(backup)}
    for stored in await world.objects.find(""):
        if stored.key not in named and not stored.key.endswith(f"{backup.backup_id}.json"):
            await world.objects.delete(stored.key)


async def test_what_is_erased_while_a_backup_runs_does_not_come_back(
    world: ColdBackups, small_parts: None
) -> None:
    """Its part was written before; the snapshot says what the entry is by then, and the restore heeds it."""

    class Late(SqliteParts):
        def rest(self, after: int, since: int) -> Any:
            with closing(apsw.Connection(str(world.data / DATABASE_NAME))) as file:
                file.execute(
                    "UPDATE entries SET wire = CAST(replace(wire, 'marzipan', 'gone') AS BLOB)"
                    " WHERE instr(wire, 'marzipan')"
                )
            return super().rest(after, since)

    async with world:
        await world.say("marzipan", "2", "3", "4", "5")
        made = await world.backups.make(Late(world.data), "backup_x", "now", "1", is_full=False)
        assert [segment.entries for segment in made.segments] == [4, 1]
        assert b"marzipan" in stored_bytes(world.folder / "backups" / "segments")
        restored = await world.restored("r")
        assert b"marzipan" not in b"".join(wire or b"" for _, wire in restored)
        assert b"gone" in (restored[0][1] or b"")
        later = await world.back_up()
        await keep_only(world, later)
        assert b"marzipan" not in stored_bytes(world.folder / "backups")


async def test_a_trimmed_part_is_written_anew_without_what_is_archived(
    world: ColdBackups, small_parts: None
) -> None:
    """What is archived is in the backup once, not also in the parts of the hot log."""
    async with world:
        await world.say(*(f"message {number}" for number in range(10)))
        await world.back_up()
        await world.archive()
        made = await world.back_up()
        assert made.entries == 1
        assert await world.restored("r") == await world.log()
