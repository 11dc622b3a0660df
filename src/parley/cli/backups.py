"""`parley backups`: what is done to backups that were made."""

from __future__ import annotations

from typing import Annotated

import typer

from parley.cli.keeping import Place
from parley.cli.options import AsJson

app = typer.Typer(no_args_is_help=True, help="Delete old backups.")


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

    from parley.cli.keeping import backups_of
    from parley.cli.offline import run
    from parley.cli.output import plural, print_json
    from parley.clock import wall_clock
    from parley.keeping.pruning import Pruner, Pruning
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
