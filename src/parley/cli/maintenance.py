"""`parley check` and `parley recover`: verify a store, and repair a lost counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from parley.store.ports import Engine

Chats = Annotated[
    list[str] | None, typer.Argument(metavar="CHAT", help="Only these: ids or titles (default: all).")
]


def check(
    chats: Chats = None,
    skip_file: Annotated[
        bool,
        typer.Option(
            "--skip-file",
            help="Skip what takes long on a big store: the file's structure, orphaned rows of large tables.",
        ),
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Verify every invariant of the store, with or without a running server. Changes nothing.

    If one is broken, prints its name and what to do, and exits with status 1.
    """
    from parley.archive.tiers import archived_rows
    from parley.cli import check_report
    from parley.cli.offline import ask
    from parley.cli.places import find_place
    from parley.store.invariants import Findings

    async def run_check(engine: Engine) -> tuple[Findings, float]:
        chosen, archived = await _chosen(engine, chats), archived_rows(engine)
        return await check_report.check(engine, chosen, whole=not skip_file, archived=archived)

    findings, seconds = ask(find_place(data, config), run_check)
    check_report.report(findings, seconds, json)
    raise typer.Exit(0 if findings.is_clean else 1)


def recover(
    chats: Chats = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the repair. Without it nothing is changed.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every chat that has no counter.")] = False,
    seal_holes: Annotated[
        bool,
        typer.Option(
            "--seal-holes", help="Also make voids of numbers whose entry is lost, so readers skip them."
        ),
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Restore a chat's lost counter from the highest number in the store.

    Shows what it found and would write; --apply writes it, also while a server runs. Never overwrites an
    existing counter.
    """
    from parley.cli import recover_report
    from parley.cli.offline import ask
    from parley.cli.places import find_place

    if bool(chats) == everything:
        raise typer.BadParameter("name a chat, or use --all for every chat that has no counter")

    async def repair(engine: Engine) -> bool:
        chat_ids = await _chosen(engine, chats)
        return await recover_report.recover(
            engine, chat_ids, apply=apply, seal_holes=seal_holes, as_json=json
        )

    if not ask(find_place(data, config), repair):
        raise typer.Exit(1)


async def _chosen(engine: Engine, names: list[str] | None) -> list[str] | None:
    from parley.cli.names import require_chat
    from parley.clock import wall_clock
    from parley.records.listing import Listing

    listing = Listing(engine, wall_clock)
    return [(await require_chat(listing, name)).chat_id for name in names] if names else None
