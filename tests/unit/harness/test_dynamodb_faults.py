"""The injected faults of DynamoDB do what their names say, and nothing that it could not do."""

import asyncio
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

from parley.store.dynamodb.driver import Request, Response
from parley.testing.dynamodb_faults import (
    REACH,
    VARIABLE,
    RandomFaults,
    conflict,
    faults_from,
    server_error_done,
    throttle,
    timeout_done,
    timeout_not_done,
    unprocessed,
)
from tests.harness.clock import run_virtual
from tests.harness.fault_plans import Planned

KEYS = [{"chat_id": {"S": letter}} for letter in "abcde"]
TRANSACTION = {
    "TransactItems": [
        {"Put": {"Item": {"sequence": {"N": str(n)}}, "ConditionExpression": "attribute_not_exists(chat_id)"}}
        for n in range(1, 9)
    ]
}


class Emulator:
    """Remembers what reached it, and answers with it."""

    def __init__(self, **body: Any) -> None:
        self.body = body
        self.reached: list[str] = []

    async def send(self, operation: str, request: Request) -> Response:
        self.reached.append(operation)
        return Response(200, {**self.body, "asked": request})


async def test_a_refusal_reaches_nothing() -> None:
    """Throttling and conflicts are told without anything being done."""
    emulator = Emulator()
    for fault in (throttle, conflict):
        assert (await fault("PutItem", {}, emulator.send)).status == 400
    assert not emulator.reached


async def test_a_conflict_has_a_reason_for_each_action() -> None:
    """A canceled transaction names a reason for every one of its actions, as DynamoDB does."""
    answer = await conflict("TransactWriteItems", TRANSACTION, Emulator().send)
    codes = [reason["Code"] for reason in answer.body["CancellationReasons"]]
    assert codes == ["TransactionConflict"] + ["None"] * 7


@pytest.mark.parametrize(("fault", "reached"), [(timeout_done, ["PutItem"]), (timeout_not_done, [])])
async def test_a_timeout_is_done_or_not(fault: Any, reached: list[str]) -> None:
    """The two timeouts look the same and differ in what was done."""
    emulator = Emulator()
    with pytest.raises(TimeoutError):
        await fault("PutItem", {}, emulator.send)
    assert emulator.reached == reached


async def test_a_failed_answer_may_follow_a_done_write() -> None:
    """A 500 can hide a write that was done."""
    emulator = Emulator()
    assert (await server_error_done("PutItem", {}, emulator.send)).status == 500
    assert emulator.reached == ["PutItem"]


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_batch_is_left_in_part(count: int) -> None:
    """What was done and what is left are the whole batch, and something is always left."""
    whole: Request = {"RequestItems": {"t": {"Keys": KEYS[:count], "ConsistentRead": True}}}
    answer = await unprocessed("BatchGetItem", whole, Emulator().send)
    left = answer.body["UnprocessedKeys"]["t"]["Keys"]
    done = answer.body["asked"]["RequestItems"]["t"]["Keys"] if "asked" in answer.body else []
    assert done + left == KEYS[:count]
    assert left


async def test_writes_are_left_in_part() -> None:
    """The rest of a batch write comes back in the form in which it was asked."""
    whole: Request = {"RequestItems": {"t": [{"PutRequest": 1}, {"PutRequest": 2}]}}
    answer = await unprocessed("BatchWriteItem", whole, Emulator().send)
    assert answer.body["UnprocessedItems"] == {"t": [{"PutRequest": 2}]}


def test_a_plan_is_followed() -> None:
    """Each operation meets its own faults in order, and then none."""
    faults = Planned(PutItem=[throttle, None, timeout_done])
    assert [faults("PutItem", {}) for _ in range(4)] == [throttle, None, timeout_done, None]
    assert faults("Query", {}) is None


def test_the_dice_fall_as_often_as_they_were_told() -> None:
    """A share is a share of the requests that the fault can befall, and of no others."""
    dice = RandomFaults({"throttle": 0.2, "transact_conflict": 0.5}, seed=7)
    met = Counter(getattr(dice("TransactWriteItems", {}), "__name__", "none") for _ in range(2_000))
    assert 300 < met["throttle"] < 500
    assert 700 < met["conflict"] < 900
    assert not any(dice("DescribeTable", {}) for _ in range(100))


def test_the_environment_sets_the_dice() -> None:
    """A process is told its faults by a variable, and the same seed brings the same ones."""
    told = {VARIABLE: "transact_conflict:0.5,timeout_done:0.1,seed:7"}
    first, second = faults_from(told), faults_from(told)
    assert first is not None
    assert second is not None
    course = [first("PutItem", {}) for _ in range(200)]
    assert course == [second("PutItem", {}) for _ in range(200)]
    assert len(set(course)) > 1


def test_a_late_store_does_everything_and_answers_later() -> None:
    """Requests arrive at once; whatever is answered, lost answers too, takes so much longer."""

    async def scenario() -> None:
        now, emulator = asyncio.get_running_loop().time, Emulator()
        for told, error in (("late_ms:400", None), ("late_ms:400,timeout_done:1", TimeoutError)):
            faults = faults_from({VARIABLE: told})
            assert faults is not None
            late, began = faults("PutItem", {}), now()
            assert late is not None
            with pytest.raises(error) if error else nullcontext():
                await late("PutItem", {}, emulator.send)
            assert now() - began == pytest.approx(0.4)
            assert faults("DescribeTable", {}) is None
        assert emulator.reached == ["PutItem", "PutItem"]

    run_virtual(lambda _: scenario())


def test_a_quiet_environment_injects_nothing() -> None:
    """Without the variable there are no faults at all."""
    assert faults_from({}) is None


def test_an_unknown_fault_is_refused() -> None:
    """A misspelt fault would test nothing, so it is an error."""
    with pytest.raises(ValueError, match="is not one of"):
        faults_from({VARIABLE: "trottle:0.5"})


async def read_during_a_transaction(seed: int) -> tuple[int, int]:
    """How many of the transaction's 8 items a page shows that is read while it lasts, and one after it."""
    committed = asyncio.Event()
    items = [action["Put"]["Item"] for action in TRANSACTION["TransactItems"]]
    old = {"sequence": {"N": "0"}}
    dice = RandomFaults({"torn_page": 1.0}, seed)

    async def commit(operation: str, request: Request) -> Response:
        await committed.wait()
        return Response(200, {})

    async def page(operation: str, request: Request) -> Response:
        return Response(200, {"Items": [old, *items]})

    async def shown() -> int:
        fault = dice("Query", {})
        assert fault is not None
        found = (await fault("Query", {}, page)).body["Items"]
        assert found[0] == old
        return len(found) - 1

    watch = dice("TransactWriteItems", TRANSACTION)
    assert watch is not None
    writing = asyncio.ensure_future(watch("TransactWriteItems", TRANSACTION, commit))
    await asyncio.sleep(0)
    during = await shown()
    committed.set()
    await writing
    return during, await shown()


async def test_a_page_is_torn_only_while_a_transaction_lasts() -> None:
    """A page misses items of a transaction under way, never older ones, and none once it is answered."""
    courses = [await read_during_a_transaction(seed) for seed in range(10)]
    assert {after for _, after in courses} == {8}
    assert {during for during, _ in courses} - {0, 8}


def test_every_fault_befalls_something() -> None:
    """No fault is promised that no operation can meet."""
    assert all(REACH.values())
