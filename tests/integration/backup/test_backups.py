"""Backups of an embedded store: what they hold, what a crash leaves, and what a restore refuses."""

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from parley.app import backups as app_backups
from parley.app.backups import SqliteFolders, make_backup
from parley.backup.backups import Backups, NoBackup
from parley.backup.manifests import MANIFESTS, Backup, BackupDamaged
from parley.backup.restores import BUILT, BrokenBackup, restore_backup
from parley.config import Config
from parley.errors import ConfigError, StoreUnavailable
from parley.ids import Ids
from parley.model import Session
from parley.objects.ports import Objects
from parley.objects.targets import objects_at
from parley.store.folder import DATABASE_NAME, lock_folder
from parley.store.sqlite import parts, schema
from parley.store.sqlite.database import Database
from tests.contracts.acting import add_group, add_people, change, message
from tests.contracts.engines import SqliteOpenStore
from tests.contracts.life_world import LifeWorld, delete, edit
from tests.contracts.test_retention import raw_bytes
from tests.harness.clock import VirtualClock
from tests.services import s3_target

TARGETS: dict[str, Callable[[Path], str]] = {
    "folder": lambda folder: str(folder / "backups"),
    "s3": lambda _: s3_target(),
}
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"


class World:
    """A store in a folder, as a server has it open, and its backups."""

    def __init__(self, folder: Path, target: str, sequencing: str = "atomic") -> None:
        self.folder = folder
        self.data = folder / "data"
        self.store = SqliteOpenStore(self.data, sequencing, {})
        self.clock = VirtualClock()
        self.ids = Ids(random.Random(3).getrandbits)
        self.objects: Objects = objects_at(target, os.environ)
        self.said: list[str] = []
        self.chat_id = self.ann = self.bob = ""

    async def __aenter__(self) -> "World":
        await self.store.open()
        self.ann, self.bob = await add_people(self.store, "ann", "bob")
        self.chat_id = await add_group(self.store, self.ann, self.bob)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()

    async def say(self, *texts: str) -> None:
        await self.store.log.append([message(self.chat_id, self.ann, text) for text in texts])

    @property
    def backups(self) -> Backups:
        return Backups(self.objects, self.said.append)

    async def back_up(self, *, full: bool = False) -> Backup:
        self.clock.advance(1_000)
        config = Config()
        config.server.data = str(self.data)
        return await make_backup(self.backups, config, self.clock, self.ids, is_full=full)

    async def restore(self, name: str = "restored", backup_id: str | None = None, **options: Any) -> Path:
        backup = await self.backups.choose(backup_id)
        options = {"ends_sessions": False, **options}
        await restore_backup(self.backups, backup, self.folder / name, SqliteFolders(), self.clock, **options)
        return self.folder / name


@pytest.fixture(params=TARGETS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, TARGETS[request.param](tmp_path))


@pytest.fixture
def local(tmp_path: Path) -> World:
    """For promises that do not depend on the target."""
    return World(tmp_path, TARGETS["folder"](tmp_path))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a log is full with four entries."""
    monkeypatch.setattr(parts, "PART_ENTRIES_MAX", 4)


def rows(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, without what a restore changes on purpose."""
    with closing(apsw.Connection(str(folder / DATABASE_NAME), flags=apsw.SQLITE_OPEN_READWRITE)) as file:
        file.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        found: dict[str, list[tuple[Any, ...]]] = {}
        for (table,) in file.execute(TABLES).fetchall():
            columns = [
                name
                for (name,) in file.execute("SELECT name FROM pragma_table_info(?)", (table,))
                if name not in ("epoch", "change") and table != "changes"
            ]
            found[str(table)] = sorted(
                file.execute(f"SELECT {', '.join(columns or ['1'])} FROM {table}"), key=repr
            )
        return found


async def test_a_restored_store_has_every_row(world: World) -> None:
    """What is restored is the store as it was, whatever happens to the original afterwards."""
    async with world:
        await world.say("one", "two")
        before = rows(world.data)
        made = await world.back_up()
        await world.say("too late")
        assert rows(await world.restore()) == before
        assert (made.entries, made.chats, made.people, made.based_on) == (2, 1, 2, "")


