"""`parley copy`, `parley export` and `parley import`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from parley.cli.options import AsJson, ChatName, ConfigFile, Data

if TYPE_CHECKING:
    from collections.abc import Callable

    from parley.cli.places import Place
    from parley.migration.copies import CopyProgress
    from parley.migration.imports import ImportReport
    from parley.migration.workspaces import Workspace
    from parley.records.accounts import Accounts

app = typer.Typer(no_args_is_help=True, help="Export one chat, or what is kept about one person.")


PROGRESS_SECONDS = 0.1


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
    from parley.app.migration import copy_side
    from parley.cli import store_file
    from parley.cli.offline import run
    from parley.cli.output import plural, print_json
    from parley.clock import wall_clock
    from parley.config import load
    from parley.migration.stores import copy_store

    make_ids = ids.Ids(random.SystemRandom().getrandbits)
    old = copy_side(load(source, {})[0], wall_clock, make_ids, os.environ)
    new = copy_side(load(target, {})[0], wall_clock, make_ids, os.environ)
    line = StatusLine()
    report = run(copy_store(old, new, wall_clock, line.show_copy, checks=not skip_check))
    line.clear()
    if not new.config.store.is_shared:
        store_file.write(Path(new.config.server.data), new.config)
    if json:
        print_json(report)
        return
    others = sum(report.records.values())
    erasures = plural(report.records["PendingErasure"], "pending erasure")
    print(
        f"Equal: {report.chats:,} chats, {report.entries:,} entries, {report.voids:,} voids,"
        f" {others:,} other records, {plural(report.rules, 'retention rule')},"
        f" {plural(report.holds, 'legal hold')}, {erasures};"
        f" {report.chats:,} log hashes; fingerprint {report.fingerprint}"
    )


@app.command("chat")
def export_chat(
    chat: ChatName,
    as_html: Annotated[bool, typer.Option("--html", help="A page to read instead of JSON Lines.")] = False,
    data: Data = None,
    config: ConfigFile = None,
) -> None:
    """Print a chat to stdout, as JSON Lines or as a page, with or without a running server."""
    from parley.cli.names import require_chat
    from parley.cli.offline import open_services, run, who_acts
    from parley.cli.places import find_place
    from parley.migration.exports import entries_of, page_of_chat
    from parley.sending.amended_log import amended_log

    place = find_place(data, config)

    async def write() -> None:
        async with open_services(place) as services:
            engine = services.engine
            found, log = await require_chat(services.kinds.listing, chat), amended_log(engine)
            async with services.user_admin.audited(who_acts(), "chat.export", found.chat_id):
                if not as_html:
                    async for entry in entries_of(log, found.chat_id):
                        sys.stdout.buffer.write(entry + b"\n")
                else:
                    title, names = found.title or found.chat_id, _names(services.kinds.accounts)
                    async for text in page_of_chat(log, found.chat_id, title, names):
                        sys.stdout.buffer.write(text.encode())
                sys.stdout.buffer.flush()

    run(write())


def _names(accounts: Accounts) -> Callable[[str], Any]:
    known: dict[str, str] = {}

    async def name_of(user_id: str) -> str:
        if user_id not in known:
            user = await accounts.user(user_id)
            known[user_id] = user.display_name if user is not None else user_id
        return known[user_id]

    return name_of


@app.command("person")
def export_person(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A username or a user id.")],
    data: Data = None,
    config: ConfigFile = None,
) -> None:
    """Print what is kept about a person, as JSON Lines, without passwords and tokens."""
    from parley.cli.names import require_user
    from parley.cli.offline import open_services, run, who_acts
    from parley.cli.output import print_json_line
    from parley.cli.places import find_place
    from parley.migration.exports import about_person
    from parley.migration.rows import StoreRows

    place = find_place(data, config)

    async def write() -> None:
        async with open_services(place) as services:
            user_id = await require_user(services.kinds.listing, name)
            async with services.user_admin.audited(who_acts(), "person.export", user_id):
                async for line in about_person(StoreRows(services.engine), user_id):
                    print_json_line(line)

    run(write())


def import_file(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A ZIP of Slack, or JSON Lines (or their ZIP) of Mattermost."),
    ],
    kind: Annotated[
        Literal["slack", "mattermost"] | None,
        typer.Option("--kind", help="What it is an export of (default: by the file)."),
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Which server it comes from, if you import from several of a kind. Ids follow from it.",
        ),
    ] = "",
    match_usernames: Annotated[
        bool,
        typer.Option("--match-usernames", help="An account with the same username is the same person."),
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Import an export of Slack or Mattermost: people, channels, messages and threads. Safe to repeat.

    Stop the server first. The people cannot log in until you give them passwords (parley user passwd).
    """
    from parley.cli.offline import run
    from parley.cli.output import note, plural, print_json
    from parley.cli.places import find_place

    workspace = _workspace(file, kind, source)
    report = run(_import(find_place(data, config), workspace, match_usernames))
    if json:
        print_json(report)
    else:
        print(
            f"{plural(report.messages_stored, 'message')} of {plural(report.people_made, 'new person')} and"
            f" {report.people_there:,} known ones in {plural(report.chats_made, 'new chat')};"
            f" {plural(report.messages_there, 'message')} in {report.chats_there:,} chats were there already"
        )
        for what, count in sorted(report.left_out.items()):
            note(f"left out: {count:,} {what}")
        for problem, count in report.problems.most_common():
            note(f"not imported: {count:,} × {problem}")
    if report.problems:
        raise typer.Exit(1)


def _workspace(file: Path, kind: str | None, source: str) -> Workspace:
    from parley.migration.mattermost import MattermostExport
    from parley.migration.slack import SlackExport
    from parley.migration.workspaces import kind_of

    kind = kind or kind_of(file)
    if kind == "slack":
        return SlackExport(file, source or kind)
    return MattermostExport(file, source or kind)


async def _import(place: Place, workspace: Workspace, matches_names: bool) -> ImportReport:
    from contextlib import ExitStack

    from parley.cli.offline import make_offline_engine, who_acts
    from parley.clock import wall_clock
    from parley.migration.stores import import_workspace
    from parley.store.folder import lock_folder

    line = StatusLine()
    with ExitStack() as locks:
        if not place.is_shared:
            locks.enter_context(lock_folder(place.require_store()))
        engine = make_offline_engine(place)
        await engine.open()
        try:
            return await import_workspace(
                workspace,
                engine,
                wall_clock,
                who_acts().actor,
                matches_names=matches_names,
                on_progress=line.show_import,
            )
        finally:
            line.clear()
            await engine.close()


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
