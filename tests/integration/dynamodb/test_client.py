"""The client against a real DynamoDB Local."""

import asyncio

import pytest

from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.store.dynamodb.driver import (
    ConditionCheck,
    ConditionFailed,
    Delete,
    Dynamo,
    Fault,
    Item,
    Put,
    TransactionCanceled,
    UpdateItem,
)
from parley.store.dynamodb.schema import Table
from parley.testing.dynamodb_faults import (
    RandomFaults,
    conflict,
    throttle,
    timeout_done,
    timeout_not_done,
    unprocessed,
)
from tests.harness.fault_plans import Planned
from tests.integration.dynamodb.conftest import OpenDynamo

LOG = Table("messages", "chat_id", "sequence", range_kind="N", indexes=(("unpublished", "N"),))
NEW = "attribute_not_exists(chat_id)"
KEY: Item = {"chat_id": "c", "sequence": 1}


async def make(dynamo: Dynamo, entries: int = 0) -> None:
    await dynamo.call("CreateTable", LOG.request(dynamo.table(LOG.name)))
    await dynamo.batch_put("messages", [{"chat_id": "c", "sequence": n} for n in range(1, entries + 1)])


def sequences(items: list[Item]) -> list[object]:
    return [item["sequence"] for item in items]


async def test_an_item_is_read_as_it_was_put(open_dynamo: OpenDynamo) -> None:
    """Every type of value comes back from the real thing, U+0000 and large numbers included."""
    item: Item = {**KEY, "text": "é\0🜁", "big": 2**63 - 1, "bytes": b"\0\xff", "yes": True, "none": None}
    async with open_dynamo() as dynamo:
        await make(dynamo)
        await dynamo.put("messages", item)
        assert await dynamo.get("messages", KEY) == item
        assert await dynamo.get("messages", {**KEY, "sequence": 2}) is None


async def test_a_condition_guards_a_write(open_dynamo: OpenDynamo) -> None:
    """A put and an update whose condition fails show what stood there and change nothing."""
    async with open_dynamo() as dynamo:
        await make(dynamo, 1)
        with pytest.raises(ConditionFailed) as put:
            await dynamo.put("messages", KEY, condition=NEW)
        with pytest.raises(ConditionFailed) as updated:
            await dynamo.update("messages", KEY, "SET a = :n", {":n": 7}, condition="a = :n")
        assert put.value.item == updated.value.item == KEY
        assert await dynamo.get("messages", KEY) == KEY


async def test_an_update_returns_what_it_was_asked_for(open_dynamo: OpenDynamo) -> None:
    """The new attributes of an update come with its answer."""
    async with open_dynamo() as dynamo:
        await make(dynamo)
        assert await dynamo.update("messages", KEY, "ADD n :n", {":n": 5}, returns="UPDATED_NEW") == {"n": 5}
        assert await dynamo.update("messages", KEY, "ADD n :n", {":n": 2}, returns="ALL_NEW") == {
            **KEY,
            "n": 7,
        }
        assert await dynamo.update("messages", KEY, "REMOVE n") == {}


async def test_a_log_is_paged_in_both_directions(open_dynamo: OpenDynamo) -> None:
    """A query follows the range key up or down, page after page."""
    async with open_dynamo() as dynamo:
        await make(dynamo, 60)
        values: Item = {":c": "c", ":n": 10}
        ask = ("messages", "chat_id = :c AND #s > :n", values)
        names = {"#s": "sequence"}
        first = await dynamo.query(*ask, names=names, limit=30)
        last = await dynamo.query(*ask, names=names, limit=30, start=first.next_key)
        assert sequences(first.items + last.items) == list(range(11, 61))
        assert last.next_key is None
        assert sequences((await dynamo.query(*ask, names=names, forward=False, limit=2)).items) == [60, 59]
        assert sequences(await dynamo.query_all(*ask, names=names, limit=7)) == list(range(11, 61))
        assert await dynamo.count(*ask, names=names, maximum=1000) == 50
        assert await dynamo.count(*ask, names=names, maximum=20) == 20


