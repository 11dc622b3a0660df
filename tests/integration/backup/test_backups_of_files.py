"""Backups hold the bytes of attachments: copied once, verified, gone where their message was deleted."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from parley.app.backups import SqliteFolders, make_backup
from parley.backup.backups import Backups
from parley.backup.manifests import FILES, Backup, BackupDamaged
from parley.backup.pruning import Pruner
from parley.backup.restores import restore_backup
from parley.clock import wall_clock
from parley.config import Config
from parley.core.attachments import Attachment, AttachmentState
from parley.errors import ConfigError
from parley.objects.folder import FolderObjects
from parley.objects.ports import Objects, StoredObject
from parley.objects.targets import objects_at
from parley.store.folder import DATABASE_NAME
from parley.store.sqlite.parts import SqliteParts
from tests.contracts.acting import message
from tests.contracts.files_world import FilesWorld
from tests.integration.backup.test_backups import TARGETS, World
from tests.integration.gateway.uploading import PART, shrink_parts, some_bytes
from tests.services import s3_target

DATA = some_bytes(2 * PART + 500)


class FileBackups(World):
    """A store with files in a place of their own, and its backups."""

    def __init__(self, folder: Path, target: str, place: Objects) -> None:
        super().__init__(folder, target)
        self.place = place

    @property
    def files(self) -> FilesWorld:
        return FilesWorld(self.store, self.folder, objects=self.place)

    @property
    def backups(self) -> Backups:
        return Backups(self.objects, self.said.append, None, self.place)

    async def share(self, data: bytes) -> Attachment:
        """A file with a message of Ann's."""
        file = await self.files.upload(self.chat_id, self.ann, data)
        await self.files.send(message(self.chat_id, self.ann, "see"), file)
        return file

    async def restored_files(self, name: str, backup_id: str | None = None) -> dict[str, bytes]:
        """The files of a restored store by their ids, with all of their bytes."""
        place = FolderObjects(self.folder / f"{name}-files")
        backups = Backups(self.objects, self.said.append, None, place)
        backup = await backups.choose(backup_id)
        await restore_backup(
            backups, backup, self.folder / name, SqliteFolders(), self.clock, ends_sessions=False
        )
        return await files_at(place)

    def sql(self, statement: str, *values: str) -> None:
        """What the server does beside a backup, without its use case."""
        with closing(apsw.Connection(str(self.data / DATABASE_NAME))) as file:
            file.execute(statement, values)

    async def copied(self) -> list[StoredObject]:
        return await self.objects.find(FILES)


async def files_at(place: Objects) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for one in await place.find(""):
        attachment_id = one.key.partition("/")[0]
        found[attachment_id] = found.get(attachment_id, b"") + await place.read(one.key)
    return found


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_parts(monkeypatch)


@pytest.fixture
def local(tmp_path: Path) -> FileBackups:
    return FileBackups(tmp_path, str(tmp_path / "backups"), FolderObjects(tmp_path / "place"))


