"""Old backups are deleted: those that stay can be restored, whatever they share."""

from pathlib import Path

import pytest

from parley.backup.manifests import MANIFESTS, BackupDamaged
from parley.backup.pruning import ORPHAN_MS_MIN, Pruner
from parley.clock import wall_clock
from tests.integration.backup.test_backups_of_archives import (
    ColdBackups,
    both_speak,
    small_parts,
    stored_bytes,
)
from tests.integration.cli.running import parley

__all__ = ["small_parts"]


def pruner_of(world: ColdBackups, later_ms: int = 0) -> Pruner:
    return Pruner(world.backups, world.objects, lambda: wall_clock() + later_ms)


async def test_backups_that_stay_are_whole(tmp_path: Path, small_parts: None) -> None:
    """Segments and archives that they share with deleted ones stay; what only those had is gone."""
    world = ColdBackups(tmp_path)
    async with world:
        logs = {}
        for number in range(4):
            await both_speak(world, 3)
            if number == 2:
                await world.archive()
            logs[(await world.back_up()).backup_id] = await world.log()
        await world.erase(world.ann)
        made = await world.back_up()
        logs[made.backup_id] = await world.log()
        before = await world.objects.find("")
        plan = await pruner_of(world).plan(2)
        assert await world.objects.find("") == before, "a plan deletes nothing"
        assert [backup.backup_id for backup in plan.kept] == list(logs)[-2:]
        await pruner_of(world).apply(plan)
        assert [backup.backup_id for backup in await world.backups.all()] == list(logs)[-2:]
        for backup_id in list(logs)[-2:]:
            assert await world.restored(backup_id, backup_id) == logs[backup_id]
        again = await pruner_of(world).plan(1)
        await pruner_of(world).apply(again)
        assert await world.restored("last") == logs[made.backup_id]
        assert b"ann secret" not in stored_bytes(world.folder / "backups")


async def test_a_crash_within_a_pruning_leaves_no_half_backup(tmp_path: Path, small_parts: None) -> None:
    """Manifests go first; the next pruning finds what was left behind, once it is a day old."""
    world = ColdBackups(tmp_path)
    async with world:
        await world.say(*map(str, range(9)))
        await world.archive()
        await world.back_up()
        await world.say(*map(str, range(9)))
        await world.back_up(full=True)
        plan = await pruner_of(world).plan(1)
        for stored in plan.objects:
            if stored.key.startswith(MANIFESTS):
                await world.objects.delete(stored.key)
        assert (await pruner_of(world).plan(1)).objects == []
        left = (await pruner_of(world, ORPHAN_MS_MIN + 60_000).plan(1)).objects
        assert {stored.key for stored in left} == {
            stored.key for stored in plan.objects if not stored.key.startswith(MANIFESTS)
        }


async def test_with_a_damaged_manifest_nothing_is_deleted(tmp_path: Path) -> None:
    """Nobody knows what belongs to it."""
    world = ColdBackups(tmp_path)
    async with world:
        await world.say("one")
        first = await world.back_up()
        await world.back_up()
        manifest = world.folder / "backups" / MANIFESTS / f"{first.backup_id}.json"
        manifest.write_bytes(manifest.read_bytes()[:-3])
        with pytest.raises(BackupDamaged, match=first.backup_id):
            await pruner_of(world).plan(1)


async def test_the_command_says_what_it_would_delete_first(tmp_path: Path) -> None:
    """Only with --apply it does."""
    world = ColdBackups(tmp_path)
    async with world:
        await world.say("one")
        first, second = await world.back_up(), await world.back_up()
    target = str(tmp_path / "backups")
    asked = parley("backups", "prune", target, "--keep", "1")
    assert asked.status == 0
    assert first.backup_id in asked.stdout
    assert "To delete, with --apply: 1 backup, 2 objects" in asked.stdout
    assert len(await world.backups.all()) == 2
    done = parley("backups", "prune", target, "--keep", "1", "--apply")
    assert "Deleted 1 backup, 2 objects" in done.stdout
    assert [backup.backup_id for backup in await world.backups.all()] == [second.backup_id]
