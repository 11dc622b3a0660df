"""The tables: made once, recognised by their version, and refused in one sentence."""

import asyncio
from pathlib import Path

import pytest

from parley.errors import ConfigError
from parley.store.dynamodb.driver import Dynamo, Item
from parley.store.dynamodb.schema import MARK, TABLES, VERSION, check_tables, create_tables
from tests.integration.cli.running import Run, parley
from tests.integration.dynamodb.conftest import REGION, OpenDynamo
from tests.services import service_environment


async def description(dynamo: Dynamo, name: str) -> dict[str, object]:
    found: dict[str, object] = (await dynamo.call("DescribeTable", {"TableName": dynamo.table(name)}))[
        "Table"
    ]
    return found


async def test_tables_are_made_once(open_dynamo: OpenDynamo) -> None:
    """All tables are made at the first time and none at the second, and then a server can start."""
    async with open_dynamo() as dynamo:
        names = {dynamo.table(name) for name in TABLES}
        assert set(await create_tables(dynamo)) == names
        assert await create_tables(dynamo) == []
        await check_tables(dynamo)


async def test_two_operators_at_once_make_each_table_once(open_dynamo: OpenDynamo) -> None:
    """Whoever comes second waits for what the first one made, and nothing is made twice."""
    async with open_dynamo() as one, open_dynamo() as other:
        made = await asyncio.gather(create_tables(one), create_tables(other))
        assert sorted([*made[0], *made[1]]) == sorted(one.table(name) for name in TABLES)
        await check_tables(other)


