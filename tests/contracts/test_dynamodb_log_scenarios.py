"""ADR-004 (sequencing strategy) on DynamoDB: the scenarios of appendix D and the failures of section 10.

A crash is an exception that nobody in the store expects, after which another node carries on. In `two_phase`
everything holds with the design's own numbers; in `atomic` the gaps do not arise.
"""

import asyncio

import pytest

from parley.bus import publisher
from parley.errors import SERVICE_UNAVAILABLE, Refused
from parley.model import Appended, Draft
from parley.store.shared import SEAL_AFTER_MS
from parley.testing.dynamodb_faults import throttle
from tests.contracts.acting import (
    add_group,
    code_of,
    contents,
    message,
    outcome,
    read_all,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.dynamodb_bus import on_kafka
from tests.contracts.dynamodb_nodes import On, item
from tests.contracts.dynamodb_world import Crashed, Node, crashes, world
from tests.harness.fault_plans import Planned
from tests.waiting import eventually

MODES = ["atomic", "two_phase"]
GIVEN = 10
SEVEN_DAYS_SECONDS = 604_800


async def fill(node: Node) -> None:
    """Given: sequence_counter = 10."""
    await node.log.append([message(node.chat, node.ann, f"{n}") for n in range(1, GIVEN + 1)])
    assert node.counter(node.chat) == GIVEN


async def key_of(node: Node, draft: Draft) -> dict[str, object]:
    key = await item(
        node, "idempotency_keys", chat_id=node.chat, client_message_id=str(draft.client_message_id)
    )
    return dict(key)


async def new_items(node: Node) -> dict[int, str]:
    """What stands in the log beyond the given."""
    return {at: content for at, content in (await node.items()).items() if at > GIVEN}


# Appendix D


@pytest.mark.parametrize("mode", MODES)
async def test_scenario_1_basic_sequence_allocation(mode: str) -> None:
    """With the counter at 10, a message gets 11, and counter, message and key say so."""
    async with world(mode, 1) as (node,):
        await fill(node)
        draft = message(node.chat, node.ann, "hello")
        ack = await stored(node, draft)
        assert (ack.sequence, ack.deduplicated, node.counter(node.chat)) == (11, False, 11)
        entry = await item(node, "messages", chat_id=node.chat, sequence=11)
        assert (entry["message_id"], entry["client_message_id"]) == (ack.message_id, draft.client_message_id)
        key = await key_of(node, draft)
        assert (key["sequence"], key["message_id"]) == (11, ack.message_id)
        assert key["ttl"] == node.clock() // 1_000 + SEVEN_DAYS_SECONDS


@pytest.mark.parametrize("mode", MODES)
async def test_scenario_2_idempotent_retry(mode: str) -> None:
    """A message sent again, through another node, is answered with its place, and nothing new is created."""
    async with world(mode) as (node, other):
        await fill(node)
        draft = message(node.chat, node.ann, "hello")
        first, again = await stored(node, draft), await stored(other, draft)
        assert (again.sequence, again.deduplicated, again.message_id) == (11, True, first.message_id)
        assert (node.counter(node.chat), await new_items(node)) == (11, {11: "hello"})


@pytest.mark.parametrize("mode", MODES)
async def test_scenario_3_concurrent_writers(mode: str) -> None:
    """Three messages at once over three nodes get 11, 12 and 13, in some order."""
    async with world(mode, 3, seal_after_ms=SEAL_AFTER_MS) as nodes:
        node = nodes[0]
        await fill(node)
        acks = await asyncio.gather(*(stored(each, message(node.chat, node.ann)) for each in nodes))
        assert sorted(ack.sequence for ack in acks) == [11, 12, 13]
        assert len({ack.message_id for ack in acks}) == 3
        assert node.counter(node.chat) == 13


async def test_scenario_4_race_condition_on_idempotency() -> None:
    """A allocates 11 and waits, B with the same id is stored at 12, both are told 12, and 11 is void."""
    async with world("two_phase", 2, seal_after_ms=SEAL_AFTER_MS) as (a, b):
        await fill(a)
        uuid_1 = message(a.chat, a.ann, "hello")
        a.gate.close()
        request_a = asyncio.create_task(stored(a, uuid_1))
        await a.gate.reached.wait()
        request_b = asyncio.create_task(stored(b, uuid_1))
        await eventually(lambda: b.has_written(12))
        a.gate.open()
        ack_a, ack_b = await request_a, await request_b
        assert (ack_a.sequence, ack_b.sequence) == (12, 12)
        assert ack_a.message_id == ack_b.message_id
        assert (a.counter(a.chat), await new_items(b)) == (12, {11: "void", 12: "hello"})


async def test_scenario_4_without_a_gap() -> None:
    """In atomic mode two requests with one id at once are one message at 11, and no number is lost."""
    async with world("atomic") as (a, b):
        await fill(a)
        uuid_1 = message(a.chat, a.ann, "hello")
        acks = await asyncio.gather(stored(a, uuid_1), stored(b, uuid_1))
        assert [ack.sequence for ack in acks] == [11, 11]
        assert sorted(ack.deduplicated for ack in acks) == [False, True]
        assert (a.counter(a.chat), await new_items(b)) == (11, {11: "hello"})


async def test_scenario_5_failure_after_allocation() -> None:
    """A crash after 11 was allocated leaves 11 void, and the retry on another node is stored at 12."""
    async with world("two_phase") as (gone, other):
        await fill(gone)
        uuid_1 = message(gone.chat, gone.ann, "hello")
        gone.crash.at = "after_allocate"
        with pytest.raises(Crashed):
            await outcome(gone, uuid_1)
        assert (other.counter(gone.chat), await new_items(other)) == (11, {})
        retry = await stored(other, uuid_1)
        assert (retry.sequence, retry.deduplicated) == (12, False)
        assert (other.counter(gone.chat), await new_items(other)) == (12, {11: "void", 12: "hello"})
        assert sequences(await read_all(other, gone.chat)) == [*range(1, 11), 12]


async def test_scenario_5_without_a_gap() -> None:
    """In atomic mode a crash before the commit takes no number, and the retry is stored at 11."""
    async with world("atomic") as (gone, other):
        await fill(gone)
        uuid_1 = message(gone.chat, gone.ann, "hello")
        gone.crash.at = "before_write"
        with pytest.raises(Crashed):
            await outcome(gone, uuid_1)
        retry = await stored(other, uuid_1)
        assert (retry.sequence, retry.deduplicated) == (11, False)
        assert (other.counter(gone.chat), await new_items(other)) == (11, {11: "hello"})


@pytest.mark.parametrize("mode", MODES)
async def test_scenario_6_new_chat_first_message(mode: str) -> None:
    """A new chat has its counter at 0, and its first message has sequence 1."""
    async with world(mode, 1) as (node,):
        assert node.counter(node.chat) == 0
        assert (await stored(node, message(node.chat, node.ann, "first"))).sequence == 1
        assert (node.counter(node.chat), await node.items()) == (1, {1: "first"})


@pytest.mark.parametrize("mode", MODES)
async def test_scenario_7_counter_missing_correctness_incident(mode: str) -> None:
    """Without its counter a chat takes no message, an alarm is raised, and recovery goes on at 11."""
    async with world(mode, 1) as (node,):
        await fill(node)
        unharmed = await add_group(node, node.ann)
        node.set_counter(node.chat, None)
        uuid_1 = message(node.chat, node.ann, "hello")
        assert await code_of(node, uuid_1) == "counter_missing"
        assert (node.counter(node.chat), await new_items(node)) == (None, {})
        assert node.metrics.counter_missing_errors.count == 1
        assert (await stored(node, message(unharmed, node.ann))).sequence == 1
        node.recover_counter(node.chat)
        assert (await stored(node, uuid_1)).sequence == 11
        assert node.counter(node.chat) == 11


# Section 10


async def crash_and_retry(gone: Node, other: Node) -> Appended:
    """Send into a crash, then retry with the same id on the node that is left."""
    draft = message(gone.chat, gone.ann, "hello")
    with pytest.raises(Crashed):
        await outcome(gone, draft)
    retry = await stored(other, draft)
    assert list((await new_items(other)).values()).count("hello") == 1
    return retry


@pytest.mark.parametrize("mode", MODES)
async def test_crash_before_step_3_allocation(mode: str) -> None:
    """A crash before the allocation changes nothing: the retry starts from scratch."""
    async with world(mode) as (gone, other):
        await fill(gone)
        gone.faults.now = On(crashes, "TransactWriteItems" if mode == "atomic" else "UpdateItem")
        retry = await crash_and_retry(gone, other)
        assert (retry.sequence, retry.deduplicated, await new_items(other)) == (11, False, {11: "hello"})


async def test_kill_after_step_3() -> None:
    """Crash after step 3, before step 4: a gap is created, and the retry gets a new sequence."""
    async with world("two_phase") as (gone, other):
        await fill(gone)
        gone.crash.at = "after_allocate"
        retry = await crash_and_retry(gone, other)
        assert (retry.sequence, retry.deduplicated) == (12, False)
        assert await new_items(other) == {11: "void", 12: "hello"}


@pytest.mark.parametrize(
    ("mode", "expected"), [("atomic", {11: "hello"}), ("two_phase", {11: "void", 12: "hello"})]
)
async def test_crash_during_step_4_transaction(mode: str, expected: dict[int, str]) -> None:
    """A transaction that never arrived is nothing; two_phase leaves the allocated number as a gap."""
    async with world(mode) as (gone, other):
        await fill(gone)
        gone.faults.now = On(crashes, "TransactWriteItems")
        retry = await crash_and_retry(gone, other)
        assert (retry.deduplicated, await new_items(other)) == (False, expected)


@pytest.mark.parametrize("mode", MODES)
async def test_kill_after_step_4(mode: str) -> None:
    """Crash after step 4, before step 5: the message is there, and the retry is answered from the key."""
    async with world(mode) as (gone, other):
        await fill(gone)
        gone.crash.at = "after_commit_before_ack"
        retry = await crash_and_retry(gone, other)
        assert (retry.sequence, retry.deduplicated, await new_items(other)) == (11, True, {11: "hello"})


@pytest.mark.parametrize("mode", MODES)
async def test_crash_during_step_5(mode: str) -> None:
    """A crash before the event went out: it is listed in the outbox with its message, for whoever is left."""
    async with world(mode, 2, publishes=True) as (gone, other):
        await said(gone, gone.chat, gone.ann, "published")
        gone.store.outbox.note_published(gone.chat, 1)
        await gone.store.outbox.flush()
        assert await other.store.outbox.unpublished() == {}
        gone.crash.at = "after_commit_before_ack"
        with pytest.raises(Crashed):
            await outcome(gone, message(gone.chat, gone.ann, "hello"))
        assert await other.store.outbox.unpublished() == {gone.chat: 1}


@pytest.mark.parametrize("mode", MODES)
async def test_kafka_unavailable(mode: str) -> None:
    """Without a broker sends are acknowledged; with it again, the other node hears each once, in order."""
    async with world(mode, 2, publishes=True) as (node, other), on_kafka(node, other) as (here, there):
        assert [(await here.send("before")).sequence, *await there.heard_up_to(1)] == [1, 1]
        here.sink.is_away = True
        acks = [(await here.send(f"meanwhile {n}")).sequence for n in range(3)]
        assert (acks, here.sequences()) == ([2, 3, 4], [1, 2, 3, 4])
        await eventually(lambda: here.sink.failures > 0)
        assert there.sequences() == [1]
        here.sink.is_away = False
        assert await there.heard_up_to(4) == [1, 2, 3, 4]
        await node.store.outbox.flush()
        assert await other.store.outbox.unpublished() == {}


@pytest.mark.parametrize("mode", MODES)
async def test_kafka_unavailable_to_who_waits_for_it(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bus.ack = published a send is refused as `service_unavailable`, is durable, and is acked later."""
    monkeypatch.setattr(publisher, "CONFIRM_SECONDS_MAX", 0.1)
    async with (
        world(mode, 2, publishes=True) as (node, other),
        on_kafka(node, other, waits=True) as (here, there),
    ):
        here.sink.is_away = True
        draft = message(node.chat, node.ann, "meanwhile")
        with pytest.raises(Refused) as refused:
            await here.sending.send(draft)
        assert refused.value.refusal == SERVICE_UNAVAILABLE
        assert contents(await read_all(other, node.chat)) == ["meanwhile"]
        here.sink.is_away = False
        assert await there.heard_up_to(1) == [1]
        again = await here.sending.send(draft)
        assert (again.sequence, again.deduplicated) == (1, True)


@pytest.mark.parametrize("mode", MODES)
async def test_dynamodb_unavailable(mode: str) -> None:
    """All operations fail, nothing is allocated, and the client retries when it is available."""
    async with world(mode, 1, deadline_seconds=0.2) as (node,):
        await fill(node)
        draft = message(node.chat, node.ann, "hello")
        node.faults.now = lambda *_: throttle
        assert await code_of(node, draft) == "store_unavailable"
        node.faults.now = None
        assert told(await stored(node, draft)) == "stored"
        assert list((await new_items(node)).values()).count("hello") == 1


@pytest.mark.parametrize("mode", MODES)
async def test_dynamodb_throttling(mode: str) -> None:
    """Throttling degrades gracefully: what is turned away is repeated, and no gap forms."""
    async with world(mode, 1) as (node,):
        await fill(node)
        node.faults.now = Planned(
            TransactWriteItems=[throttle] * 5, UpdateItem=[throttle] * 3, BatchGetItem=[throttle] * 2
        )
        assert (await stored(node, message(node.chat, node.ann, "hello"))).sequence == 11
        assert node.store.dynamo.capacity.retries["TransactWriteItems"] == 5
        assert await new_items(node) == {11: "hello"}


@pytest.mark.parametrize("mode", MODES)
async def test_counter_item_missing(mode: str) -> None:
    """Without the counter the allocation is blocked for that chat, and what is stored can be read."""
    async with world(mode) as (node, reader):
        await fill(node)
        node.set_counter(node.chat, None)
        assert await code_of(node, message(node.chat, node.ann)) == "counter_missing"
        assert sequences(await read_all(reader, node.chat)) == list(range(1, GIVEN + 1))
        assert (node.counter(node.chat), await new_items(node)) == (None, {})


async def test_gap_rate_follows_the_injected_failures() -> None:
    """Each crash after an allocation makes exactly one gap; retries and two nodes make none."""
    async with world("two_phase") as (gone, other):
        for n in range(3):
            await said(other, gone.chat, gone.ann, f"{n}a", f"{n}b")
            gone.crash.at = "after_allocate"
            with pytest.raises(Crashed):
                await outcome(gone, message(gone.chat, gone.ann))
        await said(other, gone.chat, gone.ann, "end")
        voids = [at for at, content in (await other.items()).items() if content == "void"]
        assert voids == [3, 6, 9]
        assert other.metrics.gaps.rate() == 3 / 10
        assert gone.metrics.gaps.rate() == 0.0