async def test_a_second_backup_writes_only_new_entries(world: World, small_parts: None) -> None:
    """The segments of the first are shared; each backup can be restored by itself."""
    async with world:
        await world.say(*map(str, range(10)))
        first = await world.back_up()
        states = {first.backup_id: rows(world.data)}
        await world.say("eleven")
        await world.store.log.append([change(world.chat_id, world.bob, "left", world.bob)])  # type: ignore[arg-type]
        second = await world.back_up()
        states[second.backup_id] = rows(world.data)
        assert [segment.entries for segment in first.segments] == [4, 4, 2]
        assert second.segments[:3] == first.segments
        assert [segment.entries for segment in second.segments[3:]] == [2]
        assert second.based_on == first.backup_id
        for backup_id, state in states.items():
            assert rows(await world.restore(backup_id, backup_id)) == state


async def test_a_backup_of_nothing_new_is_a_backup(local: World) -> None:
    """It shares every segment, and still says what the other tables hold."""
    async with local:
        await local.say("one")
        first = await local.back_up()
        second = await local.back_up()
        assert second.segments == first.segments
        assert second.backup_id > first.backup_id


async def test_an_empty_store_can_be_backed_up(local: World) -> None:
    """Before the first message there are people and chats already."""
    async with local:
        before = rows(local.data)
        assert (await local.back_up()).entries == 0
        assert rows(await local.restore()) == before


async def test_two_backups_at_once_are_both_whole(local: World, small_parts: None) -> None:
    """They write the same segments, and a manifest each."""
    async with local:
        await local.say(*map(str, range(9)))
        before = rows(local.data)
        made = await asyncio.gather(local.back_up(), local.back_up(), local.back_up())
        assert len({backup.backup_id for backup in made}) == 3
        for backup in made:
            assert rows(await local.restore(backup.backup_id, backup.backup_id)) == before


class Dying:
    """An object store at which the process dies before or after its n-th write."""

    def __init__(self, objects: Objects, at: int, *, is_after: bool) -> None:
        self.objects = objects
        self.where = objects.where
        self.read, self.read_range = objects.read, objects.read_range
        self.find, self.delete = objects.find, objects.delete
        self._left = at
        self._is_after = is_after

    async def create(self, key: str, data: bytes) -> None:
        self._left -= 1
        if self._left or self._is_after:
            await self.objects.create(key, data)
        if not self._left:
            raise Died


class Died(Exception):
    pass


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_crash_at_any_write_leaves_the_last_backup_usable(
    local: World, small_parts: None, is_after: bool
) -> None:
    """Until the manifest is there the backup does not exist, and the next one succeeds."""
    async with local:
        await local.say(*map(str, range(5)))
        first = await local.back_up()
        before, real = rows(local.data), local.objects
        await local.say(*map(str, range(5)))
        writes = 0
        while True:
            writes += 1
            local.objects = Dying(real, writes, is_after=is_after)
            try:
                await local.back_up()
            except Died:
                local.objects = real
                newest = (await local.backups.all())[-1]
                if newest.backup_id != first.backup_id:  # it died after its last write
                    assert rows(await local.restore(f"r{writes}")) == rows(local.data)
                    break
                assert rows(await local.restore(f"r{writes}")) == before
            else:
                break
        assert writes >= 4, "two segments, the state and the manifest"
        local.objects = real
        await local.back_up()
        assert rows(await local.restore("last")) == rows(local.data)


async def test_a_store_that_went_another_way_is_not_continued(local: World) -> None:
    """After a restore of an older backup, the newest one that the store really continues is the base."""
    async with local:
        await local.say("one")
        first = await local.back_up()
        await local.say("of the old life")
        await local.back_up()
        restored = await local.restore("data2", first.backup_id)
    again = World(local.folder, str(local.folder / "backups"))
    again.data, again.store = restored, SqliteOpenStore(restored, "atomic", {})
    again.chat_id, again.ann, again.clock = local.chat_id, local.ann, local.clock
    again.ids = Ids(random.Random(4).getrandbits)
    await again.store.open()
    try:
        await again.say("of the new life", "and more")
        third = await again.back_up()
        assert third.based_on == first.backup_id
        assert rows(await again.restore("data3")) == rows(restored)
    finally:
        await again.store.close()


