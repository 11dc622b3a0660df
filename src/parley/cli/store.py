"""`parley store …`: the tables of a store that many nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from parley.cli.options import AsJson, ConfigFile

if TYPE_CHECKING:
    from parley.config import Config
    from parley.store.dynamodb.client import Dynamo

app = typer.Typer(no_args_is_help=True, help="The tables of a shared store.")


@app.command("init")
def init(config: ConfigFile = None, json: AsJson = False) -> None:
    """Make the tables that are missing in DynamoDB. Safe to repeat; what is there is never changed."""
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
    if json:
        print_json({"made": made})
    else:
        note(f"{len(made)} tables made" if made else "all tables were there")


def _client(settings: Config) -> Dynamo:
    from parley.store.dynamodb.client import Dynamo

    chosen = settings.dynamodb
    return Dynamo(chosen.endpoint, chosen.region, prefix=chosen.prefix)
