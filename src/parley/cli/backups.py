"""`parley backup`, `parley restore` and `parley backups`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from parley.backup.backups import Backups
    from parley.backup.manifests import Backup
    from parley.config import Config

NICENESS = 19
"""A backup yields the processor to the server."""

Place = Annotated[str, typer.Argument(metavar="TARGET", help="A folder, or s3://bucket/prefix.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="A folder, or s3://bucket/prefix.")]


app = typer.Typer(no_args_is_help=True, help="Delete old backups.")


def backup(
    target: Place,
    full: Annotated[
        bool, typer.Option("--full", help="Write everything anew, not only what is new since the last one.")
    ] = False,
    no_files: Annotated[
        bool, typer.Option("--no-files", help="Leave out the bytes of files: you copy them yourself.")
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Back up the store while the server runs: what is new since the last backup, verified after writing.

    The target holds private messages, files and password hashes: keep it as safe as the data folder.
    """
    import os
    import random

    from parley import ids
    from parley.app.backups import make_backup
    from parley.cli.offline import run
    from parley.cli.output import note, plural, print_json
    from parley.cli.places import find_place
    from parley.clock import wall_clock

    place = find_place(data, config)
    if not place.is_shared:
        place.require_store()
    os.nice(NICENESS)
    make_ids = ids.Ids(random.SystemRandom().getrandbits)
    backups = backups_of(target, json, place.settings)
    made = run(
        make_backup(backups, place.settings, wall_clock, make_ids, is_full=full, has_files=not no_files)
    )
    if json:
        print_json(_summary(made))
        return
    held = [f"{made.chats:,} chats", f"{made.entries:,} entries"]
    if made.file_count:
        held.append(plural(made.file_count, "file"))
    base = f", based on {made.based_on}" if made.based_on else ""
    print(f"{made.backup_id}: {', '.join(held)}, verified in {target}{base}")
    if made.files_lacking:
        why = "they were left out" if no_files else "their bytes are lost or damaged"
        note(f"{plural(made.files_lacking, 'file')} not in the backup: {why}")


def restore(
    source: Source,
    chosen: Annotated[
        str | None, typer.Option("--backup", metavar="ID", help="This backup (default: the newest).")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the backups, and restore nothing.")] = False,
    end_sessions: Annotated[
        bool, typer.Option("--end-sessions", help="Log everybody out: all must log in again.")
    ] = False,
    no_files: Annotated[
        bool, typer.Option("--no-files", help="Leave the bytes of files in the backup.")
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Restore a backup to a data folder that has no store; checks all of it first. Safe to repeat.

    Every chat gets a new epoch, so all clients start over with what the server has.
    """
    from parley.app.backups import SqliteFolders
    from parley.app.files import files_target, has_files_in_data
    from parley.backup.restores import restore_backup
    from parley.cli import store_file
    from parley.cli.offline import run
    from parley.cli.output import note, plural, print_json
    from parley.cli.places import CommandFailed, find_place
    from parley.clock import wall_clock

    if show:
        _show(run(backups_of(source, json).all()), json)
        return
    place = find_place(data, config)
    if place.is_shared:
        raise CommandFailed(
            "a backup is restored to a folder; for a shared store see docs/backup-and-migration.md"
        )
    backups = backups_of(source, json, place.settings)

    async def work() -> Any:
        found = await backups.choose(chosen)
        return await restore_backup(
            backups,
            found,
            place.folder,
            SqliteFolders(),
            wall_clock,
            ends_sessions=end_sessions,
            puts_files=puts_files,
        )

    puts_files = not no_files and has_files_in_data(place.settings)
    restored = run(work())
    store_file.write(place.folder, place.settings)
    if json:
        has_files = puts_files and bool(restored.backup.file_count)
        about = {"checked_entries": restored.findings.entries, "files_restored": has_files}
        print_json({**_summary(restored.backup), **about})
        return
    counted = f"{plural(restored.findings.chats, 'chat')}, {restored.findings.entries:,} entries"
    print(f"{restored.backup.backup_id} of {restored.backup.made_at} is in {place.folder}: {counted}")
    print(f"All {len(restored.findings.shown)} invariants hold. Every chat has a new epoch.")
    files = plural(restored.backup.file_count, "file")
    where = files_target(place.settings)
    if restored.backup.file_count and puts_files:
        print(f"{files} in {where}.")
    elif restored.backup.file_count:
        note(f"{files} of the backup not restored: copy what {where} lacks from files/ of {source}")
    if restored.backup.files_lacking:
        lacking = plural(restored.backup.files_lacking, "file")
        note(f"{lacking} not in the backup: put the bytes into {where} if you have them")


@app.command("prune")
def prune(
    target: Place,
    keep: Annotated[int, typer.Option(min=1, help="How many of the newest backups stay.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete. Without it, only says what would go.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Delete all but the newest backups, and what no other backup needs. Not while a backup is being made.

    Bodies that were erased are in backups that were made before: this is how they go.
    """
    import os

    from parley.backup.pruning import Pruner, Pruning
    from parley.cli.offline import run
    from parley.cli.output import plural, print_json
    from parley.clock import wall_clock
    from parley.objects.targets import objects_at

    pruner = Pruner(backups_of(target, json), objects_at(target, os.environ), wall_clock)

    async def work() -> Pruning:
        plan = await pruner.plan(keep)
        if apply:
            await pruner.apply(plan)
        return plan

    done = run(work())
    if json:
        print_json(
            {
                "kept": [backup.backup_id for backup in done.kept],
                "deleted": [backup.backup_id for backup in done.deleted],
                "objects": len(done.objects),
                "freed_bytes": done.freed_bytes,
                "applied": apply,
            }
        )
        return
    for backup in done.deleted:
        print(f"{backup.backup_id} of {backup.made_at}")
    verb = "Deleted" if apply else "To delete, with --apply:"
    gone = f"{plural(len(done.deleted), 'backup')}, {len(done.objects):,} objects, {done.freed_bytes:,} bytes"
    print(f"{verb} {gone}. {plural(len(done.kept), 'backup')} kept{', with every part' if apply else ''}.")


def backups_of(target: str, as_json: bool, settings: Config | None = None) -> Backups:
    """The backups at a target. `settings`: of the store that is backed up or restored."""
    import os

    from parley.app.backups import backups_at
    from parley.cli.output import note
    from parley.objects.targets import objects_at

    objects = objects_at(target, os.environ)
    return backups_at(objects, settings, os.environ, lambda line: None if as_json else note(line))


def _summary(backup: Backup) -> dict[str, Any]:
    return {
        "backup_id": backup.backup_id,
        "made_at": backup.made_at,
        "based_on": backup.based_on,
        "chats": backup.chats,
        "people": backup.people,
        "entries": backup.entries,
        "archived_entries": backup.archived_entries,
        "segments": len(backup.segments),
        "files": backup.file_count,
        "file_bytes": backup.file_bytes,
        "files_lacking": backup.files_lacking,
        "size_bytes": backup.size_bytes,
    }


def _show(found: list[Backup], as_json: bool) -> None:
    from parley.backup.backups import described
    from parley.cli.output import print_json, print_table

    if as_json:
        print_json([_summary(backup) for backup in reversed(found)])
    else:
        print_table(["BACKUP", "MADE", "CHATS", "ENTRIES", "BYTES"], described(found))
