"""The table of all jobs. It makes nodes of every kind, starts none of them, and asks each for its jobs."""

from __future__ import annotations

import asyncio
import tempfile
from functools import cache
from pathlib import Path

from msgspec import Struct

from docs.tables import code, table
from parley import config
from parley.app import App
from parley.core.jobs import Job
from parley.model import JobScope
from tests.certificates import TestAuthority

NOWHERE = "127.0.0.1:9"
EVERYTHING = {
    "PARLEY_DYNAMODB_ENDPOINT": f"http://{NOWHERE}",
    "PARLEY_DYNAMODB_REGION": "local",
    "PARLEY_CLUSTER_SECRET": "the secret of a node that is not started",
    "PARLEY_REDIS_URL": f"redis://{NOWHERE}",
    "PARLEY_ARCHIVE_TARGET": "archive",
    "PARLEY_ATTACHMENTS_TARGET": "attachments",
    "PARLEY_RETENTION_IS_AUTOMATIC": "true",
}
EVERYTHING_SHARED = {**EVERYTHING, "PARLEY_KAFKA_BROKERS": NOWHERE, "PARLEY_BUS_INGEST": "bus"}
WITHOUT = {
    "`kafka.brokers`": {"PARLEY_KAFKA_BROKERS": "", "PARLEY_BUS_INGEST": "direct"},
    "`redis.url`": {"PARLEY_REDIS_URL": ""},
    '`bus.ingest = "bus"`': {"PARLEY_BUS_INGEST": "direct"},
    "`archive.target`": {"PARLEY_ARCHIVE_TARGET": ""},
    "`attachments.target`": {"PARLEY_ATTACHMENTS_TARGET": ""},
    "`retention.is_automatic`": {"PARLEY_RETENTION_IS_AUTOMATIC": "false"},
    "`search.enabled`": {"PARLEY_SEARCH_ENABLED": "false"},
    "`tls.certificate`": {"PARLEY_TLS_CERTIFICATE": "", "PARLEY_TLS_KEY": ""},
}
"""Settings that a job may need, and how each is taken away."""
UNITS = ((3_600, "h"), (1, "s"))


class Place(Struct):
    """Where jobs run with one engine: each job, the roles that have it, and the settings that it needs."""

    jobs: dict[str, Job]
    roles: dict[str, list[str]]
    needs: dict[str, list[str]]


@cache
def jobs() -> str:
    """What a node does in the background: one row per job."""
    places = asyncio.run(_places())
    shared, also_shared = places["dynamodb"], places["cassandra"]
    assert (shared.roles, shared.needs) == (also_shared.roles, also_shared.needs), "one word for both engines"
    return table_of(places["sqlite"], shared)


def table_of(alone: Place, shared: Place) -> str:
    rows = []
    for name, job in sorted({**alone.jobs, **shared.jobs}.items()):
        assert job.does, f"the job {name} must say what it does"
        where = _where(job, shared if name in shared.jobs else alone)
        rows.append((code(name), where, _needs(name, alone, shared), _often(job), job.does))
    return table(("job", "where", "needs", "how often", "what it does"), rows)


async def _places() -> dict[str, Place]:
    """Nodes are made inside of a loop, as a server makes its own."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key, _ = TestAuthority(Path(folder)).issue("node")
        files = {
            "PARLEY_SERVER_DATA": folder,
            "PARLEY_TLS_CERTIFICATE": str(certificate),
            "PARLEY_TLS_KEY": str(key),
        }
        return {
            engine: _place({**(EVERYTHING if engine == "sqlite" else EVERYTHING_SHARED), **files}, engine)
            for engine in ("sqlite", "dynamodb", "cassandra")
        }


def _place(settings: dict[str, str], engine: str) -> Place:
    def made(**changed: str) -> dict[str, Job]:
        loaded, _ = config.load(None, {**settings, "PARLEY_STORE_ENGINE": engine, **changed})
        return {job.name: job for job in App(loaded, environment={}).jobs()}

    jobs = made()
    by_role = (
        {role: made(PARLEY_CLUSTER_ROLES=role) for role in config.ROLES_DEFAULT} if engine != "sqlite" else {}
    )
    left = {name: made(**changed) for name, changed in WITHOUT.items()}
    return Place(
        jobs,
        {name: [role for role, found in by_role.items() if name in found] for name in jobs},
        {name: [setting for setting, found in left.items() if name not in found] for name in jobs},
    )


def _where(job: Job, place: Place) -> str:
    nodes = "every node" if job.scope is JobScope.NODE else "one node"
    roles = place.roles[job.name]
    if len(roles) not in (0, len(config.ROLES_DEFAULT)):
        nodes += f" with {' or '.join(map(code, roles))}"
    return nodes if job.overlaps else f"{nodes}, never two"


def _needs(name: str, alone: Place, shared: Place) -> str:
    """What must be there for a job to run, on one machine and on a store that nodes share."""
    on_one, on_many = alone.needs.get(name), shared.needs.get(name)
    if on_one == on_many:
        return ", ".join(on_many or [])
    found = [("SQLite", on_one), ("a shared store", on_many)]
    ways = [" with ".join(filter(None, (on, ", ".join(needs)))) for on, needs in found if needs is not None]
    return ", or ".join(ways)


def _often(job: Job) -> str:
    if job.interval_seconds is None:
        return "when there is need" if job.until_woken else "runs for ever"
    size, unit = next((size, unit) for size, unit in UNITS if job.interval_seconds % size == 0 or size == 1)
    return f"{job.interval_seconds / size:g} {unit}" + (", and when there is need" if job.until_woken else "")