async def test_a_full_backup_shares_nothing(local: World) -> None:
    """After an erasure the old segments still hold what was erased: a full backup does not."""
    async with local:
        await local.say("marzipan", "other")
        await local.back_up()
        local.store.foreign("UPDATE entries SET wire = replace(wire, 'marzipan', 'gone') WHERE position = 1")
        full = await local.back_up(full=True)
        assert full.based_on == ""
        restored = await local.restore()
        assert b"marzipan" not in (restored / DATABASE_NAME).read_bytes()


async def test_entries_that_were_trimmed_do_not_come_back(
    local: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive has them: what the segments of older backups hold below the trim stays away."""
    monkeypatch.setattr(parts, "TAIL_ENTRIES", 1)
    async with local:
        await local.say("one", "two", "three")
        await local.back_up()
        local.store.foreign("DELETE FROM entries WHERE sequence = 1")
        await local.say("four")
        assert (await local.back_up()).based_on, "the trimmed entry is in a segment that is shared"
        target = parts.SqliteRebuild(local.folder / "built", len(schema.MIGRATIONS))
        await local.backups.rebuild(await local.backups.choose(None), target)
        target.close()
        with closing(apsw.Connection(str(local.folder / "built" / DATABASE_NAME))) as file:
            assert file.execute("SELECT sequence FROM entries").fetchall() == [(2,), (3,), (4,)]


async def test_a_deleted_body_is_in_no_later_backup(local: World, small_parts: None) -> None:
    """Also where the later one shares parts with an earlier one, which still has it."""
    async with local as world:
        await world.say(*(f"words {at}" for at in range(6)), "SECRET", *(f"more {at}" for at in range(6)))
        life = LifeWorld(world.store)
        target = (await life.entries(world.chat_id))[6]
        await life.done(edit(world.chat_id, world.ann, target.message_id, "SECRET edit"))
        before = await world.back_up()
        await life.done(delete(world.chat_id, world.ann, target.message_id))
        after = await world.back_up()
        assert b"SECRET" in raw_bytes(await world.restore("old", before.backup_id))
        assert b"SECRET" not in raw_bytes(await world.restore("new", after.backup_id))


async def test_any_changed_byte_is_found(local: World) -> None:
    """Of a manifest, a segment or the rest: a restore refuses, and leaves no store."""
    async with local:
        await local.say("one", "two")
        await local.back_up()
        draws = random.Random(5)
        for stored in await local.objects.find(""):
            file = local.folder / "backups" / stored.key
            good = file.read_bytes()
            for _ in range(20):
                at, bit = draws.randrange(len(good)), 1 << draws.randrange(8)
                file.write_bytes(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
                with pytest.raises(BackupDamaged):
                    await local.restore()
                assert not (local.folder / "restored" / DATABASE_NAME).exists()
            file.write_bytes(good)
        await local.restore()


async def test_missing_and_swapped_objects_are_found(local: World, small_parts: None) -> None:
    """A segment that is gone, or has the bytes of another, is named."""
    async with local:
        await local.say(*map(str, range(9)))
        made = await local.back_up()
        one, other = (local.folder / "backups" / segment.key for segment in made.segments[:2])
        good = one.read_bytes()
        one.write_bytes(other.read_bytes())
        with pytest.raises(BackupDamaged, match=made.segments[0].key):
            await local.restore()
        one.unlink()
        with pytest.raises(BackupDamaged, match=made.segments[0].key):
            await local.restore()
        assert (await local.back_up()).based_on == "", "what is damaged is not built upon"
        one.write_bytes(good)


async def test_a_backup_that_is_not_read_back_as_written_fails(local: World) -> None:
    """A target that keeps something else is noticed before the backup exists."""

    class Forgetful(Dying):
        async def create(self, key: str, data: bytes) -> None:
            await self.objects.create(key, data[:-1])

    async with local:
        await local.say("one")
        real, local.objects = local.objects, Forgetful(local.objects, 0, is_after=True)
        with pytest.raises(BackupDamaged):
            await local.back_up()
        assert await real.find(MANIFESTS) == []


async def test_a_restore_never_overwrites(local: World) -> None:
    """A folder with a store, or one that is served, is refused and stays as it is."""
    async with local:
        await local.say("one")
        await local.back_up()
        before = rows(await local.restore())
        await local.say("two")
        await local.back_up()
        with pytest.raises(ConfigError, match="stays as it is"):
            await local.restore()
        assert rows(local.folder / "restored") == before
        lock = lock_folder(local.folder / "served")
        with pytest.raises(Exception, match="another server"):
            await local.restore("served")
        lock.close()


async def test_a_restore_that_died_is_repeated(local: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the last step there is no store; what the first attempt left is made anew."""
    async with local:
        await local.say("one")
        await local.back_up()
        with monkeypatch.context() as patched:
            patched.setattr(app_backups, "move_into_place", _die)
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)
            with pytest.raises(Died):
                await local.restore()
        assert (local.folder / "restored" / BUILT / DATABASE_NAME).exists()
        assert not (local.folder / "restored" / DATABASE_NAME).exists()
        assert rows(await local.restore()) == rows(local.data)
        assert not (local.folder / "restored" / BUILT).exists()


