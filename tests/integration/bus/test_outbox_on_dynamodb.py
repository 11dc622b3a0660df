"""The publisher over the log and the outbox of DynamoDB, in both modes, with nodes that take chats over."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.bus.publisher import Publisher
from parley.bus.sweeper import SWEEP_AFTER_MS, Sweeper
from parley.clock import wall_clock
from parley.model import Draft
from parley.telemetry import Metrics
from tests.contracts.acting import add_group, add_people, message
from tests.contracts.dynamodb_engine import DynamoOpenStore
from tests.contracts.dynamodb_nodes import nodes
from tests.unit.bus.world import FakeSink
from tests.waiting import eventually

MODES = [None, "dynamodb"]


class Ingest:
    """A node that stores drafts and publishes what became of them, or dies in between."""

    def __init__(self, store: DynamoOpenStore, sink: FakeSink, name: str) -> None:
        self.store = store.store
        self.lists = 0
        self.publisher = Publisher(
            log=self.store.log,
            outbox=self,
            sink=sink,
            metrics=Metrics(wall_clock),
            node=name,
            clock=wall_clock,
            chance=random.Random(7).random,
        )

    async def say(self, *drafts: Draft, is_published: bool = True) -> None:
        result = await self.store.log.append(drafts)
        if is_published:
            self.publisher.publish(result.persisted)

    def note_published(self, chat_id: str, through: int) -> None:
        self.store.outbox.note_published(chat_id, through)

    async def unpublished(self) -> dict[str, int]:
        self.lists += 1
        return await self.store.outbox.unpublished()

    async def flush(self) -> None:
        await self.store.outbox.flush()


@asynccontextmanager
async def two_nodes(mode: str | None) -> AsyncIterator[tuple[Ingest, Ingest, FakeSink, str, str]]:
    async with nodes(2, mode, publishes=True) as (one, other):
        (ann,) = await add_people(one, "ann")
        chat_id = await add_group(one, ann)
        sink = FakeSink()
        both = Ingest(one, sink, "one"), Ingest(other, sink, "other")
        yield *both, sink, ann, chat_id
        for node in both:
            await node.publisher.stop()


@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_that_changes_hands_is_published_once(mode: str | None) -> None:
    """Who takes over knows from the store how far the other was, and asks nobody for it."""
    async with two_nodes(mode) as (one, other, sink, ann, chat_id):
        await one.say(*(message(chat_id, ann) for _ in range(3)))
        await eventually(lambda: one.publisher.backlog() == 0)
        await one.flush()
        await other.say(message(chat_id, ann), message(chat_id, ann))
        await eventually(lambda: other.publisher.backlog() == 0)
        assert sink.sequences(chat_id) == [1, 2, 3, 4, 5]
        assert (one.lists, other.lists) == (0, 0)
        await other.flush()
        assert await one.unpublished() == {}


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_dead_node_stored_goes_first(mode: str | None) -> None:
    """Entries that were acknowledged and never published come before the next node's own."""
    async with two_nodes(mode) as (dies, lives, sink, ann, chat_id):
        await dies.say(message(chat_id, ann, "published"))
        await eventually(lambda: sink.sequences(chat_id) == [1])
        await dies.say(message(chat_id, ann, "left behind"), is_published=False)
        await lives.say(message(chat_id, ann, "own"))
        await eventually(lambda: sink.sequences(chat_id)[-2:] == [2, 3])
        assert list(dict.fromkeys(sink.sequences(chat_id))) == [1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_dead_node_left_in_a_quiet_chat_is_swept(mode: str | None) -> None:
    """Nobody writes there any more, and it is published all the same, and no longer listed."""
    async with two_nodes(mode) as (dies, lives, sink, ann, chat_id):
        await dies.say(message(chat_id, ann), message(chat_id, ann), is_published=False)
        metrics = Metrics(wall_clock)
        sweeper = Sweeper(lives, lives.store.log, lives.publisher, metrics, wall_clock)
        assert await sweeper.sweep(wall_clock()) == []
        assert await sweeper.sweep(wall_clock() + SWEEP_AFTER_MS) == [chat_id]
        await eventually(lambda: lives.publisher.backlog() == 0)
        assert sink.sequences(chat_id) == [1, 2]
        await lives.flush()
        assert await sweeper.sweep(wall_clock() + 2 * SWEEP_AFTER_MS) == []
        assert await lives.unpublished() == {}


@pytest.mark.parametrize("mode", MODES)
async def test_two_nodes_that_both_write_leave_the_chat_whole(mode: str | None) -> None:
    """Whoever believes that a chat is theirs: each position is published, and first in its order."""
    async with two_nodes(mode) as (one, other, sink, ann, chat_id):

        async def write(node: Ingest) -> None:
            for _ in range(10):
                await node.say(message(chat_id, ann))

        await asyncio.gather(write(one), write(other))
        await eventually(lambda: set(sink.sequences(chat_id)) == set(range(1, 21)), 30)
        assert list(dict.fromkeys(sink.sequences(chat_id))) == list(range(1, 21))
