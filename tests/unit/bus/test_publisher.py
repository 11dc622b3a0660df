"""The outbox's publisher: everything durable reaches the bus, in order, whatever fails on the way."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.bus import publisher
from parley.bus.publisher import BACKLOG_BYTES_MAX, CONFIRM_SECONDS_MAX, FANOUT_BLOCKED
from parley.errors import SERVICE_UNAVAILABLE
from parley.model import Persisted, StoredEntry
from parley.wire.limits import MIB, PAGE_BYTES_MAX
from tests.harness.clock import VirtualClock, run_virtual
from tests.harness.scripted_log import wire_at
from tests.unit.bus.world import NODE, World

Scenario = Callable[[World], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Play a scenario in virtual time and stop the publisher after it."""

    async def play(clock: VirtualClock) -> None:
        world = World(clock)
        await scenario(world)
        await world.publisher.stop()

    with structlog.testing.capture_logs():
        run_virtual(play)


def virtually(scenario: Scenario) -> Callable[[], None]:
    """The same as a test."""

    def test() -> None:
        run(scenario)

    test.__doc__ = scenario.__doc__
    return test


@virtually
async def test_news_goes_to_the_bus_and_moves_the_mark(world: World) -> None:
    """What became durable is on the bus under this node's name, in order, and the store is told so."""
    world.publisher.publish([world.log.store("a", 1, 2), world.log.store("b", 1)])
    world.publisher.publish([world.log.store("a", 3)])
    await asyncio.sleep(0.1)
    assert (world.sink.sequences("a"), world.sink.sequences("b")) == ([1, 2, 3], [1])
    assert world.sink.nodes("a") == [NODE.encode()] * 3
    assert world.outbox.marks == {"a": 3, "b": 1}
    assert world.told("parley_events_published_total") == 4
    assert (world.publisher.backlog(), world.publisher.backlog_bytes) == (0, 0)


@virtually
async def test_news_out_of_order_is_published_in_order(world: World) -> None:
    """A position waits for the one before it, and nothing is read from the log for that."""
    later, earlier = world.log.store("a", 3, 2), world.log.store("a", 1, void=True)
    world.publisher.publish([Persisted("a", 1, [later.positions[0]])])
    world.publisher.publish([Persisted("a", 1, [later.positions[1]])])
    world.publisher.publish([earlier])
    await asyncio.sleep(1)
    assert (world.sink.sequences("a"), world.log.reads) == ([1, 2, 3], 0)


@virtually
async def test_what_is_told_twice_is_published_once(world: World) -> None:
    """News that was taken before, published or not, is left out."""
    news = world.log.store("a", 1, 2)
    world.publisher.publish([news, news])
    await asyncio.sleep(0.1)
    world.publisher.publish([news])
    await asyncio.sleep(0.1)
    assert world.sink.sequences("a") == [1, 2]


@virtually
async def test_a_failed_batch_is_sent_again(world: World) -> None:
    """The mark waits, the order stays, and the operator sees that fan-out is blocked."""
    world.sink.failures = [False, False]
    with structlog.testing.capture_logs() as lines:
        world.publisher.publish([world.log.store("a", 1, 2)])
        await asyncio.sleep(0.5)
        world.publisher.publish([world.log.store("a", 3)])
        assert (world.sink.records, world.outbox.marks) == ([], {})
        assert world.told("parley_unpublished_positions") == 3
        assert world.told("parley_publish_stalled_seconds") >= 0.5
        await asyncio.sleep(4)
    assert world.sink.sequences("a") == [1, 2, 3]
    assert world.outbox.marks == {"a": 3}
    assert [line["event"] for line in lines] == [FANOUT_BLOCKED] * 2
    assert world.told("parley_publish_failures_total") == 2
    assert world.told("parley_publish_stalled_seconds") == 0


