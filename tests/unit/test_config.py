"""Configuration: what a node may be told to do, and the sentence when that cannot work."""

import pytest

from parley.config import ROLES_DEFAULT, load
from parley.errors import ConfigError

SHARED = {"PARLEY_STORE_ENGINE": "dynamodb"}
FOUND = {**SHARED, "PARLEY_REDIS_URL": "redis://127.0.0.1"}
SECRET = "a secret that nobody should read"


def roles_with(roles: str, environment: dict[str, str]) -> list[str]:
    config, _ = load(None, {**environment, "PARLEY_CLUSTER_ROLES": roles})
    return config.cluster.roles


def test_a_node_alone_plays_every_role_that_people_need() -> None:
    """Without a word about roles, one process takes connections, appends and delivers."""
    config, unknown = load(None, {})
    assert (config.cluster.roles, unknown) == (list(ROLES_DEFAULT), [])


@pytest.mark.parametrize(
    ("roles", "environment"),
    [
        ("delivery,ingest,gateway", {}),
        ("gateway, ingest", SHARED),
        ("gateway,ingest,delivery,sequencer", SHARED),
        ("sequencer", SHARED),
        ("gateway", FOUND),
        ("ingest,delivery", FOUND),
        ("delivery", FOUND),
    ],
)
def test_roles_that_make_sense_are_taken(roles: str, environment: dict[str, str]) -> None:
    """Any split of the roles over a shared store, as long as the nodes can find each other."""
    assert roles_with(roles, environment) == [role.strip() for role in roles.split(",")]


@pytest.mark.parametrize(
    ("roles", "environment", "says"),
    [
        ("gateway,juggler", FOUND, "there is no role 'juggler'"),
        ("gateway,push", FOUND, "push is not there yet"),
        ("archiver", FOUND, "archiver is not there yet"),
        ("", FOUND, "empty"),
        ("gateway,ingest", {}, "store.engine"),
        ("gateway,ingest,delivery,sequencer", {}, "store.engine"),
        ("gateway", SHARED, "redis.url"),
        ("ingest,delivery", SHARED, "redis.url"),
        ("delivery", SHARED, "redis.url"),
        ("gateway,sequencer", SHARED, "redis.url"),
    ],
)
def test_roles_that_cannot_work_are_a_sentence(roles: str, environment: dict[str, str], says: str) -> None:
    """The operator learns which key to change; a secret is never part of it."""
    with pytest.raises(ConfigError) as refused:
        roles_with(roles, {**environment, "PARLEY_CLUSTER_SECRET": SECRET})
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["SERVER", "CLUSTER"])
@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_does_not_exist_is_refused(name: str, port: str) -> None:
    """Both doors have a port that the machine knows."""
    with pytest.raises(ConfigError, match=rf"{name.lower()}\.port must be 0 to 65535"):
        load(None, {f"PARLEY_{name}_PORT": port})
