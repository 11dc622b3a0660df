"""The seven scenarios of ADR-004 (sequencing strategy), appendix D, with their own numbers in both modes.

In `two_phase` they hold to the letter; in `atomic` the counter moves with its message, so the gaps of
scenarios 4 and 5 do not arise. What the sources call a gap is a void here: told to every reader.
"""

import asyncio
import uuid
from pathlib import Path

import pytest

from tests.acceptance.crashing import Held, send_into_crash
from tests.acceptance.world import World, metric, store_of, world_on
from tests.harness.server import ServerProcess, run_parley

GIVEN = 10
"""sequence_counter in the given chat."""
SEVEN_DAYS_SECONDS = 604_800


def new_id() -> str:
    return str(uuid.uuid4())


async def test_scenario_1_basic_sequence_allocation(server: ServerProcess) -> None:
    """With the counter at 10, a message gets 11, and counter, message and key say so."""
    async with world_on(server) as world:
        await world.fill(GIVEN)
        uuid_1, store = new_id(), store_of(world)
        async with world.client(world.ann) as ann:
            ack = await ann.send_message(world.chat_id, "hello", uuid_1)
        assert (ack["sequence"], ack["deduplicated"]) == (11, False)
        assert store.sequence_counter == 11
        assert store.messages[11] == uuid_1
        assert store.idempotency_keys[uuid_1] == 11
        lives = store.rows("SELECT ttl - strftime('%s', created_at) FROM idempotency_keys WHERE chat_id = ?")
        assert set(lives) == {(SEVEN_DAYS_SECONDS,)}


async def test_scenario_2_idempotent_retry(server: ServerProcess) -> None:
    """A message sent again is answered with its original place, and nothing new is created."""
    async with world_on(server) as world:
        await world.fill(GIVEN)
        uuid_1, store = new_id(), store_of(world)
        async with world.client(world.ann) as ann:
            first = await ann.send_message(world.chat_id, "hello", uuid_1)
            before = (store.messages, store.idempotency_keys)
            again = await ann.send_message(world.chat_id, "hello", uuid_1)
        assert (again["sequence"], again["deduplicated"], again["conflict"]) == (11, True, False)
        assert again["message_id"] == first["message_id"]
        assert store.sequence_counter == 11
        assert (store.messages, store.idempotency_keys) == before


async def test_scenario_3_concurrent_writers(server: ServerProcess) -> None:
    """Three messages at once from three connections get 11, 12 and 13, in some order."""
    async with world_on(server) as world:
        await world.fill(GIVEN)
        desk = await world.device_of(world.ann, "desk")
        async with world.client(world.ann) as a, world.client(world.ben) as b, world.client(desk) as c:
            acks = await asyncio.gather(
                *(client.send_message(world.chat_id, "hello") for client in (a, b, c))
            )
        assert sorted(ack["sequence"] for ack in acks) == [11, 12, 13]
        assert len({ack["message_id"] for ack in acks}) == 3
        assert store_of(world).sequence_counter == 13


@pytest.mark.parametrize("mode", ["two_phase"], indirect=True)
async def test_scenario_4_race_condition_on_idempotency(own_server: ServerProcess, tmp_path: Path) -> None:
    """A allocates 11 and waits, B with the same id is stored at 12, both are told 12, and 11 is void."""
    hold = Held("after_allocate", tmp_path / "hold")
    async with world_on(own_server) as world:
        await world.fill(GIVEN)
        await asyncio.to_thread(own_server.restart, hold.environment)
        hold.arm()
        uuid_1, store = new_id(), store_of(world)
        async with world.client(world.ann) as a, world.client(world.ann) as b:
            request_a = await a.post_message(world.chat_id, "hello", uuid_1)
            await hold.until_reached()
            ack_b = await b.send_message(world.chat_id, "hello", uuid_1)
            hold.let_go()
            ack_a = await a.answered(request_a)
        assert (ack_a["sequence"], ack_b["sequence"]) == (12, 12)
        assert ack_a["message_id"] == ack_b["message_id"]
        assert (store.sequence_counter, store.voids) == (12, [11])
        assert 11 not in store.messages
        assert store.messages[12] == uuid_1


@pytest.mark.parametrize("mode", ["atomic"], indirect=True)
async def test_scenario_4_without_a_gap(server: ServerProcess) -> None:
    """In atomic mode two requests with one id at once are one message at 11, and no number is lost."""
    async with world_on(server) as world:
        await world.fill(GIVEN)
        uuid_1, store = new_id(), store_of(world)
        async with world.client(world.ann) as a, world.client(world.ann) as b:
            acks = await asyncio.gather(
                *(each.send_message(world.chat_id, "hello", uuid_1) for each in (a, b))
            )
        assert [ack["sequence"] for ack in acks] == [11, 11]
        assert sorted(ack["deduplicated"] for ack in acks) == [False, True]
        assert (store.sequence_counter, store.voids) == (11, [])


