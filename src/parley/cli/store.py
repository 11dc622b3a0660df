"""`parley store …`: an empty store in a folder, or the tables and topics that many nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from parley.cli.options import AsJson, ConfigFile, Data

if TYPE_CHECKING:
    from parley.cli.places import Place
    from parley.config import Config
    from parley.store.dynamodb.client import Dynamo

app = typer.Typer(no_args_is_help=True, help="The store: make an empty one, or the tables that nodes share.")


@app.command("init")
def init(data: Data = None, config: ConfigFile = None, json: AsJson = False) -> None:
    """Make what is missing: the file of SQLite, or tables in DynamoDB and topics in Kafka. Safe to repeat.

    What is there is never changed. The data folder remembers which store it belongs to; on DynamoDB only
    if you name one.
    """
    from parley.cli import memory
    from parley.cli.places import find_place

    place = find_place(data, config)
    if place.is_shared:
        _init_services(place.settings, json)
    else:
        _init_folder(place, json)
    if data is not None or not place.is_shared:
        memory.write(place.folder, place.settings)


def _init_folder(place: Place, json: bool) -> None:
    """An empty store in a folder, made durable as the server makes it."""
    from parley.cli.output import print_json
    from parley.cli.places import CommandFailed
    from parley.config import Dynamodb
    from parley.store.sqlite.database import FILE_NAME, Database

    if place.settings.dynamodb != Dynamodb():
        raise CommandFailed(
            "store.engine is sqlite, which needs no tables, and there are settings for DynamoDB:"
            " set PARLEY_STORE_ENGINE=dynamodb for tables, or unset PARLEY_DYNAMODB_*"
        )
    file, is_new = str(place.folder / FILE_NAME), not place.has_store
    place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = Database(place.folder, beside=True)
    database.open()
    database.close()
    if json:
        print_json({"made": [file] if is_new else [], "topics": []})
    else:
        print(f"{file}: {'made' if is_new else 'was there'}")


def _init_services(settings: Config, json: bool) -> None:
    from parley.cli import opening
    from parley.cli.output import note, print_json
    from parley.store.dynamodb.schema import create_tables

    async def make() -> list[str]:
        dynamo = _client(settings)
        await dynamo.open()
        try:
            return await create_tables(dynamo, lambda line: None if json else print(line))
        finally:
            await dynamo.close()

    made = opening.run(make())
    topics = opening.run(_make_topics(settings))
    if json:
        print_json({"made": made, "topics": topics})
        return
    for topic in topics:
        print(f"{topic}: made")
    note(f"{len(made)} tables made" if made else "all tables were there")
    if settings.kafka.brokers:
        note(f"{len(topics)} topics made" if topics else "all topics were there")


async def _make_topics(settings: Config) -> list[str]:
    """Topics, where a broker is configured."""
    if not settings.kafka.brokers:
        return []
    from parley.bus.kafka.admin import ensure_topics

    return await ensure_topics(settings.kafka)


def _client(settings: Config) -> Dynamo:
    from parley.store.dynamodb.client import Dynamo

    chosen = settings.dynamodb
    return Dynamo(chosen.endpoint, chosen.region, prefix=chosen.prefix)
