"""What the benchmark on shared engines reckons by itself: units, batches, CPU for each hop."""

import pytest

from bench.dynamodb.hops import INGEST, WRITING, hop_row
from bench.dynamodb.nodes import FORWARD_FAILURES, FORWARDED, FORWARDED_BATCHES, STORED, TRANSACTIONS
from bench.dynamodb.remembering import Canceled, Memory
from bench.dynamodb.services import PREFIX
from bench.dynamodb.transactions import FULL, actions_of
from bench.dynamodb.two_nodes import forwarding_in
from bench.dynamodb.units import Meter
from bench.measuring import Stretch
from bench.rows import Row
from bench.scenarios.persist import rows_of
from bench.server import samples_in
from bench.targets import verdicts

CHAT_ID = "chat_" + "0" * 26


def stretch() -> Stretch:
    return Stretch(
        seconds=2,
        acks=1_000,
        delivered=0,
        cpu_seconds=1,
        generator_share=0.1,
        helpers_cores=0.5,
        others_cores=0,
        batch=40,
        ack_ms=(1, 2),
        delivery_ms=(0, 0),
    )


@pytest.mark.parametrize(("messages", "kilobytes"), [(1, 1), (FULL, 12)])
def test_a_transaction_is_charged_for_head_entries_and_keys_twice(messages: int, kilobytes: int) -> None:
    """Entries share an item, each has a key, the head is one more item, and a transaction counts double."""
    actions = actions_of(CHAT_ID, head=7, messages=messages)
    meter = Meter()
    meter("TransactWriteItems", {"TransactItems": [action.request("") for action in actions]})
    assert len(actions) == 1 + 1 + messages
    assert meter.total == 2 * (1 + kilobytes + messages)


def test_a_meter_lets_requests_pass() -> None:
    """Reading costs no write unit, and nothing is changed by counting."""
    meter = Meter()
    assert meter("GetItem", {"TableName": "sessions", "Key": {}}) is None
    assert meter.total == 0


def test_samples_are_read_with_their_labels_and_without() -> None:
    """One operation can be told from all of them."""
    samples = samples_in(f"# HELP x\n{TRANSACTIONS} 3.0\n{TRANSACTIONS.replace('Transact', 'Batch')} 4.0\n")
    assert samples[TRANSACTIONS] == 3
    assert samples["parley_dynamodb_requests_total"] == 7


def test_a_hop_costs_its_cpu_divided_by_the_messages() -> None:
    """A fifth of a core at a thousand messages a second is 200 microseconds each."""
    ingest = hop_row("hot", "hot chat", INGEST, cpu_rate=0.2, rate=1_000, stretch=stretch())
    assert (ingest.value, ingest.batch, ingest.p50_ms) == (200, 40, None)
    writing = hop_row("hot", "hot chat", WRITING, cpu_rate=0.1, rate=1_000, stretch=stretch())
    assert (writing.value, writing.batch, writing.p50_ms) == (100, None, 1)


def test_forwarding_is_told_as_a_share_and_a_size() -> None:
    """Half of the messages in calls of twenty."""
    told = forwarding_in({STORED: 1_000, FORWARDED: 500, FORWARDED_BATCHES: 25})
    assert told == ["50% of the messages were forwarded, 20.0 in a call"]
    assert len(forwarding_in({STORED: 1, FORWARD_FAILURES: 1})) == 2


def test_a_goal_may_be_about_the_batch() -> None:
    """Half of what is asked for is a missed goal, whatever the rate."""
    row = Row(name="shared_hot_chat", label="hot chat", unit="acks/s", value=1e6, batch=10)
    [verdict] = verdicts(row)
    assert (verdict.met, verdict.ratio, verdict.goal) == (False, 0.5, "≥ 20 in a batch")


async def nothing_behind(table: str, key: object) -> None:
    return None


def transaction(head: int, messages: int) -> dict[str, object]:
    actions = actions_of(CHAT_ID, head, messages)
    return {"TransactItems": [action.request(PREFIX) for action in actions]}


async def test_the_stand_in_remembers_a_log() -> None:
    """What transactions have put there is found again, in its order and between two positions."""
    memory = Memory(nothing_behind)
    await memory.answer("TransactWriteItems", transaction(0, 3))
    await memory.answer("TransactWriteItems", transaction(3, 2))
    await memory.answer("TransactWriteItems", transaction(5, 1))
    values = {":chat": {"S": CHAT_ID}, ":first": {"N": "2"}, ":last": {"N": "6"}}
    query = {"TableName": PREFIX + "messages", "ExpressionAttributeValues": values}
    found = await memory.answer("Query", query)
    assert found is not None
    assert [item["sequence"]["N"] for item in found["Items"]] == ["4", "6"]


async def test_the_stand_in_writes_a_position_once() -> None:
    """A second entry at a place cancels its transaction, and the reason names the place."""
    memory = Memory(nothing_behind)
    await memory.answer("TransactWriteItems", transaction(0, 1))
    with pytest.raises(Canceled) as canceled:
        await memory.answer("TransactWriteItems", transaction(0, 1))
    assert canceled.value.codes == ["None", "ConditionalCheckFailed", "None"]


async def test_the_stand_in_counts_on_from_what_is_behind_it() -> None:
    """An allocation adds to the counter that the store had, and then to its own."""

    async def fetch(table: str, key: dict[str, object]) -> dict[str, object]:
        return {**key, "sequence_counter": {"N": "10"}}

    memory = Memory(fetch)
    update = {
        "TableName": PREFIX + "chat_counters",
        "Key": {"chat_id": {"S": CHAT_ID}},
        "UpdateExpression": "ADD sequence_counter :count SET updated_at = :now",
        "ExpressionAttributeValues": {":count": {"N": "5"}, ":now": {"S": "now"}},
    }
    counters = [await memory.answer("UpdateItem", update) for _ in range(2)]
    assert [found and found["Attributes"]["sequence_counter"] for found in counters] == [
        {"N": "15"},
        {"N": "20"},
    ]


def test_the_persist_path_is_held_to_its_bounds() -> None:
    """Both rows are what the server timed, in milliseconds, and each has its own target."""
    metrics = {"sequence_allocation_latency_p99": 0.025, "parley_persist_seconds_p99": 0.2}
    allocation, persist = rows_of("shared_", "two_phase", 100, metrics, stretch())
    assert [(row.value, verdicts(row)[0].ratio) for row in (allocation, persist)] == [(25, 2), (200, 0.5)]