@pytest.mark.parametrize("mode", ["two_phase"], indirect=True)
async def test_scenario_5_failure_after_allocation(own_server: ServerProcess) -> None:
    """A crash after 11 was allocated leaves 11 void, and the retry is stored at 12."""
    async with world_on(own_server) as world:
        await world.fill(GIVEN)
        uuid_1, store = new_id(), store_of(world)
        await send_into_crash(world, "after_allocate", uuid_1)
        assert store.sequence_counter == 11
        assert uuid_1 not in store.idempotency_keys
        await asyncio.to_thread(own_server.start)
        async with world.client(world.ann) as ann:
            retry = await ann.send_message(world.chat_id, "hello", uuid_1)
        assert (retry["sequence"], retry["deduplicated"]) == (12, False)
        assert (store.sequence_counter, store.voids) == (12, [11])
        assert [entry["sequence"] for entry in await world.read_all()] == [*range(1, 11), 12]


@pytest.mark.parametrize("mode", ["atomic"], indirect=True)
async def test_scenario_5_without_a_gap(own_server: ServerProcess) -> None:
    """In atomic mode a crash before the commit takes the number back, and the retry is stored at 11."""
    async with world_on(own_server) as world:
        await world.fill(GIVEN)
        uuid_1, store = new_id(), store_of(world)
        await send_into_crash(world, "after_write_before_commit", uuid_1)
        assert store.sequence_counter == GIVEN
        await asyncio.to_thread(own_server.start)
        async with world.client(world.ann) as ann:
            retry = await ann.send_message(world.chat_id, "hello", uuid_1)
        assert (retry["sequence"], retry["deduplicated"]) == (11, False)
        assert (store.sequence_counter, store.voids) == (11, [])


async def test_scenario_6_new_chat_first_message(server: ServerProcess) -> None:
    """A new chat has its counter at 0, and its first message has sequence 1."""
    async with world_on(server) as world:
        store = store_of(world)
        assert store.sequence_counter == 0
        async with world.client(world.ann) as ann:
            ack = await ann.send_message(world.chat_id, "first")
        assert ack["sequence"] == 1
        assert store.sequence_counter == 1
        assert list(store.messages) == [1]


async def test_scenario_7_counter_missing_correctness_incident(own_server: ServerProcess) -> None:
    """Without its counter a chat takes no message, an alarm is raised, and recovery goes on at 11."""
    async with world_on(own_server) as world:
        await world.fill(GIVEN)
        uuid_1, store = new_id(), store_of(world)
        store.delete_counter()
        async with world.client(world.ann) as ann:
            refusal = await ann.send_message(world.chat_id, "hello", uuid_1)
            assert (refusal["type"], refusal["code"]) == ("refused", "counter_missing")
            assert store.sequence_counter is None
            assert uuid_1 not in store.idempotency_keys
            assert len(store.messages) == GIVEN
            await assert_alarm_raised(world)
            await assert_others_go_on(world)
            await recover(world)
            ack = await ann.send_message(world.chat_id, "hello", uuid_1)
        assert (ack["sequence"], ack["deduplicated"]) == (11, False)
        assert store.sequence_counter == 11


async def assert_alarm_raised(world: World) -> None:
    """SEV-2: a critical log line that names the chat, and the metric that the alert watches."""
    line = await asyncio.to_thread(world.server.wait_for_log, "COUNTER_MISSING")
    assert (line["level"], line["chat_id"]) == ("critical", world.chat_id)
    assert await metric(world, "counter_missing_errors") >= 1


async def assert_others_go_on(world: World) -> None:
    """Another chat of the same people is not touched."""
    other = await world.http.of(world.ann).create_group(world.ben, title="other")
    async with world.client(world.ann) as ann:
        assert (await ann.send_message(other, "still here"))["sequence"] == 1


async def recover(world: World) -> None:
    """The operator's procedure: look first, then apply; both beside the running server."""
    command = ("recover", world.chat_id, "--data", str(world.server.data))
    dry = await asyncio.to_thread(run_parley, *command)
    assert dry.returncode == 0, dry.stderr
    assert store_of(world).sequence_counter is None
    applied = await asyncio.to_thread(run_parley, *command, "--apply")
    assert applied.returncode == 0, applied.stderr
    assert store_of(world).sequence_counter == GIVEN
