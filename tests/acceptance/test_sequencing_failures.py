"""The failure matrix of ADR-004 (sequencing strategy), section 10, row by row, and its "Confirmation".

Two rows are in `tests/contracts/test_dynamodb_log_scenarios.py`, because nothing on one machine can fail that
way: "Kafka unavailable" (the embedded bus is the log itself and has no outage of its own) and, of the
confirmation, "DynamoDB throttling". "DynamoDB unavailable" is shown with the store that is there instead. The
latency benchmarks and "latency degradation under contention" are the rows `persist` of `make bench`, which
name the bounds: 50 ms for an allocation and 100 ms for the persist path, by 1, 10 and 100 writers to a chat.
"""

import asyncio
import uuid
from pathlib import Path

import pytest

from parley.testing import faults
from tests.acceptance.crashing import send_into_crash
from tests.acceptance.world import Store, World, metric, mode_environment, store_of, world_on
from tests.harness.clients import Frame, RawClient
from tests.harness.server import ServerProcess
from tests.waiting import deadline

GIVEN = 10

BEFORE_STEP_3 = "before_write:1"
AFTER_STEP_3 = "after_allocate:1"
DURING_STEP_4 = {"atomic": "after_write_before_commit:1", "two_phase": "after_write_before_commit:2"}
AFTER_STEP_4 = {"atomic": "after_commit_before_ack:1", "two_phase": "after_commit_before_ack:2"}
DURING_STEP_5 = "mid_fanout:1"


async def crash_and_retry(world: World, label: str) -> tuple[int, bool]:
    """Send into a crash, start again, retry with the same id: its sequence, and whether it was known."""
    client_message_id = str(uuid.uuid4())
    await world.fill(GIVEN)
    await send_into_crash(world, label, client_message_id)
    await asyncio.to_thread(world.server.start)
    async with world.client(world.ann) as ann:
        retry = await ann.send_message(world.chat_id, "hello", client_message_id)
    entries = await world.read_all()
    assert [entry["client_message_id"] for entry in entries].count(client_message_id) == 1
    return retry["sequence"], retry["deduplicated"]


def gaps(store: Store) -> list[int]:
    return store.voids


async def test_crash_before_step_3_allocation(own_server: ServerProcess) -> None:
    """A crash before the allocation changes nothing: the retry starts from scratch."""
    async with world_on(own_server) as world:
        assert await crash_and_retry(world, BEFORE_STEP_3) == (11, False)
        assert gaps(store_of(world)) == []


@pytest.mark.parametrize("mode", ["two_phase"], indirect=True)
async def test_crash_after_step_3_before_step_4(own_server: ServerProcess) -> None:
    """Kill process after step 3: a gap is created, and the retry gets a new sequence."""
    async with world_on(own_server) as world:
        assert await crash_and_retry(world, AFTER_STEP_3) == (12, False)
        assert gaps(store_of(world)) == [11]


async def test_crash_during_step_4_transaction(own_server: ServerProcess, mode: str) -> None:
    """A crash in the transaction rolls it back; two_phase leaves the allocated number as a gap."""
    async with world_on(own_server) as world:
        sequence, deduplicated = await crash_and_retry(world, DURING_STEP_4[mode])
        expected = {"atomic": (11, []), "two_phase": (12, [11])}
        assert (sequence, gaps(store_of(world))) == expected[mode]
        assert not deduplicated


async def test_crash_after_step_4_before_step_5(own_server: ServerProcess, mode: str) -> None:
    """Kill process after step 4: the message is there, and the retry is answered from the key."""
    async with world_on(own_server) as world:
        assert await crash_and_retry(world, AFTER_STEP_4[mode]) == (11, True)
        assert gaps(store_of(world)) == []


async def test_crash_during_step_5(own_server: ServerProcess) -> None:
    """A crash while the event goes out loses nothing: the retry is answered, and readers find the message."""
    async with world_on(own_server) as world:
        assert await crash_and_retry(world, DURING_STEP_5) == (11, True)
        assert gaps(store_of(world)) == []


async def test_store_unavailable(tmp_path: Path, mode: str) -> None:
    """While the store cannot write, sends are refused for now and not stored; later the retry succeeds."""
    switch = tmp_path / "disk"
    environment = {**mode_environment(mode), faults.DISK: str(switch)}
    with ServerProcess(tmp_path / "data", environment) as server:
        async with world_on(server) as world:
            await world.fill(GIVEN)
            client_message_id = str(uuid.uuid4())
            async with world.client(world.ann) as ann:
                switch.write_text("full")
                refusal = await ann.send_message(world.chat_id, "hello", client_message_id)
                assert (refusal["type"], refusal["temporary"]) == ("refused", True)
                assert refusal["code"] in {"store_unavailable", "outcome_unknown"}
                switch.write_text("")
                retry = await until_stored(ann, world.chat_id, client_message_id)
            assert retry["sequence"] in (11, 12)
            assert len(store_of(world).messages) == GIVEN + 1