PLACES: dict[str, Callable[[Path], str]] = {
    "folder": lambda folder: str(folder / "place"),
    "s3": lambda _: s3_target(),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target", TARGETS)
async def test_files_come_back_with_their_store(tmp_path: Path, target: str, place: str) -> None:
    """From a folder or a bucket, whatever happens to the old place; what was not sent yet, too."""
    objects = objects_at(PLACES[place](tmp_path), os.environ)
    async with FileBackups(tmp_path, TARGETS[target](tmp_path), objects) as world:
        assert isinstance(world, FileBackups)
        shared, small = await world.share(DATA), await world.share(b"small")
        waiting = await world.files.upload(world.chat_id, world.ann, b"not sent")
        await world.files.announce(world.chat_id, world.ann, DATA)
        made = await world.back_up()
        assert (made.file_count, made.file_bytes, made.files_lacking) == (3, len(DATA) + 13, 0)
        assert made.size_bytes > made.file_bytes
        await world.backups.verify(made)
        for one in await objects.find(""):
            await objects.delete(one.key)
        assert await world.restored_files("r") == {
            shared.attachment_id: DATA,
            small.attachment_id: b"small",
            waiting.attachment_id: b"not sent",
        }


async def test_a_part_is_copied_once(local: FileBackups) -> None:
    """The next backup reads nothing of a file that the last one has, and can be restored all the same."""
    async with local:
        first = await local.share(DATA)
        await local.back_up()
        before = await local.copied()
        assert [one.size_bytes for one in before] == [PART, PART, 500]
        for one in await local.place.find(""):
            await local.place.delete(one.key)
        second = await local.share(b"second")
        made = await local.back_up()
        assert [one for one in await local.copied() if one in before] == before
        assert (made.file_count, made.files_lacking) == (2, 0)
        files = {first.attachment_id: DATA, second.attachment_id: b"second"}
        assert await local.restored_files("r") == files


async def test_a_full_backup_compares_every_file(local: FileBackups) -> None:
    """It reads all of them again, and what is there already is not written."""
    async with local:
        file = await local.share(DATA)
        await local.back_up()
        before = await local.copied()
        made = await local.back_up(full=True)
        assert (made.file_count, await local.copied()) == (1, before)
        assert await local.restored_files("r") == {file.attachment_id: DATA}


async def test_a_deleted_file_is_in_no_later_backup(local: FileBackups) -> None:
    """Its bytes stay with the backups before, until those are pruned."""
    async with local:
        gone = await local.share(b"marzipan" * 300)
        await local.back_up()
        await local.files.erase(local.chat_id, local.ann)
        kept = await local.share(b"kept")
        made = await local.back_up()
        assert (made.file_count, made.files_lacking) == (1, 0)
        assert await local.restored_files("later") == {kept.attachment_id: b"kept"}
        assert any(gone.attachment_id in one.key for one in await local.copied())
        pruner = Pruner(local.backups, local.objects, wall_clock)
        await pruner.apply(await pruner.plan(1))
        assert [one.key for one in await local.copied()] == [f"{FILES}{kept.attachment_id}/000000"]
        assert await local.restored_files("pruned") == {kept.attachment_id: b"kept"}


async def test_pruned_backups_leave_files_that_others_have(local: FileBackups) -> None:
    """And lists that no backup names go when they are old."""
    async with local:
        file = await local.share(DATA)
        first = await local.back_up()
        await local.back_up()
        pruner = Pruner(local.backups, local.objects, wall_clock)
        plan = await pruner.plan(1)
        assert not any(one.key.startswith(FILES) for one in plan.objects)
        assert any(first.backup_id in one.key and "file_lists" in one.key for one in plan.objects)
        await pruner.apply(plan)
        assert await local.restored_files("r") == {file.attachment_id: DATA}


class Late(SqliteParts):
    """A store in which something happens right after a snapshot."""

    happenings: Iterator[Callable[[], None]] = iter(())

    def rest(self, after: int, since: int) -> Any:
        found = super().rest(after, since)
        next(self.happenings, lambda: None)()
        return found


async def test_a_file_deleted_after_the_snapshot_is_left_out_by_a_new_one(local: FileBackups) -> None:
    """The store of the backup does not know it either."""
    async with local:
        gone, kept = await local.share(b"gone"), await local.share(b"kept")

        def delete() -> None:
            """As the server does, which runs beside the backup."""
            for path in (local.folder / "place" / gone.attachment_id).iterdir():
                path.unlink()
            local.sql("DELETE FROM records WHERE kind = 'attachments' AND place = ?", gone.attachment_id)

        source = Late(local.data)
        source.happenings = iter([delete])
        made = await local.backups.make(source, "backup_x", "now", "1", is_full=False)
        assert (made.file_count, made.files_lacking) == (1, 0)
        assert await local.restored_files("r") == {kept.attachment_id: b"kept"}


@pytest.mark.parametrize("harm", ["lost", "damaged"])
async def test_a_file_without_its_bytes_does_not_stop_a_backup(local: FileBackups, harm: str) -> None:
    """It is named, counted and left out; when its bytes are back, the next backup has it."""
    async with local:
        bad, good = await local.share(DATA), await local.share(b"good")
        path = local.folder / "place" / bad.attachment_id / "000001"
        was = path.read_bytes()
        if harm == "lost":
            path.unlink()
        else:
            path.write_bytes(bytes([was[0] ^ 1]) + was[1:])
        made = await local.back_up()
        assert (made.file_count, made.files_lacking) == (1, 1)
        assert any(bad.attachment_id in line for line in local.said)
        assert await local.restored_files("r") == {good.attachment_id: b"good"}
        path.write_bytes(was)
        assert (await local.back_up()).file_count == 2
        assert sha256((await local.restored_files("s"))[bad.attachment_id]).hexdigest() == bad.sha256


@pytest.mark.parametrize("still_has_it", [True, False])
async def test_a_file_that_is_being_removed(local: FileBackups, still_has_it: bool) -> None:
    """It is in the backup for as long as its message has it: the mark may be taken away again."""
    async with local:
        file, kept = await local.share(b"marked"), await local.share(b"kept")
        await local.files.removal.mark(local.chat_id, [file.attachment_id])
        if not still_has_it:
            local.sql("UPDATE entries SET wire = CAST(replace(wire, ?, 'x') AS BLOB)", file.attachment_id)
        now = await local.store.attachments.get(local.chat_id, file.attachment_id)
        assert now is not None
        assert now.state is AttachmentState.REMOVING
        await local.back_up()
        found = await local.restored_files("r")
        assert (file.attachment_id in found) == still_has_it
        assert kept.attachment_id in found


async def test_a_wrong_place_is_refused(local: FileBackups) -> None:
    """A backup that lacks every file was not told where they are."""
    async with local:
        await local.share(DATA)
        for wrong in (FolderObjects(local.folder / "elsewhere"), None):
            local_backups = Backups(local.objects, local.said.append, None, wrong)
            with pytest.raises(ConfigError, match="--no-files"):
                await local_backups.make(SqliteParts(local.data), "backup_x", "now", "1", is_full=False)
        assert await local.backups.all() == []


async def test_files_are_left_out_on_demand(local: FileBackups) -> None:
    """The backup says how many, and the next one with files has all of them."""
    async with local:
        file = await local.share(DATA)
        config = Config()
        config.server.data = str(local.data)
        made: Backup = await make_backup(
            local.backups, config, local.clock, local.ids, is_full=False, has_files=False
        )
        assert (made.file_count, made.files_lacking, await local.copied()) == (0, 1, [])
        assert await local.restored_files("r") == {}
        await local.back_up()
        assert await local.restored_files("s") == {file.attachment_id: DATA}


async def test_changed_and_missing_parts_are_found(local: FileBackups) -> None:
    """By the verification and by a restore, before there is a store."""
    async with local:
        file = await local.share(DATA)
        made = await local.back_up()
        path = local.folder / "backups" / FILES / file.attachment_id / "000002"
        was = path.read_bytes()
        for harm in (was[:-1], bytes(len(was)), None):
            path.unlink()
            if harm is not None:
                path.write_bytes(harm)
            with pytest.raises(BackupDamaged, match="000002"):
                await local.backups.verify(made)
            with pytest.raises(BackupDamaged, match="000002"):
                await local.restored_files("r")
            path.write_bytes(was)
        assert await local.restored_files("r") == {file.attachment_id: DATA}


async def test_a_restore_compares_what_is_there(local: FileBackups) -> None:
    """Other bytes under the same name are never taken for the file."""
    async with local:
        file = await local.share(DATA)
        await local.back_up()
        place = FolderObjects(local.folder / "r-files")
        await place.create(f"{file.attachment_id}/000000", b"other")
        with pytest.raises(BackupDamaged, match="000000"):
            await local.restored_files("r")