async def test_any_number_of_keys_is_found(open_dynamo: OpenDynamo) -> None:
    """More keys than one request takes are all found, and those that do not exist are left out."""
    async with open_dynamo() as dynamo:
        await make(dynamo, 230)
        keys: list[Item] = [{"chat_id": "c", "sequence": n} for n in range(1, 300)]
        assert sorted(map(str, sequences(await dynamo.batch_get("messages", keys)))) == sorted(
            map(str, range(1, 231))
        )
        await dynamo.batch_delete("messages", keys)
        assert (await dynamo.scan("messages")).items == []


async def test_a_sparse_index_holds_only_what_has_its_attribute(open_dynamo: OpenDynamo) -> None:
    """An item is in an index as long as it has the attribute that the index is over."""
    async with open_dynamo() as dynamo:
        await make(dynamo, 3)
        await dynamo.update("messages", KEY, "SET unpublished = :n", {":n": 4})
        found = await dynamo.query("messages", "unpublished = :n", {":n": 4}, index="unpublished")
        assert found.items == [{**KEY, "unpublished": 4}]
        await dynamo.update("messages", KEY, "REMOVE unpublished")
        assert (await dynamo.scan("messages", index="unpublished")).items == []


async def test_a_transaction_is_all_or_nothing(open_dynamo: OpenDynamo, prefix: str) -> None:
    """One condition that fails cancels every action, with a reason for each and the item in the way."""
    async with open_dynamo() as dynamo:
        await make(dynamo, 2)
        with pytest.raises(TransactionCanceled) as canceled:
            await dynamo.transact(
                [
                    Put("messages", {"chat_id": "c", "sequence": 3}, NEW),
                    Put("messages", KEY, NEW),
                    ConditionCheck("messages", {"chat_id": "c", "sequence": 2}, NEW),
                ],
                prefix,
            )
        reasons = canceled.value.reasons
        assert [reason.code for reason in reasons] == [
            "None",
            "ConditionalCheckFailed",
            "ConditionalCheckFailed",
        ]
        assert [reason.item for reason in reasons] == [None, KEY, {**KEY, "sequence": 2}]
        assert await dynamo.get("messages", {"chat_id": "c", "sequence": 3}) is None


async def test_every_kind_of_action_is_done(open_dynamo: OpenDynamo, prefix: str) -> None:
    """A transaction puts, updates, deletes and checks."""
    async with open_dynamo() as dynamo:
        await make(dynamo, 3)
        keys: list[Item] = [{"chat_id": "c", "sequence": n} for n in range(1, 5)]
        await dynamo.transact(
            [
                Delete("messages", keys[0], "chat_id = :c", {":c": "c"}),
                UpdateItem("messages", keys[1], "SET #a = :a", {":a": "x"}, names={"#a": "a"}),
                ConditionCheck("messages", keys[2], "attribute_exists(chat_id)"),
                Put("messages", keys[3]),
            ],
            prefix,
        )
        left = await dynamo.query_all("messages", "chat_id = :c", {":c": "c"})
        assert left == [{**keys[1], "a": "x"}, keys[2], keys[3]]


async def test_a_hundred_actions_are_one_transaction(open_dynamo: OpenDynamo, prefix: str) -> None:
    """As many actions as DynamoDB takes are written together, in one request."""
    async with open_dynamo() as dynamo:
        await make(dynamo)
        actions = [Put("messages", {"chat_id": "c", "sequence": n}, NEW) for n in range(1, 101)]
        await dynamo.transact(actions, prefix)
        assert await dynamo.count("messages", "chat_id = :c", {":c": "c"}, maximum=1000) == 100
        assert dynamo.capacity.requests["TransactWriteItems"] == 1


