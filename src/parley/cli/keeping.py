"""`parley backup`, `parley restore` and `parley copy`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from parley.config import Config
    from parley.keeping.backups import Backups
    from parley.keeping.copies import CopyProgress
    from parley.keeping.imports import ImportReport
    from parley.keeping.manifests import Backup

PROGRESS_SECONDS = 0.1
NICENESS = 19
"""A backup and a copy yield the processor to the server."""

Place = Annotated[str, typer.Argument(metavar="TARGET", help="A folder, or s3://bucket/prefix.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="A folder, or s3://bucket/prefix.")]


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
    from parley.app.keeping import make_backup
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
    from parley.app.files import files_target, has_files_in_data
    from parley.app.keeping import restore_backup
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
        raise CommandFailed("a backup is restored to a folder; for a shared store see docs/keeping.md")
    backups = backups_of(source, json, place.settings)

    async def work() -> Any:
        found = await backups.choose(chosen)
        return await restore_backup(
            backups, found, place.folder, wall_clock, ends_sessions=end_sessions, puts_files=puts_files
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


def copy(
    source: Annotated[
        Path, typer.Option("--from", metavar="CONFIG", help="The configuration of the store to copy.")
    ],
    target: Annotated[
        Path, typer.Option("--to", metavar="CONFIG", help="The configuration of an empty store.")
    ],
    skip_check: Annotated[
        bool, typer.Option("--skip-check", help="Leave out parley check of both stores.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Copy a whole store to another engine, and compare every record and every entry. Stop all servers first.

    Settings come from the two files alone, not from PARLEY_ variables. After an interruption run it again: it
    goes on where it stopped.
    """
    import os
    import random

    from parley import ids
    from parley.app.keeping import copy_side, copy_store
    from parley.cli import store_file
    from parley.cli.offline import run
    from parley.cli.output import plural, print_json
    from parley.clock import wall_clock
    from parley.config import load

    make_ids = ids.Ids(random.SystemRandom().getrandbits)
    old = copy_side(load(source, {})[0], wall_clock, make_ids, os.environ)
    new = copy_side(load(target, {})[0], wall_clock, make_ids, os.environ)
    line = StatusLine()
    report = run(copy_store(old, new, wall_clock, line.show_copy, checks=not skip_check))
    line.clear()
    if new.config.store.engine == "sqlite":
        store_file.write(Path(new.config.server.data), new.config)
    if json:
        print_json(report)
        return
    others = sum(report.records.values())
    erasures = plural(report.records["KeptErasure"], "pending erasure")
    print(
        f"Equal: {report.chats:,} chats, {report.entries:,} entries, {report.voids:,} voids,"
        f" {others:,} other records, {plural(report.rules, 'retention rule')},"
        f" {plural(report.holds, 'legal hold')}, {erasures};"
        f" {report.chats:,} log hashes; fingerprint {report.fingerprint}"
    )


class StatusLine:
    """A line on a terminal that is written again and again."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._next = 0.0

    def show_copy(self, progress: CopyProgress) -> None:
        self._show(f"{progress.step}: {progress.done:,}")

    def show_import(self, report: ImportReport) -> None:
        self._show(f"{report.messages_stored:,} messages")

    def _show(self, text: str) -> None:
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + PROGRESS_SECONDS
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def backups_of(target: str, as_json: bool, settings: Config | None = None) -> Backups:
    """The backups at a target. `settings`: of the store that is backed up or restored."""
    import os

    from parley.app.keeping import backups_at
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
    from parley.cli.output import print_json, print_table
    from parley.keeping.backups import described

    if as_json:
        print_json([_summary(backup) for backup in reversed(found)])
    else:
        print_table(["BACKUP", "MADE", "CHATS", "ENTRIES", "BYTES"], described(found))