@virtually
async def test_a_bus_that_does_not_answer_is_no_secret(world: World) -> None:
    """A batch that is under way for long is told of, and never sent twice for that."""
    world.sink.go.clear()
    world.publisher.publish([world.log.store("a", 1)])
    with structlog.testing.capture_logs() as lines:
        await asyncio.sleep(60)
    assert {line["event"] for line in lines} == {FANOUT_BLOCKED}
    assert world.told("parley_publish_failures_total") >= 10
    world.sink.go.set()
    await asyncio.sleep(1)
    assert world.sink.sequences("a") == [1]


@virtually
async def test_a_chat_goes_on_from_its_mark(world: World) -> None:
    """What another node stored and did not publish goes first, from the log, under nobody's name."""
    world.log.store("a", 1, 2, 3, 4)
    world.outbox.marks = {"a": 2}
    world.publisher.publish([world.log.store("a", 5)])
    await asyncio.sleep(1)
    assert world.sink.sequences("a") == [3, 4, 5]
    assert world.sink.nodes("a") == [None, None, NODE.encode()]
    assert world.outbox.marks == {"a": 5}


@virtually
async def test_what_the_store_knew_spares_the_question(world: World) -> None:
    """News that says up to where the chat is published needs no look at the store."""
    world.log.store("a", *range(1, 10))
    news = world.log.store("a", 10)
    world.publisher.publish([Persisted("a", 1, news.positions, published_through=9)])
    await asyncio.sleep(1)
    assert (world.sink.sequences("a"), world.outbox.lists, world.log.reads) == ([10], 0, 0)


@virtually
async def test_a_list_that_is_behind_loses_nothing(world: World) -> None:
    """News of a chat that the store does not list yet is published all the same."""
    world.log.store("a", 1, 2)
    world.outbox.marks = {"a": 2}
    world.outbox.stale = [{}, {}]
    world.publisher.publish([world.log.store("a", 3)])
    await asyncio.sleep(0.5)
    assert (world.sink.sequences("a"), world.outbox.marks) == ([3], {"a": 3})
    world.outbox.marks = {"b": 7}
    world.outbox.stale = [{}] * 20
    world.log.store("b", *range(1, 8))
    world.publisher.publish([world.log.store("b", 8)])
    await asyncio.sleep(5)
    assert (world.sink.sequences("b"), world.outbox.marks) == ([8], {"b": 8})


@virtually
async def test_who_takes_a_chat_over_learns_how_far_the_other_was(world: World) -> None:
    """A gap that another node has published is not published again."""
    world.publisher.publish([world.log.store("a", 1)])
    await asyncio.sleep(0.1)
    world.log.store("a", 2, 3)
    world.outbox.marks["a"] = 3
    world.publisher.publish([world.log.store("a", 4)])
    await asyncio.sleep(1)
    assert (world.sink.sequences("a"), world.log.reads) == ([1, 4], 0)


@virtually
async def test_what_is_not_resolved_holds_up_what_is_behind_it(world: World) -> None:
    """A position that somebody will write or seal is waited for, and found in the log even without news."""
    world.publisher.publish([world.log.store("a", 1)])
    world.publisher.publish([world.log.store("a", 3)])
    await asyncio.sleep(5)
    assert world.sink.sequences("a") == [1]
    world.log.store("a", 2, void=True)
    await asyncio.sleep(2)
    assert (world.sink.sequences("a"), world.outbox.marks) == ([1, 2, 3], {"a": 3})