async def test_capacity_is_on_demand_and_keys_expire(open_dynamo: OpenDynamo) -> None:
    """Nobody has to plan capacity, and idempotency keys go by themselves."""
    async with open_dynamo() as dynamo:
        await create_tables(dynamo)
        messages = await description(dynamo, "messages")
        assert messages["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"  # type: ignore[index]
        keys = await dynamo.call("DescribeTimeToLive", {"TableName": dynamo.table("idempotency_keys")})
        assert keys["TimeToLiveDescription"] == {"AttributeName": "ttl", "TimeToLiveStatus": "ENABLED"}


async def test_what_an_emulator_cannot_is_told_once(open_dynamo: OpenDynamo) -> None:
    """That there is no point-in-time recovery here is said in one line, and everything is made."""
    lines: list[str] = []
    async with open_dynamo() as dynamo:
        await create_tables(dynamo, lines.append)
    assert sum("point-in-time recovery" in line for line in lines) == 1
    assert sum(line.endswith(": created") for line in lines) == len(TABLES)


async def test_missing_tables_are_a_sentence(open_dynamo: OpenDynamo, prefix: str) -> None:
    """Without tables a server does not start, and says where it looked and what to run."""
    async with open_dynamo() as dynamo:
        with pytest.raises(ConfigError, match=f"{prefix}.* in {REGION} .*run parley store init"):
            await check_tables(dynamo)


async def test_one_missing_table_is_named(open_dynamo: OpenDynamo, prefix: str) -> None:
    """A single table that is gone is found at the start, not at the first message."""
    async with open_dynamo() as dynamo:
        await create_tables(dynamo)
        await dynamo.call("DeleteTable", {"TableName": dynamo.table("direct_chats")})
        with pytest.raises(ConfigError, match=f"no table {prefix}direct_chats .*run parley store init"):
            await check_tables(dynamo)
        assert await create_tables(dynamo) == [f"{prefix}direct_chats"]
        await check_tables(dynamo)


async def test_a_newer_version_is_a_sentence(open_dynamo: OpenDynamo) -> None:
    """Tables of a version to come are neither used nor changed."""
    async with open_dynamo() as dynamo:
        await create_tables(dynamo)
        await dynamo.put("schema", {**MARK, "version": VERSION + 1})
        for use in (check_tables, create_tables):
            with pytest.raises(ConfigError, match="newer Parley"):
                await use(dynamo)
        assert await dynamo.get("schema", MARK) == {**MARK, "version": VERSION + 1}


async def of_version_1(dynamo: Dynamo) -> None:
    """Tables as the first version made them."""
    await create_tables(dynamo)
    await dynamo.call("DeleteTable", {"TableName": dynamo.table("records_contacts")})
    await dynamo.put("schema", {**MARK, "version": 1})


async def test_an_old_version_is_a_sentence(open_dynamo: OpenDynamo) -> None:
    """A server does not start on tables of an older version, and says what to run."""
    async with open_dynamo() as dynamo:
        await of_version_1(dynamo)
        with pytest.raises(ConfigError, match="have the old version 1: run parley store init"):
            await check_tables(dynamo)


async def test_an_old_version_is_raised(open_dynamo: OpenDynamo) -> None:
    """What an older version lacks is made, nothing else is touched, and then a server can start."""
    lines: list[str] = []
    async with open_dynamo() as dynamo:
        await of_version_1(dynamo)
        chat: Item = {"chat_id": "chat_1", "name": "Tea"}
        await dynamo.put("chats", chat)
        assert await create_tables(dynamo, lines.append) == [dynamo.table("records_contacts")]
        assert f"upgraded from version 1 to {VERSION}" in lines
        assert await dynamo.get("chats", {"chat_id": "chat_1"}) == chat
        await check_tables(dynamo)
        assert await create_tables(dynamo, lines.append) == []
        assert sum("upgraded" in line for line in lines) == 1


async def test_a_raise_that_was_cut_short_is_done_later(open_dynamo: OpenDynamo) -> None:
    """The mark comes last: while a table is missing no server starts, and init makes what is left."""
    async with open_dynamo() as dynamo:
        await of_version_1(dynamo)
        foreign = {
            "TableName": dynamo.table("records_contacts"),
            "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        }
        await dynamo.call("CreateTable", foreign)
        with pytest.raises(ConfigError, match="records_contacts has other keys"):
            await create_tables(dynamo)
        assert await dynamo.get("schema", MARK) == {**MARK, "version": 1}
        await dynamo.call("DeleteTable", {"TableName": dynamo.table("records_contacts")})
        await create_tables(dynamo)
        await check_tables(dynamo)


async def test_somebody_elses_table_is_left_alone(open_dynamo: OpenDynamo, prefix: str) -> None:
    """A table of the same name with other keys is told, with the setting that avoids it."""
    foreign = {
        "TableName": f"{prefix}chats",
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    }
    async with open_dynamo() as dynamo:
        await dynamo.call("CreateTable", foreign)
        with pytest.raises(ConfigError, match=f"{prefix}chats has other keys .*prefix"):
            await create_tables(dynamo)


async def test_an_unreachable_endpoint_is_a_sentence() -> None:
    """Where nothing listens, the operator is told the address and which keys to look at, at once."""
    dynamo = Dynamo("http://127.0.0.1:9", REGION)
    await dynamo.open()
    try:
        with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9 cannot be reached.*check dynamodb\.endpoint"):
            await check_tables(dynamo)
    finally:
        await dynamo.close()


def init(prefix: str, *arguments: str, **more: str) -> Run:
    environment = {
        **service_environment("dynamodb"),
        "PARLEY_STORE_ENGINE": "dynamodb",
        "PARLEY_DYNAMODB_REGION": REGION,
        "PARLEY_DYNAMODB_PREFIX": prefix,
        **more,
    }
    return parley("store", "init", *arguments, environment=environment)


def test_the_command_says_what_it_made(prefix: str) -> None:
    """`parley store init` tells each table that it made, and says when there was nothing to make."""
    first = init(prefix)
    assert first.status == 0, first.stderr
    assert f"{prefix}messages: created" in first.lines
    assert f"{len(TABLES)} tables created" in first.stderr
    assert "all tables already exist" in init(prefix).stderr
    assert init(prefix, "--json").json == {"made": [], "topics": []}


def test_the_command_refuses_an_engine_without_tables(prefix: str) -> None:
    """Nobody makes tables in an account of AWS by a command meant for a file."""
    run = init(prefix, PARLEY_STORE_ENGINE="sqlite")
    assert run.status == 1
    assert "store.engine is sqlite, which needs no tables" in run.stderr


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"PARLEY_DYNAMODB_ENDPOINT": "http://127.0.0.1:9"}, "http://127.0.0.1:9 cannot be reached"),
        ({"PARLEY_DYNAMODB_REGION": "not a region"}, "dynamodb.region must be a region's name"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no AWS credentials were found"),
    ],
)
def test_a_bad_setting_is_one_sentence(prefix: str, tmp_path: Path, wrong: dict[str, str], says: str) -> None:
    """A setting that cannot work ends the command with status 1, a sentence and no traceback."""
    nowhere = {
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    run = init(prefix, **nowhere, **wrong)
    assert run.status == 1
    assert says in run.stderr
    assert "Traceback" not in run.stderr
    assert len(run.stderr.splitlines()) == 1
