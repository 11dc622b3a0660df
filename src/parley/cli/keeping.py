"""`parley check` and `parley recover`: whether the store is whole, and the repair of a lost counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from pathlib import Path

    from parley.cli.records import Records

Chats = Annotated[
    list[str] | None, typer.Argument(metavar="CHAT", help="Only these: ids or titles (default: all).")
]


def check(
    chats: Chats = None,
    skip_file: Annotated[
        bool,
        typer.Option(
            "--skip-file",
            help="Leave out what is long for many GB: the file's own structure, strays in large tables.",
        ),
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Check that the store keeps every promise, on a live or a stopped one. Changes nothing.

    Each invariant is checked by its own name; what is broken is told with what to do. Exit status 1 then.
    """
    from parley.cli import checking

    records, chat_ids = _chosen(data, config, chats)
    findings, seconds = checking.check(records, chat_ids, whole=not skip_file)
    checking.report(findings, seconds, json)
    raise typer.Exit(0 if findings.is_clean else 1)


def recover(
    chats: Chats = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write it. Without this nothing is changed.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every chat that has no counter.")] = False,
    seal_holes: Annotated[
        bool,
        typer.Option(
            "--seal-holes", help="Also give up numbers whose entry is lost: readers pass over them."
        ),
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Give a chat its lost counter back, from the highest number that anything knows of.

    Shows what it found and would write; --apply writes it, also beside a running server. A counter that
    is there is never overwritten.
    """
    from parley.cli import recovering

    records, chat_ids = _chosen(data, config, chats)
    if bool(chat_ids) == everything:
        raise typer.BadParameter("name a chat, or say --all for every chat that has no counter")
    if not recovering.recover(records, chat_ids, apply=apply, seal_holes=seal_holes, as_json=json):
        raise typer.Exit(1)


def _chosen(
    data: Path | None, config: Path | None, names: list[str] | None
) -> tuple[Records, list[str] | None]:
    from parley.cli.naming import require_chat
    from parley.cli.places import find_place
    from parley.cli.records import records_of

    records = records_of(find_place(data, config))
    return records, [require_chat(records, name).chat_id for name in names] if names else None
