"""Slow mode where a member changes between two nodes that both append to the chat."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parley.clock import MS_PER_SECOND
from parley.errors import Refusal
from parley.model import Appended
from tests.contracts import dynamodb_world, test_cassandra_log
from tests.contracts.acting import add_group, add_people, message, posting, stored
from tests.contracts.engines import OpenStore
from tests.contracts.test_posting import SLOW_SECONDS, told

STORES = ("dynamodb", "cassandra")


@asynccontextmanager
async def two_nodes(store: str, mode: str) -> AsyncIterator[tuple[OpenStore, OpenStore]]:
    if store == "cassandra":
        async with test_cassandra_log.two_nodes(mode) as (one, two):
            yield one, two
    else:
        async with dynamodb_world.world(mode) as (first, second):
            yield first, second


async def slowed(store: OpenStore) -> tuple[str, str, str]:
    """A group in slow mode, its owner and a member."""
    ann, cat = await add_people(store, "the owner", "a member")
    chat = await add_group(store, ann, cat)
    await stored(store, posting(chat, ann, slow_mode_seconds=SLOW_SECONDS))
    return chat, ann, cat


@pytest.mark.parametrize("store", STORES)
async def test_in_atomic_another_node_counts_at_once(store: str) -> None:
    """Who has just sent through one node is refused at the other, which knew the chat before."""
    async with two_nodes(store, "atomic") as (one, two):
        chat, ann, cat = await slowed(one)
        await stored(two, message(chat, ann))
        (sent,) = await told(one, message(chat, cat))
        assert isinstance(sent, Appended)
        (refused,) = await told(two, message(chat, cat))
        assert isinstance(refused, Refusal)


@pytest.mark.parametrize("mode", ["atomic", "two_phase"])
@pytest.mark.parametrize("store", STORES)
async def test_another_node_counts_once_this_one_has_appended(store: str, mode: str) -> None:
    """In both modes: then it knows the log as far, whoever wrote it."""
    async with two_nodes(store, mode) as (one, two):
        chat, ann, cat = await slowed(one)
        for node in (two, one, two):
            one.clock.advance(SLOW_SECONDS * MS_PER_SECOND)
            (sent,) = await told(node, message(chat, cat))
            assert isinstance(sent, Appended)
            for other in (one, two):
                await stored(other, message(chat, ann))
                (refused,) = await told(other, message(chat, cat))
                assert isinstance(refused, Refusal)
