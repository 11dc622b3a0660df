"""`parley store …`: the tables and topics that many nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from parley.cli.options import AsJson, ConfigFile

if TYPE_CHECKING:
    from parley.config import Config
    from parley.store.dynamodb.client import Dynamo

app = typer.Typer(no_args_is_help=True, help="The tables and topics that nodes share.")


@app.command("init")
def init(config: ConfigFile = None, json: AsJson = False) -> None:
    """Make what is missing: tables in DynamoDB, topics in Kafka. Safe to repeat; nothing is changed."""
    from parley.cli import opening
    from parley.cli.output import note, print_json
    from parley.cli.places import CommandFailed, find_place
    from parley.store.dynamodb.schema import create_tables

    settings = find_place(None, config).settings
    if settings.store.engine != "dynamodb":
        raise CommandFailed(
            f"store.engine is {settings.store.engine}, which needs no tables\n"
            'for tables in DynamoDB, set store.engine = "dynamodb" or PARLEY_STORE_ENGINE=dynamodb'
        )

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
