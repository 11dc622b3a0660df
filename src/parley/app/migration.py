"""Which stores a copy is made of and written to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parley.app.engines import make_engine
from parley.clock import Clock
from parley.config import Config
from parley.ids import Ids
from parley.migration.stores import CopySide
from parley.telemetry import Metrics


def copy_side(config: Config, clock: Clock, ids: Ids, environment: Mapping[str, str]) -> CopySide:
    engine = make_engine(
        config, clock=clock, ids=ids, metrics=Metrics(clock), environment=environment, beside=True
    )
    return CopySide(config, engine, _name_of(config))


def _name_of(config: Config) -> str:
    """What tells this store from any other."""
    if not config.store.is_shared:
        return f"sqlite in {Path(config.server.data).absolute()}"
    if config.store.engine == "cassandra":
        return f"cassandra at {','.join(config.cassandra.contact_points)} {config.cassandra.keyspace}"
    where = config.dynamodb
    return f"{config.store.engine} at {where.endpoint or 'AWS'} {where.region} {where.prefix}".rstrip()
