"""`parley archive …` and `parley retention …`: the cold tier, and how long bodies are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ChatName, ConfigFile, Data

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from parley.archive.tiers import TieredEngine
    from parley.cli.offline import OfflineServices
    from parley.cli.places import Place

archive = typer.Typer(no_args_is_help=True, help="Old entries in the cold tier: move, count, verify.")
retention = typer.Typer(no_args_is_help=True, help="How long bodies of messages are kept.")

Chats = Annotated[
    list[str] | None, typer.Argument(metavar="CHAT", help="Only these: ids or titles (default: all).")
]


@archive.command("run")
def run_archive(
    chats: Chats = None, data: Data = None, config: ConfigFile = None, json: AsJson = False
) -> None:
    """Move entries older than archive.after_days to the cold tier now. Safe to repeat."""
    import os

    from parley.cli.archive_report import ColdProgressLine, show_run
    from parley.clock import wall_clock
    from parley.telemetry import Metrics

    async def move(services: OfflineServices, engine: TieredEngine, place: Place) -> bool:
        from parley.app.archive import make_archiver

        archiver = make_archiver(engine, place.settings, wall_clock, Metrics(wall_clock), os.environ)
        with ColdProgressLine() as line:
            done = await archiver.run(await _chosen(services, chats), line.archiving)
        show_run(done, json)
        return not done.failed

    _exit(_with_cold_tier(data, config, move))


@archive.command("status")
def status(chats: Chats = None, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Show how much of each chat is archived, and what keeps the rest from being trimmed."""
    from parley.app.archive import bus_consumers
    from parley.cli.archive_report import archive_status, show_status

    async def look(services: OfflineServices, engine: TieredEngine, place: Place) -> bool:
        chosen = await _chosen(services, chats)
        show_status(await archive_status(engine, chosen, bus_consumers(place.settings)), json)
        return True

    _exit(_with_cold_tier(data, config, look))


@archive.command("verify")
def verify(chats: Chats = None, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Read every archived entry, and name each object that is not what was written. Changes nothing.

    Exits with status 1 if something is wrong.
    """
    from parley.cli.archive_report import ColdProgressLine, show_verification

    async def check(services: OfflineServices, engine: TieredEngine, place: Place) -> bool:
        from parley.app.archive import make_verifier

        with ColdProgressLine() as line:
            found = await make_verifier(engine).run(await _chosen(services, chats), line.verifying)
        show_verification(found, json)
        return not found.faults

    _exit(_with_cold_tier(data, config, check))


@retention.command("report")
def report(chats: Chats = None, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Show which bodies `parley retention apply` would remove now. Changes nothing."""
    _retain(chats, data, config, json, apply=False)


@retention.command("apply")
def apply(chats: Chats = None, data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Remove the bodies that are older than they are kept, from both tiers, for good. Safe to repeat."""
    _retain(chats, data, config, json, apply=True)


def _retain(chats: list[str] | None, data: Data, config: ConfigFile, json: bool, *, apply: bool) -> None:
    import os

    from parley.app.archive import make_retention
    from parley.app.search import told_of_removals
    from parley.cli.archive_report import ColdProgressLine, show_retention
    from parley.cli.offline import open_services, run, who_acts
    from parley.cli.places import find_place
    from parley.clock import wall_clock
    from parley.telemetry import Metrics

    place = find_place(data, config)

    async def work() -> None:
        metrics = Metrics(wall_clock)
        async with (
            open_services(place) as services,
            told_of_removals(place.settings, services.engine, metrics) as told,
        ):
            keeper = make_retention(services.engine, place.settings, wall_clock, metrics, os.environ, told)
            chosen = await _chosen(services, chats)
            with ColdProgressLine() as line:
                if apply:
                    async with services.user_admin.audited(who_acts(), "retention.apply", "", ""):
                        found = await keeper.apply(chosen, line.removing)
                else:
                    found = await keeper.report(chosen, line.removing)
            show_retention(found, json, is_done=apply)

    run(work())


@retention.command("set")
def set_retention(
    chat: ChatName,
    days: Annotated[str, typer.Option(help="How many days; 0 for ever; `default` for retention.days.")] = "",
    hold: Annotated[
        bool | None, typer.Option("--hold/--release", help="A legal hold: nothing of the chat is removed.")
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Decide for one chat how long its bodies are kept, or put it under a legal hold."""
    from parley.cli.archive_report import show_decision
    from parley.cli.names import require_chat
    from parley.cli.offline import open_services, run, who_acts
    from parley.cli.places import find_place
    from parley.store.rows import ChatRetention

    if not days and hold is None:
        raise typer.BadParameter("say --days, --hold or --release")
    if days and days != "default" and not (days.isascii() and days.isdigit()):
        raise typer.BadParameter("--days must be a whole number from 0, or default")
    place = find_place(data, config)

    async def work() -> None:
        async with open_services(place) as services:
            chat_id = (await require_chat(services.kinds.listing, chat)).chat_id
            before = (await services.kinds.retentions.of([chat_id]))[chat_id]
            chosen = before.days if not days else None if days == "default" else int(days)
            decided = ChatRetention(days=chosen, is_held=before.is_held if hold is None else hold)
            detail = f"days={'default' if decided.days is None else decided.days} held={decided.is_held}"
            async with services.user_admin.audited(who_acts(), "retention.set", chat_id, detail):
                await services.kinds.retentions.decide(chat_id, decided)
            show_decision(chat_id, decided, json)

    run(work())


async def _chosen(services: OfflineServices, names: list[str] | None) -> list[str] | None:
    from parley.cli.names import require_chat

    listing = services.kinds.listing
    return [(await require_chat(listing, name)).chat_id for name in names] if names else None


def _with_cold_tier(
    data: Data,
    config: ConfigFile,
    work: Callable[[OfflineServices, TieredEngine, Place], Awaitable[bool]],
) -> bool:
    """Do it with the engine of a place that has a cold tier."""
    from parley.archive.tiers import TieredEngine
    from parley.cli.offline import open_services, run
    from parley.cli.places import CommandFailed, find_place

    place = find_place(data, config)

    async def opened() -> bool:
        async with open_services(place) as services:
            if not isinstance(services.engine, TieredEngine):
                raise CommandFailed(
                    "there is no cold tier: set archive.target to a folder or s3://bucket/prefix"
                )
            return await work(services, services.engine, place)

    return run(opened())


def _exit(is_good: bool) -> None:
    raise typer.Exit(0 if is_good else 1)