@virtually
async def test_memory_is_bounded_and_nothing_is_lost(world: World) -> None:
    """While the bus is away only so many bodies are kept; the others are read again later, in order."""
    world.sink.go.clear()
    content = "x" * 60_000
    for number in range(1, 2 * BACKLOG_BYTES_MAX // 60_000):
        for chat_id in ("a", "b"):
            world.publisher.publish([world.log.store(chat_id, number, content=content)])
        if number % 50 == 0:
            await asyncio.sleep(1)
            assert world.publisher.backlog_bytes <= BACKLOG_BYTES_MAX + 8 * (PAGE_BYTES_MAX + MIB)
    count = world.log.head("a")
    assert world.publisher.backlog() == 2 * count
    world.sink.go.set()
    await asyncio.sleep(60)
    assert world.sink.sequences("a") == world.sink.sequences("b") == list(range(1, count + 1))
    assert (world.outbox.marks, world.publisher.backlog_bytes) == ({"a": count, "b": count}, 0)


@virtually
async def test_a_store_that_is_away_is_asked_again(world: World) -> None:
    """Neither the list nor the log need answer at once."""
    world.log.store("a", 1, 2)
    world.outbox.is_down = world.log.is_down = True
    world.publisher.publish([world.log.store("a", 3)])
    await asyncio.sleep(10)
    world.outbox.is_down = False
    await asyncio.sleep(10)
    assert world.sink.records == []
    world.log.is_down = False
    await asyncio.sleep(10)
    assert world.sink.sequences("a") == [1, 2, 3]


@virtually
async def test_one_look_at_the_list_serves_many_chats(world: World) -> None:
    """Chats that are new here at the same time are looked up together."""
    news = []
    for number in range(200):
        world.log.store(f"chat {number}", 1)
        news.append(world.log.store(f"chat {number}", 2))
    world.publisher.publish(news)
    await asyncio.sleep(5)
    assert world.outbox.lists <= 2
    assert world.outbox.marks == {f"chat {number}": 2 for number in range(200)}


def test_idle_chats_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many chats have been published, only so many are remembered, and too many are a sweeper's."""
    monkeypatch.setattr(publisher, "QUEUES_MAX", 10)

    async def scenario(world: World) -> None:
        for number in range(30):
            world.publisher.publish([world.log.store(f"slowly {number}", 1)])
            await asyncio.sleep(1)
        assert len(world.sink.records) == 30
        assert len(world.publisher._queues) <= 10
        world.sink.go.clear()
        world.publisher.publish([world.log.store(f"at once {number}", 1) for number in range(30)])
        assert await world.publisher.confirm([], {"at once 29": 1}) == {"at once 29": SERVICE_UNAVAILABLE}
        world.sink.go.set()
        await asyncio.sleep(10)
        assert len(world.sink.records) == 40

    run(scenario)


@virtually
async def test_a_rebuilt_log_is_published_from_its_start(world: World) -> None:
    """In another epoch the same numbers mean other entries."""
    world.publisher.publish([world.log.store("a", 1, 2, 3)])
    await asyncio.sleep(1)
    world.publisher.publish([Persisted("a", 2, [StoredEntry(1, wire_at("a", 1, "rebuilt"))])])
    await asyncio.sleep(1)
    assert world.sink.sequences("a") == [1, 2, 3, 1]


@virtually
async def test_stopping_finishes_what_can_be_finished(world: World) -> None:
    """What waits is sent before the end, and the marks are made durable."""
    world.publisher.publish([world.log.store("a", 1, 2)])
    await world.publisher.stop()
    assert (world.sink.sequences("a"), world.outbox.flushes) == ([1, 2], 1)


@virtually
async def test_stopping_waits_for_no_broken_bus(world: World) -> None:
    """Without a bus a node still stops soon."""
    world.sink.go.clear()
    world.publisher.publish([world.log.store("a", 1, 2)])
    await asyncio.sleep(1)
    async with asyncio.timeout(5):
        await world.publisher.stop()
    assert world.outbox.marks == {}


# Confirmations


@virtually
async def test_a_confirmation_comes_when_the_bus_has_it(world: World) -> None:
    """It publishes what it is given, waits for that, and refuses nothing."""
    late = await world.publisher.confirm([world.log.store("a", 1), world.log.store("b", 1)], {"a": 1, "b": 1})
    assert late == {}
    assert world.outbox.marks == {"a": 1, "b": 1}


@virtually
async def test_what_is_late_is_refused_as_stored_and_not_fanned_out(world: World) -> None:
    """A chat whose bus is away gets the documents' refusal and log line, and is published later."""
    world.sink.go.clear()
    started = asyncio.get_running_loop().time()
    with structlog.testing.capture_logs() as lines:
        late = await world.publisher.confirm([world.log.store("a", 1)], {"a": 1})
    assert late == {"a": SERVICE_UNAVAILABLE}
    assert asyncio.get_running_loop().time() - started == pytest.approx(CONFIRM_SECONDS_MAX)
    blocked = [line for line in lines if line.get("chat_id") == "a"]
    assert [(line["event"], line["sequence"]) for line in blocked] == [(FANOUT_BLOCKED, 1)]
    world.sink.go.set()
    await asyncio.sleep(1)
    assert world.sink.sequences("a") == [1]


@virtually
async def test_the_retry_of_what_was_not_published_publishes_it(world: World) -> None:
    """A node that has never seen the chat brings it to the bus from its mark when a retry asks."""
    world.log.store("a", 1, 2, 3)
    world.outbox.marks = {"a": 1}
    assert await world.publisher.confirm([], {"a": 2}) == {}
    assert (world.sink.sequences("a"), world.outbox.marks) == ([2, 3], {"a": 3})


@virtually
async def test_the_retry_of_what_was_published_publishes_nothing(world: World) -> None:
    """A chat that is not listed as behind is on the bus."""
    world.log.store("a", 1, 2, 3)
    world.outbox.marks = {"a": 3}
    assert await world.publisher.confirm([], {"a": 2}) == {}
    assert await world.publisher.confirm([], {"a": 3}) == {}
    assert world.sink.records == []


# Everything at once


@settings(max_examples=60, deadline=None)
@given(
    order=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 5)), max_size=40),
    failures=st.lists(st.sampled_from([True, False, None]), max_size=30),
    shuffled=st.randoms(use_true_random=False),
    lost=st.floats(0, 0.5),
)
def test_whatever_fails_every_chat_is_complete_and_in_order(
    order: list[tuple[str, int]], failures: list[bool], shuffled: object, lost: float
) -> None:
    """News is lost and shuffled, batches are stored or not, and each chat is whole and ascending."""
    run(partial(_play, order=order, failures=failures, chance=shuffled, lost=lost))


