"""The client's requests and its patience, against scripted answers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from parley.errors import ConfigError, OutcomeUnknown, StoreError, StoreUnavailable
from parley.store.dynamodb.driver import (
    DEADLINE_SECONDS,
    Action,
    ConditionCheck,
    ConditionFailed,
    Delete,
    Dynamo,
    Put,
    Response,
    TransactionCanceled,
    UpdateItem,
)
from parley.store.dynamodb.driver.client import ACTIONS_MAX, ATTEMPTS_MAX, endpoint_of
from parley.telemetry import Metrics
from parley.testing.dynamodb_faults import (
    conflict,
    server_error_not_done,
    throttle,
    timeout_not_done,
)
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.dynamodb.scripted import OK, Script, Step, refused, scripted

Use = Callable[[Dynamo], Awaitable[object]]

READS: dict[str, Use] = {
    "get": lambda dynamo: dynamo.get("chats", {"chat_id": "c"}),
    "batch_get": lambda dynamo: dynamo.batch_get("chats", [{"chat_id": "c"}]),
    "query": lambda dynamo: dynamo.query("messages", "chat_id = :c", {":c": "c"}),
    "scan": lambda dynamo: dynamo.scan("chats"),
}
WRITES: dict[str, Use] = {
    "put": lambda dynamo: dynamo.put("chats", {"chat_id": "c"}),
    "update": lambda dynamo: dynamo.update("chats", {"chat_id": "c"}, "SET a = :a", {":a": 1}),
    "batch_put": lambda dynamo: dynamo.batch_put("chats", [{"chat_id": "c"}]),
    "batch_delete": lambda dynamo: dynamo.batch_delete("chats", [{"chat_id": "c"}]),
    "transact": lambda dynamo: dynamo.transact([Put("chats", {"chat_id": "c"})], "token"),
}
FULL = Response(200, {"Items": [], "Responses": {}, "Item": {}})


@pytest.mark.parametrize("use", READS.values(), ids=READS)
@pytest.mark.parametrize("step", [throttle, timeout_not_done, server_error_not_done])
async def test_a_read_is_tried_again(use: Use, step: Step) -> None:
    """A read passes over throttling, timeouts and failures of the server."""
    script = Script(step, step, FULL)
    async with scripted(script) as dynamo:
        await use(dynamo)
        assert sum(dynamo.capacity.retries.values()) == 2
    assert len(script.asked) == 3


@pytest.mark.parametrize("use", WRITES.values(), ids=WRITES)
async def test_a_throttled_write_is_tried_again(use: Use) -> None:
    """A write that was certainly not done is sent again as it was."""
    script = Script(throttle, throttle, OK)
    async with scripted(script) as dynamo:
        await use(dynamo)
    assert script.asked[0] == script.asked[1] == script.asked[2]


@pytest.mark.parametrize("use", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("step", [timeout_not_done, server_error_not_done])
async def test_an_open_write_is_never_sent_twice(use: Use, step: Step) -> None:
    """A write that may be done is left to its caller at once."""
    script = Script(step, OK)
    async with scripted(script) as dynamo:
        with pytest.raises(OutcomeUnknown):
            await use(dynamo)
    assert len(script.asked) == 1


async def test_a_conflict_of_transactions_is_tried_again() -> None:
    """A transaction that met another one is sent again with the same token."""
    script = Script(conflict, conflict, OK)
    async with scripted(script) as dynamo:
        await dynamo.transact([Put("chats", {"chat_id": "c"}), Put("chats", {"chat_id": "d"})], "token")
    assert [request["ClientRequestToken"] for _, request in script.asked] == ["token"] * 3


async def test_patience_ends() -> None:
    """A write that is throttled for ever is given up after a stated number of attempts."""
    script = Script(throttle)
    async with scripted(script) as dynamo:
        with pytest.raises(StoreUnavailable, match="busy"):
            await dynamo.put("chats", {"chat_id": "c"})
    assert len(script.asked) == ATTEMPTS_MAX


def test_a_deadline_ends_patience() -> None:
    """However long the dice make the pauses, a read is given up within its deadline."""

    async def scenario(clock: VirtualClock) -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with scripted(Script(timeout_not_done), chance=1.0) as dynamo:
            with pytest.raises(StoreUnavailable, match="did not answer GetItem"):
                await dynamo.get("chats", {"chat_id": "c"})
        return loop.time() - started

    assert 1 < run_virtual(scenario) <= DEADLINE_SECONDS


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refused("ConditionalCheckFailedException"), ConditionFailed),
        (refused("ValidationException"), StoreUnavailable),
        (refused("ResourceNotFoundException"), StoreUnavailable),
        (
            refused("TransactionCanceledException", CancellationReasons=[{"Code": "ConditionalCheckFailed"}]),
            TransactionCanceled,
        ),
    ],
)
async def test_a_refusal_is_not_tried_again(answer: Response, error: type[StoreError]) -> None:
    """What DynamoDB refuses is raised after one request."""
    script = Script(answer, OK)
    async with scripted(script) as dynamo:
        with pytest.raises(error):
            await dynamo.put("chats", {"chat_id": "c"})
    assert len(script.asked) == 1


async def test_what_is_left_of_a_batch_is_asked_again() -> None:
    """Keys that DynamoDB did not get to are asked for until it did."""
    left = {"p_chats": {"Keys": [{"chat_id": {"S": "d"}}], "ConsistentRead": True}}
    first = Response(200, {"Responses": {"p_chats": [{"chat_id": {"S": "c"}}]}, "UnprocessedKeys": left})
    last = Response(200, {"Responses": {"p_chats": [{"chat_id": {"S": "d"}}]}, "UnprocessedKeys": {}})
    script = Script(first, last)
    async with scripted(script) as dynamo:
        found = await dynamo.batch_get("chats", [{"chat_id": "c"}, {"chat_id": "d"}])
    assert [item["chat_id"] for item in found] == ["c", "d"]
    assert script.asked[1][1]["RequestItems"] == left


async def test_a_batch_that_is_never_done_is_given_up() -> None:
    """A batch write whose rest is never taken ends as an open outcome, for a part of it is written."""
    left = Response(200, {"UnprocessedItems": {"p_chats": [{}]}})
    async with scripted(Script(left)) as dynamo:
        with pytest.raises(OutcomeUnknown):
            await dynamo.batch_put("chats", [{"chat_id": "c"}])


@pytest.mark.parametrize(("keys", "requests"), [(0, []), (100, [100]), (250, [100, 100, 50])])
async def test_keys_are_asked_for_by_the_hundred(keys: int, requests: list[int]) -> None:
    """Any number of keys is divided as DynamoDB demands."""
    script = Script(FULL)
    async with scripted(script) as dynamo:
        await dynamo.batch_get("messages", [{"chat_id": "c", "sequence": n} for n in range(keys)])
    assert [len(asked["RequestItems"]["p_messages"]["Keys"]) for _, asked in script.asked] == requests


async def test_items_are_put_by_twenty_five() -> None:
    """Any number of items is divided as DynamoDB demands."""
    script = Script(OK)
    async with scripted(script) as dynamo:
        await dynamo.batch_put("users", [{"user_id": str(n)} for n in range(60)])
    assert [len(asked["RequestItems"]["p_users"]) for _, asked in script.asked] == [25, 25, 10]


async def test_one_failing_chunk_fails_the_batch() -> None:
    """The first failure of a chunk is raised as itself, and the others are ended."""
    script = Script(OK, refused("ValidationException"), timeout_not_done)
    async with scripted(script) as dynamo:
        with pytest.raises(StoreError):
            await dynamo.batch_put("users", [{"user_id": str(n)} for n in range(1000)])


async def test_counting_stops_at_its_maximum() -> None:
    """No more pages are read than the maximum needs."""
    page = Response(200, {"Count": 40, "LastEvaluatedKey": {"chat_id": {"S": "c"}}})
    script = Script(page)
    async with scripted(script) as dynamo:
        assert await dynamo.count("chat_memberships", "chat_id = :c", {":c": "c"}, maximum=80) == 80
    assert [asked["Limit"] for _, asked in script.asked] == [80, 40]


async def test_an_index_is_never_asked_for_consistency() -> None:
    """DynamoDB refuses a consistent read of an index, so none is asked for."""
    script = Script(Response(200, {"Items": []}))
    async with scripted(script) as dynamo:
        await dynamo.scan("chats", index="unpublished")
        await dynamo.scan("chats")
    assert [asked["ConsistentRead"] for _, asked in script.asked] == [False, True]


async def test_a_transaction_says_everything() -> None:
    """Each action carries its table with the prefix, and a conditional one asks for what stood there."""
    script = Script(OK)
    actions: list[Action] = [
        Put("messages", {"sequence": 1}, "attribute_not_exists(chat_id)"),
        UpdateItem("chats", {"chat_id": "c"}, "SET #h = :h", {":h": 1}, "#h = :old", {"#h": "head"}),
        Delete("users", {"user_id": "u"}),
        ConditionCheck("chats", {"chat_id": "d"}, "head = :h", {":h": 2}),
    ]
    async with scripted(script) as dynamo:
        await dynamo.transact(actions, "token")
    [(operation, request)] = script.asked
    put, update, delete, check = request["TransactItems"]
    assert operation == "TransactWriteItems"
    assert put["Put"]["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert update["Update"]["ExpressionAttributeNames"] == {"#h": "head"}
    assert delete["Delete"] == {"TableName": "p_users", "Key": {"user_id": {"S": "u"}}}
    assert check["ConditionCheck"]["ExpressionAttributeValues"] == {":h": {"N": "2"}}


@pytest.mark.parametrize(("actions", "token"), [(0, "t"), (ACTIONS_MAX + 1, "t"), (1, ""), (1, "t" * 37)])
async def test_an_impossible_transaction_is_not_sent(actions: int, token: str) -> None:
    """What DynamoDB cannot take is an error of the caller before anything is sent."""
    script = Script(OK)
    async with scripted(script) as dynamo:
        with pytest.raises(ValueError, match="actions"):
            await dynamo.transact([Put("users", {"user_id": str(n)}) for n in range(actions)], token)
    assert not script.asked


async def test_requests_are_counted_for_the_operator() -> None:
    """Requests, retries and units appear among the metrics, by operation."""
    metrics = Metrics(lambda: 0)
    paid = Response(200, {"ConsumedCapacity": {"CapacityUnits": 2.0}})
    async with scripted(Script(throttle, paid), metrics=metrics) as dynamo:
        await dynamo.put("chats", {"chat_id": "c"})
    text = metrics.text().decode()
    assert 'parley_dynamodb_requests_total{operation="PutItem"} 2.0' in text
    assert 'parley_dynamodb_retries_total{operation="PutItem"} 1.0' in text
    assert 'parley_dynamodb_units_total{operation="PutItem"} 2.0' in text


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (refused("UnrecognizedClientException"), "does not accept these credentials"),
        (refused("InvalidSignatureException"), r"region us-east-1"),
    ],
)
async def test_a_start_with_bad_credentials_is_a_sentence(answer: Response, says: str) -> None:
    """Credentials that are not accepted are told at start, with the region that they were tried in."""
    async with scripted(Script(answer)) as dynamo:
        with pytest.raises(ConfigError, match=says):
            await dynamo.check()


async def test_who_may_not_list_tables_may_start() -> None:
    """A role that may use the tables but not list them passes the check."""
    async with scripted(Script(refused("AccessDeniedException"))) as dynamo:
        await dynamo.check()


@pytest.mark.parametrize(
    ("endpoint", "region", "url"),
    [
        ("", "eu-central-1", "https://dynamodb.eu-central-1.amazonaws.com"),
        ("", "cn-north-1", "https://dynamodb.cn-north-1.amazonaws.com.cn"),
        ("http://127.0.0.1:8000/", "us-east-1", "http://127.0.0.1:8000"),
    ],
)
def test_an_endpoint_is_found(endpoint: str, region: str, url: str) -> None:
    """A given endpoint is used as it is, and AWS's own in the region otherwise."""
    assert endpoint_of(endpoint, region) == url


@pytest.mark.parametrize(
    ("endpoint", "region", "says"),
    [
        ("127.0.0.1:8000", "us-east-1", "dynamodb.endpoint"),
        ("http://host/path", "us-east-1", "dynamodb.endpoint"),
        ("", "eu west 1", "dynamodb.region"),
        ("", "evil.example/", "dynamodb.region"),
    ],
)
def test_a_bad_address_is_a_sentence(endpoint: str, region: str, says: str) -> None:
    """What cannot be an endpoint or a region is told by the name of its key."""
    with pytest.raises(ConfigError, match=says):
        endpoint_of(endpoint, region)
