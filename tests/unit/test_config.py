"""Configuration: what a node may be told to do, and the sentence when that cannot work."""

from pathlib import Path

import pytest

from parley.config import ROLES_DEFAULT, load, suggestion
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
        ("push,delivery,ingest,gateway", {}),
        ("gateway, ingest", SHARED),
        ("gateway,ingest,delivery,sequencer", SHARED),
        ("sequencer", SHARED),
        ("gateway", FOUND),
        ("ingest,delivery", FOUND),
        ("delivery", FOUND),
        ("push", FOUND),
    ],
)
def test_roles_that_make_sense_are_taken(roles: str, environment: dict[str, str]) -> None:
    """Any split of the roles over a shared store, as long as the nodes can find each other."""
    assert roles_with(roles, environment) == [role.strip() for role in roles.split(",")]


@pytest.mark.parametrize(
    ("roles", "environment", "says"),
    [
        ("gateway,juggler", FOUND, "there is no role 'juggler'"),
        ("gateway,push", {}, "store.engine"),
        ("push", SHARED, "redis.url"),
        ("archiver", SHARED, "redis.url"),
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[server]\nport = "eighty"\n', "server.port must be a whole number, not 'eighty'"),
        (
            '[store]\nengine = "sqllite"\n',
            "store.engine must be sqlite or dynamodb or cassandra, not 'sqllite'",
        ),
        ('[server]\nhosts = "chat.example"\n', "server.hosts must be a list of strings"),
        ("[server]\nprot = 1\n", "server.prot is no setting; did you mean server.port?"),
        ("[servr]\nport = 1\n", "servr is no section; did you mean server?"),
        ("[teapot]\nport = 1\n", "teapot is no section"),
        ("server = 5\n", "server must be a section"),
        ("[server]\nport = 70000\n", "server.port must be 0 to 65535, not 70000"),
        ('[cluster]\nroles = ["cook"]\n', "there is no role 'cook'"),
    ],
)
def test_a_mistake_in_the_file_names_the_file(text: str, says: str, tmp_path: Path) -> None:
    """The sentence has the key, what it takes, and where it was written."""
    file = tmp_path / "parley.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert says in str(refused.value)
    assert str(refused.value).endswith(f"({file})")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PARLEY_SERVER_PORT", "eighty", "server.port must be a whole number, not 'eighty'"),
        (
            "PARLEY_STORE_ENGINE",
            "dynamo",
            "store.engine must be sqlite or dynamodb or cassandra, not 'dynamo'",
        ),
        ("PARLEY_ACCOUNTS_PASSWORD_LETTERS_MIN", "x", "accounts.password_letters_min must be a whole number"),
        ("PARLEY_CLUSTER_ROLES", "cook", "there is no role 'cook'"),
        ("PARLEY_CLUSTER_PORT", "-1", "cluster.port must be 0 to 65535"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    name: str, value: str, says: str, tmp_path: Path
) -> None:
    """Also where a file says the same key, because the variable wins."""
    file = tmp_path / "parley.toml"
    file.write_text('[server]\nport = 8080\n[store]\nengine = "sqlite"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load(file, {name: value})
    assert says in str(refused.value)
    assert str(refused.value).endswith(f"({name})")


def test_a_secret_of_the_wrong_kind_is_not_repeated(tmp_path: Path) -> None:
    """The sentence goes to logs."""
    file = tmp_path / "parley.toml"
    file.write_text("[cluster]\nsecret = 778899\n", encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert "cluster.secret must be a string" in str(refused.value)
    assert "778899" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PARLEY_STOR_ENGINE", "PARLEY_STORE_ENGINE"),
        ("PARLEY_SERVER_PROT", "PARLEY_SERVER_PORT"),
        ("PARLEY_DTAA", "PARLEY_DATA"),
        ("PARLEY_SECRET", "PARLEY_CLUSTER_SECRET"),
        ("PARLEY_PORT", "PARLEY_SERVER_PORT"),
        ("PARLEY_TEAPOT_LID", None),
    ],
)
def test_an_unknown_variable_has_a_suggestion(name: str, meant: str | None) -> None:
    """The name that a person most likely meant, or none."""
    assert load(None, {name: "1"})[1] == [name]
    assert suggestion(name) == meant


def test_what_lies_beneath_is_weaker_than_file_and_environment(tmp_path: Path) -> None:
    """A folder's memory counts only where nobody has said otherwise."""
    file = tmp_path / "parley.toml"
    file.write_text('[dynamodb]\nregion = "file"\n', encoding="utf-8")
    beneath: dict[str, dict[str, str]] = {
        "store": {"engine": "dynamodb"},
        "dynamodb": {"region": "beneath", "prefix": "beneath", "endpoint": "beneath"},
    }
    config, _ = load(file, {"PARLEY_DYNAMODB_PREFIX": "variable"}, beneath)
    chosen = config.dynamodb
    assert (chosen.endpoint, chosen.region, chosen.prefix) == ("beneath", "file", "variable")
    assert beneath["dynamodb"]["prefix"] == "beneath"


