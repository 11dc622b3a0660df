"""`parley store …`: creates a store in a folder, or the tables and topics that many nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from collections.abc import Callable

    from parley.cli.places import Place
    from parley.store.ports import Engine

app = typer.Typer(
    no_args_is_help=True, help="The store: create an empty one, or the tables that nodes share."
)


@app.command("init")
def init(data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Create what is missing: the SQLite file, or tables in DynamoDB and topics in Kafka. Safe to repeat.

    Never changes what exists. The data folder records which store it belongs to; on DynamoDB only
    if you name one.
    """
    from parley.cli import store_file
    from parley.cli.offline import run
    from parley.cli.output import note, print_json
    from parley.cli.places import find_place
    from parley.store.folder import make_private

    place = find_place(data, config)
    if not place.is_shared:
        _check_settings(place)
        make_private(place.folder)
    made, topics = run(_create(place, lambda line: None if json else print(line)))
    if json:
        print_json({"made": made, "topics": topics})
    elif place.is_shared:
        for topic in topics:
            print(f"{topic}: created")
        note(f"{len(made)} tables created" if made else "all tables already exist")
        if place.settings.kafka.brokers:
            note(f"{len(topics)} topics created" if topics else "all topics already exist")
    if data is not None or not place.is_shared:
        store_file.write(place.folder, place.settings)


@app.command("raise-epochs")
def raise_epochs(
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it. Without it the chats are only counted.")
    ] = False,
    data: Data = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """After a restore: give every chat a new epoch, so that all clients start over. Stop all servers first.

    parley restore does it by itself. It is for stores that were restored by other means, such as DynamoDB's
    point-in-time recovery.
    """
    from parley.cli.offline import ask
    from parley.cli.output import note, plural, print_json
    from parley.cli.places import CommandFailed, find_place
    from parley.clock import wall_clock

    place = find_place(data, config)
    if not place.is_shared and place.server_process() is not None:
        raise CommandFailed(f"a server runs on {place.folder}: stop it first")

    async def raise_all(engine: Engine) -> int:
        transfer = engine.transfer
        if apply:
            return await transfer.begin_anew(wall_clock())
        return sum([len(page) async for page in transfer.chats()])

    count = ask(place, raise_all)
    if json:
        print_json({"chats": count, "raised": apply})
    elif apply:
        print(f"{plural(count, 'chat')} have a new epoch")
    else:
        print(f"{plural(count, 'chat')} would get a new epoch")
        note("nothing was changed; --apply does it")


def _check_settings(place: Place) -> None:
    from parley.cli.places import CommandFailed
    from parley.config import DynamodbConfig

    if place.settings.dynamodb != DynamodbConfig():
        raise CommandFailed(
            "store.engine is sqlite, which needs no tables, but there are settings for DynamoDB:"
            " set PARLEY_STORE_ENGINE=dynamodb for tables, or unset PARLEY_DYNAMODB_*"
        )


async def _create(place: Place, report: Callable[[str], None]) -> tuple[list[str], list[str]]:
    """What was created in the store, and the topics, if there is a broker."""
    from parley.cli.offline import make_offline_engine

    engine = make_offline_engine(place)
    try:
        made = await engine.create(report)
    finally:
        await engine.close()
    if not place.is_shared or not place.settings.kafka.brokers:
        return made, []
    from parley.app.kafka import topics_in
    from parley.bus.kafka.admin import ensure_topics

    return made, await ensure_topics(place.settings.kafka, topics_in(place.settings))