async def until_stored(client: RawClient, chat_id: str, client_message_id: str) -> Frame:
    """Retry with the same id, as long and as often as each refusal says that it helps."""
    async with deadline():
        while (answer := await client.send_message(chat_id, "hello", client_message_id))["type"] != "ack":
            assert answer["temporary"]
            await asyncio.sleep(answer["retry_after_ms"] / 1000)
        return answer


async def test_counter_item_missing(server: ServerProcess) -> None:
    """Without the counter the allocation is blocked for that chat, and nothing is allocated."""
    async with world_on(server) as world:
        await world.fill(GIVEN)
        store = store_of(world)
        store.delete_counter()
        async with world.client(world.ann) as ann:
            refusal = await ann.send_message(world.chat_id, "hello")
            assert (refusal["code"], refusal["temporary"]) == ("counter_missing", True)
            assert len((await ann.sync(world.chat_id))["entries"]) == GIVEN
        assert (store.sequence_counter, len(store.messages)) == (None, GIVEN)


async def test_100_concurrent_writers_to_the_same_chat(server: ServerProcess) -> None:
    """A hundred connections that write at once get a hundred sequences, none twice, and none fails."""
    async with world_on(server) as world:
        clients = [
            world.unrecorded(person, live=False)
            for person in [await world.device_of(world.ann, f"device {n}") for n in range(4)]
            for _ in range(25)
        ]
        await asyncio.gather(*(client.connect() for client in clients))
        try:
            acks = await asyncio.gather(
                *(client.send_message(world.chat_id, f"from {n}") for n, client in enumerate(clients))
            )
        finally:
            await asyncio.gather(*(client.close() for client in clients))
        assert sorted(ack["sequence"] for ack in acks) == list(range(1, 101))
        assert gaps(store_of(world)) == []


async def test_gaps_occur_only_when_expected(own_server: ServerProcess) -> None:
    """In normal operation, retries and two writers included, no number is lost."""
    async with world_on(own_server) as world:
        async with world.client(world.ann) as ann, world.client(world.ben) as ben:
            for n in range(20):
                client_message_id = str(uuid.uuid4())
                posts = [
                    await ann.post_message(world.chat_id, f"a {n}", client_message_id),
                    await ben.post_message(world.chat_id, f"b {n}"),
                ]
                acks = [await ann.answered(post) for post in posts]
                acks.append(await ann.send_message(world.chat_id, f"a {n}", client_message_id))
                assert [ack["deduplicated"] for ack in acks] == [False, False, True]
        assert await metric(world, "sequence_gap_rate") < 0.01
        assert (store_of(world).sequence_counter, gaps(store_of(world))) == (40, [])


@pytest.mark.parametrize("mode", ["two_phase"], indirect=True)
async def test_each_crash_after_an_allocation_makes_one_gap(own_server: ServerProcess) -> None:
    """As many crashes after step 3, so many gaps, and nothing else is lost."""
    async with world_on(own_server) as world:
        for _ in range(3):
            await world.fill(2)
            await send_into_crash(world, AFTER_STEP_3, str(uuid.uuid4()))
            await asyncio.to_thread(own_server.start)
        assert gaps(store_of(world)) == [3, 6, 9]


@pytest.mark.parametrize("mode", ["two_phase"], indirect=True)
async def test_gap_rate_follows_the_injected_failures(own_server: ServerProcess) -> None:
    """The rate is that of the sends that fail after their allocation: each of them makes one gap."""
    async with world_on(own_server) as world:
        failures = allocations = 0
        for fail, succeed in ((0, 4), (1, 5), (8, 2)):
            async with world.client(world.ann) as ann:
                for _ in range(fail):
                    never_sent = str(uuid.uuid4())
                    failed = await ann.send_message(world.chat_id, "hi", after_client_message_id=never_sent)
                    assert failed["code"] == "out_of_turn"
            await world.fill(succeed)
            failures, allocations = failures + fail, allocations + fail + succeed
            assert await metric(world, "sequence_gap_rate") == pytest.approx(failures / allocations)
        assert (len(gaps(store_of(world))), store_of(world).sequence_counter) == (failures, allocations)