def test_deliveries_are_configured() -> None:
    """Networks are separated by commas; what makes no sense is refused with the setting's name."""
    config, _ = load(
        None,
        {
            "PARLEY_WEBHOOKS_ALLOWED_NETWORKS": "10.0.0.0/8, fd00::/8",
            "PARLEY_PUSH_ALLOWED_NETWORKS": "10.1.0.0/16",
            "PARLEY_DELIVERY_MAX_RETRIES": "5",
            "PARLEY_WEBHOOKS_GIVE_UP_HOURS": "2",
            "PARLEY_DELIVERY_TOO_OLD_SECONDS": "60",
        },
    )
    assert config.webhooks.allowed_networks == ["10.0.0.0/8", "fd00::/8"]
    assert config.push.allowed_networks == ["10.1.0.0/16"]
    assert config.webhooks.give_up_hours == 2
    assert (config.delivery.max_retries, config.delivery.too_old_seconds) == (5, 60)
    for section in ("webhooks", "push"):
        with pytest.raises(ConfigError, match=rf"{section}\.allowed_networks"):
            load(None, {f"PARLEY_{section.upper()}_ALLOWED_NETWORKS": "everything"})
    with pytest.raises(ConfigError, match=r"delivery\.max_retries"):
        load(None, {"PARLEY_DELIVERY_MAX_RETRIES": "-1"})
    with pytest.raises(ConfigError, match=r"webhooks\.give_up_hours"):
        load(None, {"PARLEY_WEBHOOKS_GIVE_UP_HOURS": "-1"})


SHARED = {"PARLEY_STORE_ENGINE": "dynamodb", "PARLEY_KAFKA_BROKERS": "localhost:9092"}


def test_ingest_through_the_bus_is_configured() -> None:
    """It is off unless chosen."""
    assert load(None, {})[0].bus.ingest == "direct"
    assert load(None, {**SHARED, "PARLEY_BUS_INGEST": "bus"})[0].bus.ingest == "bus"


@pytest.mark.parametrize("environment", [{}, {"PARLEY_STORE_ENGINE": "dynamodb"}])
def test_ingest_through_the_bus_needs_a_bus(environment: dict[str, str]) -> None:
    """One sentence says why not, and where it was written."""
    with pytest.raises(ConfigError, match=r"nothing to buffer \(PARLEY_BUS_INGEST"):
        load(None, {**environment, "PARLEY_BUS_INGEST": "bus"})


JWT = {
    "PARLEY_AUTH_JWT_SECRET": SECRET,
    "PARLEY_AUTH_JWT_ISSUER": "https://login.example.com",
    "PARLEY_AUTH_JWT_AUDIENCE": "parley",
}


def test_another_login_is_configured(tmp_path: Path) -> None:
    """By a section within a section, or by variables; without either there is none."""
    file = tmp_path / "parley.toml"
    file.write_text(f'[auth.jwt]\nsecret = "{SECRET}"\nissuer = "i"\naudience = "a"\n')
    from_file, _ = load(file, {"PARLEY_AUTH_JWT_AUDIENCE": "b"})
    assert (from_file.auth_jwt.issuer, from_file.auth_jwt.audience) == ("i", "b")
    assert from_file.auth_jwt.pinned_algorithms == ["HS256"]
    by_variables, unknown = load(
        None, {**JWT, "PARLEY_AUTH_JWT_SECRET": SECRET * 2, "PARLEY_AUTH_JWT_ALGORITHMS": "HS384, HS512"}
    )
    assert (by_variables.auth_jwt.pinned_algorithms, unknown) == (["HS384", "HS512"], [])
    assert not load(None, {})[0].auth_jwt.is_set


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"PARLEY_AUTH_JWT_ISSUER": ""}, "needs issuer and audience"),
        ({"PARLEY_AUTH_JWT_AUDIENCE": ""}, "needs issuer and audience"),
        ({"PARLEY_AUTH_JWT_ISSUER": "a b"}, "no spaces"),
        ({"PARLEY_AUTH_JWT_SECRET": ""}, "exactly one of"),
        ({"PARLEY_AUTH_JWT_SECRET": "short"}, "32 bytes"),
        ({"PARLEY_AUTH_JWT_ALGORITHMS": "HS512"}, "64 bytes"),
        ({"PARLEY_AUTH_JWT_JWKS_URL": "https://login.example.com/keys"}, "exactly one of"),
        ({"PARLEY_AUTH_JWT_ALGORITHMS": "none"}, "with a secret choose of HS256"),
        ({"PARLEY_AUTH_JWT_ALGORITHMS": "HS256,RS256"}, "with a secret choose of HS256"),
        (
            {
                "PARLEY_AUTH_JWT_SECRET": "",
                "PARLEY_AUTH_JWT_PUBLIC_KEY": "key.pem",
                "PARLEY_AUTH_JWT_ALGORITHMS": "RS256,HS256",
            },
            "with public keys choose of ES256",
        ),
        ({"PARLEY_AUTH_JWT_LEEWAY_SECONDS": "301"}, "0 to 300"),
        ({"PARLEY_AUTH_JWT_SECRET": "", "PARLEY_AUTH_JWT_JWKS_URL": "file:///keys"}, "https address"),
    ],
)
def test_another_login_that_cannot_work_is_a_sentence(changed: dict[str, str], says: str) -> None:
    """Nothing that would believe too much is taken, and no secret is repeated."""
    with pytest.raises(ConfigError, match=says) as failure:
        load(None, JWT | changed)
    assert SECRET not in str(failure.value)