async def _play(
    world: World, order: list[tuple[str, int]], failures: list[bool], chance: object, lost: float
) -> None:
    assert isinstance(chance, Random)
    world.sink.failures = list(failures)
    other = world.another()
    news = []
    for chat_id, count in order:
        head = world.log.head(chat_id)
        stored = world.log.store(chat_id, *range(head + 1, head + count + 1))
        news += [Persisted(chat_id, 1, [position]) for position in stored.positions]
        chance.shuffle(news)
        while news and chance.random() < 0.8:
            item = news.pop()
            if chance.random() >= lost:
                chance.choice([world.publisher, other]).publish([item])
        await asyncio.sleep(chance.random())
    await asyncio.sleep(120)
    for chat_id, mark in world.outbox.marks.items():
        assert firsts(world.sink.sequences(chat_id))[:mark] == list(range(1, mark + 1))
    for either in (world.publisher, other):
        for chat_id in world.log.tables.chats:
            either.sweep(chat_id, world.outbox.marks.get(chat_id, 0), world.log.head(chat_id))
    await asyncio.sleep(120)
    for chat_id in world.log.tables.chats:
        head = world.log.head(chat_id)
        assert firsts(world.sink.sequences(chat_id)) == list(range(1, head + 1))
        assert world.outbox.marks[chat_id] == head
    await other.stop()


def firsts(sequences: list[int]) -> list[int]:
    """Each number where it first occurs."""
    return list(dict.fromkeys(sequences))
