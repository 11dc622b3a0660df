"""Commands on a store in DynamoDB, which the configuration names, with nobody serving it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import redis

from parley.store.dynamodb.driver import from_item, to_item
from tests.contracts.dynamodb_engine import other_program
from tests.integration.cli.running import Run, parley
from tests.services import fresh_prefix, service_environment

pytestmark = pytest.mark.timeout(180)

TOML = """
[store]
engine = "dynamodb"
sequencing = "{sequencing}"
allocator = "{allocator}"
[dynamodb]
endpoint = "{endpoint}"
region = "{region}"
prefix = "{prefix}"
[redis]
url = "{redis}"
"""


class Shared:
    """Tables that a configuration file names."""

    def __init__(self, folder: Path, sequencing: str = "atomic", allocator: str = "dynamodb") -> None:
        self.environment = {k: v for k, v in service_environment("dynamodb").items() if k.startswith("AWS_")}
        self.prefix = fresh_prefix()
        self._config = folder / "parley.toml"
        url = service_environment("redis")["PARLEY_REDIS_URL"] if allocator == "redis" else ""
        values = service_environment("dynamodb")
        self._config.write_text(
            TOML.format(
                sequencing=sequencing,
                allocator=allocator,
                endpoint=values["PARLEY_DYNAMODB_ENDPOINT"],
                region=values.get("PARLEY_DYNAMODB_REGION", "local"),
                prefix=self.prefix,
                redis=url,
            )
        )

    def run(self, *arguments: str) -> Run:
        return parley(*arguments, "--config", str(self._config), environment=self.environment)

    def succeed(self, *arguments: str) -> Run:
        run = self.run(*arguments)
        assert run.status == 0, run.stderr
        return run

    def item(self, table: str, **key: Any) -> dict[str, Any]:
        answer = other_program().get_item(
            TableName=self.prefix + table, Key=to_item(key), ConsistentRead=True
        )
        return dict(from_item(answer.get("Item", {})))

    def delete(self, table: str, **key: Any) -> None:
        other_program().delete_item(TableName=self.prefix + table, Key=to_item(key))

    def set(self, table: str, key: dict[str, Any], name: str, value: Any) -> None:
        other_program().update_item(
            TableName=self.prefix + table,
            Key=to_item(key),
            UpdateExpression="SET #n = :v",
            ExpressionAttributeNames={"#n": name},
            ExpressionAttributeValues=to_item({":v": value}),
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Ann and Ben, and their direct chat. Each test that writes has a group of its own."""
    shared = peopled(Shared(tmp_path_factory.mktemp("shared")))
    shared.succeed("chat", "direct", "ann", "ben")
    return shared


def peopled(shared: Shared) -> Shared:
    shared.succeed("store", "init")
    for name in ("ann", "ben"):
        shared.succeed("user", "add", name)
    return shared


def group(shared: Shared, title: str) -> str:
    """A group of Ann and Ben with one change in its log."""
    chat_id = shared.succeed("chat", "create", "--as", "ann", "--title", "untitled", "ben").stdout.strip()
    shared.succeed("chat", "rename", chat_id, title)
    return chat_id


def test_people_and_chats_are_shown(shared: Shared) -> None:
    """Names, counts, tokens and direct chats are those of the tables."""
    token = shared.succeed("token", "ben", "--device", "laptop", "--json").json
    assert token["token"].startswith("prl_")
    users = {u["username"]: u for u in shared.succeed("user", "list", "--json").json["users"]}
    assert (users["ben"]["sessions"], users["ann"]["sessions"]) == (1, 0)
    direct = shared.succeed("chat", "direct", "ben", "ann", "--json").json
    assert direct["created"] is False
    listed = shared.succeed("chat", "list", "--of", "ben", "--json").json["chats"]
    found = next(chat for chat in listed if chat["chat_id"] == direct["chat_id"])
    assert (found["title"], found["members"], found["sequence_counter"]) == ("ann, ben", 2, 0)


def test_members_are_changed_by_entries(shared: Shared) -> None:
    """Adding and removing each take the next number of the log."""
    group(shared, "Tea")
    shared.succeed("user", "add", "cas")
    changes = [("add", "Tea", "cas", "--role", "admin"), ("remove", "TEA", "ben")]
    made = [shared.succeed("chat", *change, "--json").json["sequence"] for change in changes]
    members = shared.succeed("chat", "show", "Tea", "--json").json["members"]
    assert made == [2, 3]
    assert {m["username"]: (m["role"], m["joined_sequence"]) for m in members} == {
        "ann": ("owner", 0),
        "cas": ("admin", 2),
    }


