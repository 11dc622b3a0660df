"""`parley store init`, `parley doctor` and the start of a node, with services that are there, or are not."""

import os
from pathlib import Path

import pytest

from parley.app.kafka import TOPICS
from parley.store.folder import SEARCH_NAME
from tests.contracts.dynamodb_engine import other_program
from tests.harness.server import ServerProcess
from tests.integration.cli.running import Run, parley
from tests.services import fresh_prefix, service_environment

NOWHERE = "127.0.0.1:1"
pytestmark = pytest.mark.timeout(180)


def services() -> dict[str, str]:
    """The environment of a node on this run's services, with tables and topics of its own."""
    prefix = fresh_prefix()
    found: dict[str, str] = {
        "PARLEY_STORE_ENGINE": "dynamodb",
        "PARLEY_CLUSTER_SECRET": "a test's own secret",
    }
    for name in ("dynamodb", "kafka", "redis"):
        found |= service_environment(name)
    return found | {"PARLEY_DYNAMODB_PREFIX": prefix, "PARLEY_KAFKA_PREFIX": prefix}


def start(data: Path, environment: dict[str, str]) -> Run:
    return parley("serve", "--port", "0", data=data, environment=environment)


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Services with every table and topic."""
    return initialised()


def initialised() -> dict[str, str]:
    environment = services()
    run = parley("store", "init", environment=environment)
    assert run.status == 0, run.stderr
    return environment


def sentence_of(run: Run) -> str:
    """The one line that a failed start leaves for a person; log lines are JSON."""
    said = [line for line in run.stderr.splitlines() if not line.startswith("{")]
    assert len(said) == 1, run.stderr
    assert "Traceback" not in run.stderr
    return said[0]


def test_init_makes_everything_once(tmp_path: Path) -> None:
    """The first run makes tables and topics, the second one finds all of them there."""
    environment = services()
    first = parley("store", "init", "--json", environment=environment)
    again = parley("store", "init", "--json", environment=environment)
    assert len(first.json["made"]) >= 12
    assert first.json["topics"] == [environment["PARLEY_KAFKA_PREFIX"] + topic.name for topic in TOPICS]
    assert again.json == {"made": [], "topics": []}


def test_doctor_sees_every_service(made: dict[str, str], tmp_path: Path) -> None:
    """With everything in place doctor finds nothing wrong and names each service with its version."""
    run = parley("doctor", "--json", data=tmp_path, environment=made)
    findings = {finding["what"]: finding for finding in run.json["findings"]}
    assert (run.status, run.json["ok"]) == (0, True)
    assert {"DynamoDB", "tables", "Kafka", "topics", "Redis"} <= findings.keys()
    assert "Valkey" in findings["Redis"]["says"] or "Redis" in findings["Redis"]["says"]


def test_doctor_advises_nothing_that_the_endpoint_refuses(made: dict[str, str], tmp_path: Path) -> None:
    """DynamoDB Local has no point-in-time recovery: nobody is sent to switch it on there."""
    findings = parley("doctor", "--json", data=tmp_path, environment=made).json["findings"]
    assert [finding for finding in findings if "point-in-time" in finding.get("remedy", "")] == []


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"PARLEY_DYNAMODB_ENDPOINT": f"http://{NOWHERE}"}, "store"),
        ({"PARLEY_DYNAMODB_PREFIX": "nobody-"}, "store"),
        ({"PARLEY_KAFKA_BROKERS": NOWHERE}, "Kafka"),
        ({"PARLEY_KAFKA_PREFIX": "nobody-"}, "Kafka"),
        ({"PARLEY_REDIS_URL": f"redis://{NOWHERE}/0"}, "Redis"),
        ({"PARLEY_CLUSTER_SEQUENCERS": f"http://{NOWHERE}"}, "sequencer"),
        ({"PARLEY_CLUSTER_SECRET": ""}, "cluster"),
        ({"PARLEY_CLUSTER_TLS_CA": "/nowhere/ca.pem"}, "cluster"),
    ],
)
def test_doctor_says_what_is_wrong(
    made: dict[str, str], tmp_path: Path, wrong: dict[str, str], what: str
) -> None:
    """Each service that cannot be used is one finding with a remedy, and the status is 1."""
    run = parley("doctor", "--json", data=tmp_path, environment=made | wrong)
    found = [finding for finding in run.json["findings"] if finding["state"] == "wrong"]
    assert (run.status, [finding["what"] for finding in found]) == (1, [what])
    assert found[0]["remedy"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"PARLEY_DYNAMODB_PREFIX": "nobody-"}, "parley store init"),
        ({"PARLEY_DYNAMODB_ENDPOINT": f"http://{NOWHERE}"}, "cannot be reached"),
        ({"PARLEY_DYNAMODB_ENDPOINT": "", "PARLEY_DYNAMODB_REGION": "mars-north-1"}, "mars-north-1"),
        ({"PARLEY_KAFKA_BROKERS": NOWHERE}, NOWHERE),
        ({"PARLEY_KAFKA_PREFIX": "nobody-"}, "nobody-messages.persisted"),
        ({"PARLEY_REDIS_URL": "not a url"}, "redis.url"),
        ({"PARLEY_CLUSTER_SECRET": ""}, "openssl rand -hex 32"),
        ({"PARLEY_CLUSTER_HOST": "0.0.0.0", "PARLEY_CLUSTER_SECRET": "too short"}, "cluster.secret"),
        ({"PARLEY_CLUSTER_TLS_KEY": "/nowhere/key.pem"}, "cluster.tls_certificate and cluster.tls_ca"),
        ({"PARLEY_CLUSTER_ROLES": "gateway,barista"}, "barista"),
        ({"PARLEY_STORE_SEQUENCING": "two_phase", "PARLEY_STORE_ALLOCATOR": "sequencer"}, "sequencers"),
        ({"PARLEY_STORE_ENGINE": "sqlite"}, "store.engine"),
    ],
)
def test_a_bad_configuration_is_one_sentence(
    made: dict[str, str], tmp_path: Path, wrong: dict[str, str], says: str
) -> None:
    """A node that cannot work says why in one sentence, exits with 1, and leaves nothing half started."""
    run = start(tmp_path / "node", made | wrong)
    assert run.status == 1
    assert says in sentence_of(run)
    assert not (tmp_path / "node" / "serve.url").exists()
    assert run.stdout == ""


def test_an_old_schema_is_named(tmp_path: Path) -> None:
    """Tables of another version are refused with what to do about it."""
    made = initialised()
    for version, says in ((0, "parley store init"), (99, "newer Parley")):
        other_program().update_item(
            TableName=made["PARLEY_DYNAMODB_PREFIX"] + "schema",
            Key={"name": {"S": "parley"}},
            UpdateExpression="SET version = :version",
            ExpressionAttributeValues={":version": {"N": str(version)}},
        )
        run = start(tmp_path / "node", made)
        assert (run.status, says in sentence_of(run)) == (1, True)


def test_a_folder_of_a_node_is_enough_for_commands(made: dict[str, str], tmp_path: Path) -> None:
    """Without the node's environment, `user add --data` reaches the node's own store, and makes no other."""
    credentials = {name: value for name, value in made.items() if name.startswith("AWS_")}
    with ServerProcess(tmp_path / "node", {**os.environ, **made}):
        added = parley("user", "add", "dora", data=tmp_path / "node", environment=credentials)
        assert added.status == 0, added.stderr
    listed = parley("user", "list", "--json", environment=made).json["users"]
    assert "dora" in {user["username"] for user in listed}
    names = {path.name for path in (tmp_path / "node").iterdir()}
    assert SEARCH_NAME in names, "the node has the role search"
    of_the_node = sorted(name for name in names if not name.startswith(SEARCH_NAME))
    assert of_the_node == ["serve.lock", "serve.url", "store.toml"]


def test_commands_work_on_a_shared_store(made: dict[str, str], tmp_path: Path) -> None:
    """People and chats are made without a server, and a node serves them."""
    environment = made | {"PARLEY_DATA": str(tmp_path)}
    added = parley("user", "add", "ann", "--json", environment=environment, given="a long password\n" * 2)
    assert added.status == 0, added.stderr
    with ServerProcess(tmp_path, {**os.environ, **made}):
        seen = parley("doctor", "--json", environment=environment)
    assert {"server", "address"} <= {finding["what"] for finding in seen.json["findings"]}
