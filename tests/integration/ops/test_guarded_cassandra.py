"""A Cassandra that asks for a password, over TLS: who gets in, who does not, and what is said then."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import convert

from ops.local_services import CASSANDRA_GUARDED
from parley.app.cassandra import make_client
from parley.config import CassandraConfig, Config
from parley.errors import ConfigError, StoreUnavailable
from parley.store.cassandra.client import Cassandra
from tests.certificates import TestAuthority
from tests.harness.server import ServerProcess, run_parley
from tests.services import OwnServices

USER, PASSWORD = "parley", "a password of its own"

pytestmark = pytest.mark.timeout(180)


class Guarded(NamedTuple):
    """Its tables, and how the first user, and the user of the server, get in."""

    admin: Mapping[str, str]
    server: Mapping[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The first user creates the tables, and a user who may only read and write."""
    with OwnServices(tmp_path_factory.mktemp("guarded") / "services", in_memory=True) as own:
        own.up(CASSANDRA_GUARDED)
        admin = {
            **own.environment(),
            "PARLEY_STORE_ENGINE": "cassandra",
            "PARLEY_CASSANDRA_REPLICAS": "1",
            "PARLEY_CLUSTER_SECRET": "a secret of these tests alone",
        }
        made = run_parley("store", "init", environment=admin, timeout_seconds=90)
        assert made.returncode == 0, made.stdout + made.stderr
        asyncio.run(add_user(config_of(admin)))
        yield Guarded(
            admin, {**admin, "PARLEY_CASSANDRA_USERNAME": USER, "PARLEY_CASSANDRA_PASSWORD": PASSWORD}
        )


async def add_user(config: Config) -> None:
    async with opened(config) as cassandra:
        await cassandra.define(f"CREATE ROLE {USER} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true")
        for right in ("SELECT", "MODIFY"):
            await cassandra.define(f"GRANT {right} ON KEYSPACE {config.cassandra.keyspace} TO {USER}")


@asynccontextmanager
async def opened(config: Config) -> AsyncIterator[Cassandra]:
    cassandra = make_client(config)
    try:
        await cassandra.connect()
        yield cassandra
    finally:
        await cassandra.close()


def config_of(environment: Mapping[str, str], **changed: str) -> Config:
    values = {
        name: environment.get(f"PARLEY_CASSANDRA_{name.upper()}", "")
        for name in ("username", "password", "ca")
    }
    port = int(environment["PARLEY_CASSANDRA_PORT"])
    return Config(cassandra=convert({**values, **changed, "port": port}, CassandraConfig))


def test_a_server_needs_no_right_but_to_read_and_write(guarded: Guarded, tmp_path: Path) -> None:
    """With a user who may not create anything, a server starts, and the commands of operators work."""
    with ServerProcess(tmp_path, guarded.server):
        pass
    for command in ("check", "doctor"):
        done = run_parley(command, environment=guarded.server)
        assert done.returncode == 0, done.stdout + done.stderr


def test_that_user_cannot_create_tables(guarded: Guarded) -> None:
    """So the rights are really asked for; a command that needs more says what failed."""
    environment = {**guarded.server, "PARLEY_CASSANDRA_KEYSPACE": "another"}
    refused = run_parley("store", "init", environment=environment)
    assert refused.returncode != 0
    assert "Cassandra refused `CREATE KEYSPACE" in refused.stderr, refused.stderr


@pytest.mark.parametrize("password", ["", "a wrong one"])
async def test_a_wrong_password_is_told(guarded: Guarded, password: str) -> None:
    """As a mistake of the configuration: waiting would not help."""
    with pytest.raises(ConfigError, match="refuses the user and password"):
        async with opened(config_of(guarded.server, password=password)):
            pass


async def test_without_a_user_nobody_gets_in(guarded: Guarded) -> None:
    """And it is told that there must be one."""
    with pytest.raises(ConfigError, match="refuses the user and password"):
        async with opened(config_of(guarded.server, username="")):
            pass


async def test_without_tls_nobody_gets_in(guarded: Guarded) -> None:
    """The password is not sent in the clear."""
    with pytest.raises(StoreUnavailable):
        async with opened(config_of(guarded.server, ca="")):
            pass


async def test_the_certificate_of_a_stranger_is_refused(guarded: Guarded, tmp_path: Path) -> None:
    """Whoever has another authority's certificate is not the cluster."""
    with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        async with opened(config_of(guarded.server, ca=str(TestAuthority(tmp_path).ca))):
            pass
