"""What the benchmark on shared engines reckons by itself: units, batches, CPU for each hop."""

import pytest

from bench.dynamodb.hops import INGEST, WRITING, hop_row
from bench.dynamodb.nodes import FORWARD_FAILURES, FORWARDED, FORWARDED_BATCHES, STORED, TRANSACTIONS
from bench.dynamodb.transactions import FULL, actions_of
from bench.dynamodb.two_nodes import forwarding_in
from bench.dynamodb.units import Meter
from bench.measuring import Stretch
from bench.rows import Row
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


@pytest.mark.parametrize("messages", [1, FULL])
def test_a_transaction_is_charged_for_head_entries_and_keys_twice(messages: int) -> None:
    """Each message is an entry and a key, the head is one more item, and a transaction counts double."""
    actions = actions_of(CHAT_ID, head=7, messages=messages)
    meter = Meter()
    meter("TransactWriteItems", {"TransactItems": [action.request(str) for action in actions]})
    assert len(actions) == 1 + 2 * messages
    assert meter.total == 2 + 4 * messages


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