async def test_a_large_transaction_is_sent(open_dynamo: OpenDynamo, prefix: str) -> None:
    """A body of several megabytes goes through."""
    async with open_dynamo() as dynamo:
        await make(dynamo)
        text = "x" * 300_000
        await dynamo.transact(
            [Put("messages", {"chat_id": "c", "sequence": n, "text": text}) for n in range(1, 11)], prefix
        )
        found = await dynamo.query_all("messages", "chat_id = :c", {":c": "c"})
        assert sum(len(str(item["text"])) for item in found) == 3_000_000


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done])
async def test_an_open_transaction_is_resolved_by_its_token(
    open_dynamo: OpenDynamo, prefix: str, fault: Fault
) -> None:
    """The same transaction with the same token is done once, whether its lost attempt was done or not."""
    async with open_dynamo(Planned(TransactWriteItems=[fault, None])) as dynamo:
        await make(dynamo)
        actions = [UpdateItem("messages", KEY, "ADD n :one", {":one": 1})]
        with pytest.raises(OutcomeUnknown):
            await dynamo.transact(actions, prefix)
        await dynamo.transact(actions, prefix)
        assert await dynamo.get("messages", KEY) == {**KEY, "n": 1}


async def test_another_transaction_with_the_same_token_is_refused(
    open_dynamo: OpenDynamo, prefix: str
) -> None:
    """A token belongs to one request: whoever reuses it for another is told, and nothing is written."""
    async with open_dynamo() as dynamo:
        await make(dynamo)
        await dynamo.transact([Put("messages", KEY)], prefix)
        with pytest.raises(StoreUnavailable, match="IdempotentParameterMismatch"):
            await dynamo.transact([Put("messages", {**KEY, "sequence": 2})], prefix)
        assert await dynamo.get("messages", {**KEY, "sequence": 2}) is None


async def test_a_write_gets_through_conflicts_and_throttling(open_dynamo: OpenDynamo, prefix: str) -> None:
    """A transaction that is refused for others' sake is written once when its turn comes."""
    faults = Planned(TransactWriteItems=[conflict, throttle, conflict], PutItem=[conflict, throttle])
    async with open_dynamo(faults) as dynamo:
        await make(dynamo)
        await dynamo.transact([UpdateItem("messages", KEY, "ADD n :one", {":one": 1})], prefix)
        await dynamo.put("messages", {**KEY, "sequence": 2})
        assert await dynamo.get("messages", KEY) == {**KEY, "n": 1}
        assert dynamo.capacity.retries == {"TransactWriteItems": 3, "PutItem": 2}


async def test_a_batch_gets_through_in_parts(open_dynamo: OpenDynamo) -> None:
    """Batches of which a part is left are asked for again until everything is done."""
    faults = Planned(BatchWriteItem=[unprocessed] * 3, BatchGetItem=[unprocessed] * 4)
    async with open_dynamo(faults) as dynamo:
        await make(dynamo, 30)
        keys: list[Item] = [{"chat_id": "c", "sequence": n} for n in range(1, 31)]
        assert len(await dynamo.batch_get("messages", keys)) == 30


@pytest.mark.timeout(120)
async def test_a_counter_counts_through_every_fault(open_dynamo: OpenDynamo, prefix: str) -> None:
    """Writers that resend what is open with its token count exactly, whatever DynamoDB throws at them."""
    dice = RandomFaults(
        {
            "throttle": 0.1,
            "transact_conflict": 0.2,
            "timeout_done": 0.1,
            "timeout_not_done": 0.1,
            "server_error": 0.1,
        },
        seed=7,
    )
    async with open_dynamo(dice) as dynamo:
        await make(dynamo)

        async def add(token: str) -> None:
            while True:
                try:
                    return await dynamo.transact(
                        [UpdateItem("messages", KEY, "ADD n :one", {":one": 1})], token
                    )
                except (OutcomeUnknown, StoreUnavailable):
                    await asyncio.sleep(0)

        await asyncio.gather(*(add(f"{prefix}{n}") for n in range(40)))
        assert await dynamo.get("messages", KEY) == {**KEY, "n": 40}


async def test_a_missing_table_is_a_sentence(open_dynamo: OpenDynamo, prefix: str) -> None:
    """Whoever reads or writes a table that is not there is told which one, and what makes it."""
    async with open_dynamo() as dynamo:
        for work in (
            dynamo.get("chats", {"chat_id": "c"}),
            dynamo.transact([Put("chats", {"chat_id": "c"})], "t"),
        ):
            with pytest.raises(StoreUnavailable, match=f"no table {prefix}chats: run parley store init"):
                await work