def _die(*_: object) -> None:
    raise Died


async def test_a_store_that_is_not_sound_gets_no_name(local: World) -> None:
    """A backup keeps what it finds; the restore checks it, and says what is broken."""
    async with local:
        await local.say("one", "two", "three")
        local.store.foreign("DELETE FROM entries WHERE sequence = 2")
        await local.back_up()
        with pytest.raises(BrokenBackup, match="log_density"):
            await local.restore()
        assert not (local.folder / "restored" / DATABASE_NAME).exists()


async def test_epochs_are_new_in_every_restore(local: World) -> None:
    """The same backup restored twice gives two epochs, both above those of the original."""
    async with local:
        await local.say("one")
        await local.back_up()
        epochs = [_epoch(local.data)]
        for name in ("first", "second"):
            local.clock.advance(2_000)
            epochs.append(_epoch(await local.restore(name)))
        assert epochs == sorted(set(epochs))


def _epoch(folder: Path) -> int:
    with closing(apsw.Connection(str(folder / DATABASE_NAME))) as file:
        return int(file.execute("SELECT epoch FROM chats").get)


async def test_a_token_of_the_old_life_misses_no_chat(local: World) -> None:
    """A device that asks what has changed since a later change of the old store hears of every chat."""
    async with local:
        await local.say("one")
        await local.back_up()
        await local.say("two")
        token = (await local.store.overviews.changed(local.bob, "phone", None, 10)).token
        restored = SqliteOpenStore(await local.restore(), "atomic", {})
        await restored.open()
        try:
            page = await restored.overviews.changed(local.bob, "phone", token, 10)
            assert [(chat.chat_id, chat.head) for chat in page.positions] == [(local.chat_id, 1)]
        finally:
            await restored.close()


async def test_sessions_stay_unless_they_are_ended(local: World) -> None:
    """People stay logged in after a restore, and with `--end-sessions` nobody does."""
    async with local:
        session = Session("s", local.ann, "phone", "phone", 1, 1, 2)
        await local.store.sessions.add(session, b"token")
        await local.back_up()
        assert len(sessions_in(rows(await local.restore("kept"))["records"])) == 2, "and its line"
        assert sessions_in(rows(await local.restore("ended", ends_sessions=True))["records"]) == []


def sessions_in(records: list[Any]) -> list[Any]:
    return [row for row in records if row[0] in ("sessions", "user_sessions")]


async def test_a_backup_of_a_newer_parley_is_refused(local: World) -> None:
    """Its tables are not known here."""
    with pytest.raises(StoreUnavailable, match="newer Parley"):
        parts.SqliteRebuild(local.folder / "new", len(schema.MIGRATIONS) + 1)


VERSION_BEFORE_SPANS = 10


async def test_a_backup_of_an_older_parley_is_migrated(local: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is rebuilt as it was, and then brought to this version."""
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:VERSION_BEFORE_SPANS])
        older = Database(local.data)
        older.open()
        older.close()
        await local.back_up()
    assert "rewritten_spans" not in rows(local.data)
    assert "rewritten_spans" in rows(await local.restore())


async def test_what_is_not_there_is_said(local: World) -> None:
    """An empty target has no backup, and a wrong id names none."""
    with pytest.raises(NoBackup, match="there is no backup in"):
        await local.backups.choose(None)
    async with local:
        await local.back_up()
        with pytest.raises(NoBackup, match="backup_wrong"):
            await local.backups.choose("backup_wrong")