def test_a_lost_counter_is_told_and_recovered(shared: Shared) -> None:
    """check fails and says what to do; a dry run changes nothing; --apply repairs it."""
    chat_id = group(shared, "Jam")
    shared.delete("chat_counters", chat_id=chat_id)
    check = shared.run("check", "Jam")
    assert (check.status, f"parley recover {chat_id}" in check.stdout) == (1, True)
    assert "would write: sequence_counter = 1" in shared.succeed("recover", "Jam").stdout
    assert shared.item("chat_counters", chat_id=chat_id) == {}
    assert "Counter recovered" in shared.succeed("recover", "--all", "--apply").stderr
    assert shared.item("chat_counters", chat_id=chat_id)["recovered_from_sequence"] == 1
    assert "All 20 invariants hold." in shared.succeed("check").stdout


def test_a_counter_behind_its_log_needs_a_person(shared: Shared) -> None:
    """It is never overwritten, and what the sentence advises works without deleting a row."""
    chat_id = group(shared, "Cake")
    shared.set("chat_counters", {"chat_id": chat_id}, "sequence_counter", 0)
    run = shared.run("recover", "Cake", "--apply")
    assert run.status == 1
    assert "Counter exists with value 0 but max message sequence is 1" in run.stderr
    [advice] = [line for line in run.stderr.splitlines() if "aws dynamodb " in line]
    verb, *words = shlex.split(advice.partition("aws dynamodb ")[2])
    asked = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    assert verb == "update-item"
    other_program().update_item(
        TableName=asked["table-name"],
        Key=json.loads(asked["key"]),
        UpdateExpression=asked["update-expression"],
        ConditionExpression=asked["condition-expression"],
    )
    assert shared.item("chat_counters", chat_id=chat_id)["created_at"]
    assert "Counter recovered" in shared.succeed("recover", "Cake", "--apply").stderr
    assert shared.item("chat_counters", chat_id=chat_id)["sequence_counter"] == 1


def test_a_report_names_what_was_looked_for(shared: Shared) -> None:
    """What DynamoDB keeps by its nature is not claimed to have been checked."""
    report = shared.run("check", "--json").json
    assert report["chats"] >= 1
    assert (len(report["invariants"]), "file_integrity" in report["invariants"]) == (22, False)


def test_counters_in_redis_are_recovered(tmp_path: Path) -> None:
    """With Redis as allocator, check and recover look at its numbers; what was lost there is put back."""
    shared = peopled(Shared(tmp_path, "two_phase", "redis"))
    chat_id = group(shared, "Tea")
    forget_in_redis(f"seq:{chat_id}")
    assert "counter_must_exist" in shared.run("check").stdout
    assert shared.succeed("recover", "--all", "--apply", "--json").json["chats"][0]["sequence_counter"] == 1
    assert shared.item("chats", chat_id=chat_id)["recovered_from_sequence"] == 1
    assert shared.run("check").status == 0


def forget_in_redis(key: str) -> None:
    with redis.Redis.from_url(service_environment("redis")["PARLEY_REDIS_URL"]) as client:
        assert client.delete(key) == 1


@pytest.mark.parametrize("command", [("check",), ("user", "add", "ann"), ("chat", "list")])
def test_missing_tables_are_one_sentence(command: tuple[str, ...], tmp_path: Path) -> None:
    """Without tables a command says how to make them, with status 1 and no traceback."""
    run = Shared(tmp_path).run(*command)
    assert run.status == 1
    assert "parley store init" in run.stderr + run.stdout
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("token", "zoe"), "parley user add zoe"),
        (("chat", "show", "Nothing"), "parley chat list"),
        (("user", "add", "ann"), "taken"),
    ],
)
def test_a_mistake_is_a_sentence(arguments: tuple[str, ...], says: str, shared: Shared) -> None:
    """A person's mistake is told without a traceback."""
    run = shared.run(*arguments)
    assert (run.status, says in run.stderr, "Traceback" in run.stderr) == (1, True, False)
