"""The commands of `parley`. Each imports what it needs only when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from parley import __version__
from parley.cli import (
    amend,
    api,
    archive,
    backups,
    chat,
    deliveries,
    explain,
    files,
    links,
    maintenance,
    migration,
    people,
    reports,
    search,
    servers,
    store,
    talk,
    tokens,
)
from parley.cli.options import AsJson, Ca, ConfigFile, Data, Url

RUN, PEOPLE, TALK, STORE = "Run", "People and chats", "Messages", "Maintenance"
DELIVERY = "Deliveries to others"
EXIT_INTERRUPTED = 130
NAME = "parley"
"""Even if it is started under another name: shell completion needs this one."""

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Parley: every chat is one ordered, durable log.",
    epilog="Start with: parley serve, then parley demo in another terminal.",
)


def run() -> None:
    """Run the command. On failure print a sentence to stderr and exit with status 1."""
    from parley.cli.problems import complain
    from parley.errors import ParleyError

    try:
        app(prog_name=NAME)
    except BrokenPipeError:
        # The reader of our output has closed the pipe; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ParleyError, OSError) as error:
        complain(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"parley {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(rich_help_panel=RUN)
def serve(
    data: Data = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one (default: 8080)."),
    ] = None,
    config: ConfigFile = None,
    roles: Annotated[
        str | None, typer.Option(help="The roles of this node (default: all but sequencer).")
    ] = None,
) -> None:
    """Run the server until Ctrl-C or SIGTERM."""
    from parley.cli.server import serve as run_server
    from parley.cli.startup import ServeOptions

    run_server(ServeOptions(str(data) if data else None, host, port, str(config) if config else None, roles))


@app.command(rich_help_panel=RUN)
def demo(
    url: Url = None,
    ca: Ca = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also on another machine, where anyone could log in as them.")
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Fill a running server with a few people, chats and messages. Safe to repeat."""
    from parley.cli import demo as play
    from parley.cli.places import find_place

    place = find_place(data, config)
    play.fill(url or place.server_url(), place, json, anyway=anyway, ca=ca)


def bench(context: typer.Context) -> None:
    """Run the benchmarks. Needs the source tree; passes its options to python -m bench."""
    from parley.cli.places import CommandFailed

    root = Path(__file__).resolve().parents[3]
    if not (root / "bench" / "__main__.py").is_file():
        raise CommandFailed("the benchmarks are only in the source tree\nclone it, then: make bench")
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "bench", *context.args]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})


def doctor(
    data: Data = None, config: ConfigFile = None, url: Url = None, ca: Ca = None, json: AsJson = False
) -> None:
    """Check the server's environment, and show how to fix each problem."""
    from parley.cli.doctor import examine
    from parley.cli.places import find_place

    if not examine(find_place(data, config, warns=False), url, json, ca):
        raise typer.Exit(1)


PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app.add_typer(tokens.app, name="token", rich_help_panel=PEOPLE)
app.add_typer(people.app, name="user", rich_help_panel=PEOPLE)
people.app.add_typer(links.invite, name="invite")
people.app.command("reset")(links.reset)
app.add_typer(chat.app, name="chat", rich_help_panel=PEOPLE)
app.add_typer(reports.app, name="report", rich_help_panel=PEOPLE)
app.command("send", rich_help_panel=TALK)(talk.send)
app.command("edit", rich_help_panel=TALK)(amend.edit)
app.command("delete", rich_help_panel=TALK)(amend.delete)
app.command("react", rich_help_panel=TALK)(amend.react)
app.add_typer(files.app, name="file", rich_help_panel=TALK)
app.command("tail", rich_help_panel=TALK)(talk.tail)
app.command("search", rich_help_panel=TALK)(search.search)
app.command("explain", rich_help_panel=TALK)(explain.explain)
app.add_typer(deliveries.webhook, name="webhook", rich_help_panel=DELIVERY)
app.add_typer(deliveries.dlq, name="dlq", rich_help_panel=DELIVERY)
app.add_typer(store.app, name="store", rich_help_panel=STORE)
app.command("check", rich_help_panel=STORE)(maintenance.check)
app.command("recover", rich_help_panel=STORE)(maintenance.recover)
app.add_typer(archive.archive, name="archive", rich_help_panel=STORE)
app.add_typer(archive.retention, name="retention", rich_help_panel=STORE)
app.command("backup", rich_help_panel=STORE)(backups.backup)
app.add_typer(backups.app, name="backups", rich_help_panel=STORE)
app.command("restore", rich_help_panel=STORE)(backups.restore)
app.command("copy", rich_help_panel=STORE)(migration.copy)
app.add_typer(migration.app, name="export", rich_help_panel=STORE)
app.command("import", rich_help_panel=STORE)(migration.import_file)
app.command("doctor", rich_help_panel=STORE)(doctor)
app.add_typer(servers.jobs, name="jobs", rich_help_panel=STORE)
app.add_typer(servers.nodes, name="nodes", rich_help_panel=STORE)
app.command("api", rich_help_panel=STORE)(api.api)
app.command("bench", rich_help_panel=STORE, context_settings=PASS_ON, add_help_option=False)(bench)
