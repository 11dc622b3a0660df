"""The allocators under contract, each behind a line that can lose requests and answers.

async def test_something(kind: Kind) -> None:
    async with kind() as world:
        await world.allocator.create(chat)
        world.line.loses_answers = True
        await world.hasty.allocate(chat, 1, 0)     # gives up soon
"""

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

from parley.clock import wall_clock
from parley.cluster.calls import SignedCalls
from parley.core.cluster_keys import ClusterKeys
from parley.sequencing.batches import CoalescingAllocator
from parley.sequencing.redis import RedisAllocator
from parley.sequencing.remote import RemoteAllocator
from parley.sequencing.service import Sequencer
from parley.store.dynamodb.allocator import DynamoAllocator
from parley.store.dynamodb.driver import Dynamo, RequestRejected
from parley.store.dynamodb.schema import COUNTERS, TABLES
from parley.store.ports import Allocator
from parley.telemetry import Metrics
from tests.contracts.line import Line, line_to
from tests.services import dynamodb_endpoint, fresh_prefix, redis_url

SECRET = "the secret of a cluster in tests"
SERVICE = "sequencer.1"
REGION = "eu-central-1"
HASTY_SECONDS = 0.2
PATIENT_SECONDS = 20.0


class World(NamedTuple):
    """Two allocators over the same counters: one that waits long enough, and one to be disappointed."""

    allocator: Allocator
    hasty: Allocator
    line: Line


Kind = Callable[[], AbstractAsyncContextManager[World]]


def new_chat() -> str:
    """A chat that no other test has: the services are shared."""
    return f"chat_{secrets.token_hex(13)}"


@cache
def prefix() -> str:
    return fresh_prefix()


@asynccontextmanager
async def dynamo_at(endpoint: str, answer_seconds: float = PATIENT_SECONDS) -> AsyncIterator[Dynamo]:
    dynamo = Dynamo(endpoint, REGION, prefix=prefix(), answer_seconds=answer_seconds)
    await dynamo.open()
    try:
        yield dynamo
    finally:
        await dynamo.close()


async def make_table(endpoint: str) -> None:
    """The one table that counters need."""
    async with dynamo_at(endpoint) as dynamo:
        with contextlib.suppress(RequestRejected):  # it is there since another test
            await dynamo.call("CreateTable", TABLES[COUNTERS].request(dynamo.table(COUNTERS)))


def dynamo_allocator(dynamo: Dynamo, deadline_seconds: float) -> DynamoAllocator:
    chance = random.Random(7).random
    return DynamoAllocator(dynamo, clock=wall_clock, random=chance, deadline_seconds=deadline_seconds)


@asynccontextmanager
async def over_dynamodb() -> AsyncIterator[World]:
    endpoint = await asyncio.to_thread(dynamodb_endpoint)
    await make_table(endpoint)
    async with line_to(port_of(endpoint)) as line:
        url = f"http://127.0.0.1:{line.port}"
        async with dynamo_at(url) as patient, dynamo_at(url, HASTY_SECONDS) as hasty:
            allocator = dynamo_allocator(patient, PATIENT_SECONDS)
            yield World(CoalescingAllocator(allocator), dynamo_allocator(hasty, HASTY_SECONDS * 3), line)


@asynccontextmanager
async def over_redis() -> AsyncIterator[World]:
    async with line_to(port_of(await asyncio.to_thread(redis_url))) as line:
        url = f"redis://127.0.0.1:{line.port}/0"
        allocator = RedisAllocator(url, answer_seconds=PATIENT_SECONDS)
        hasty = RedisAllocator(url, answer_seconds=HASTY_SECONDS)
        try:
            yield World(CoalescingAllocator(allocator), hasty, line)
        finally:
            await allocator.close()
            await hasty.close()


@asynccontextmanager
async def sequencer_over(allocator: Allocator, metrics: Metrics | None = None) -> AsyncIterator[str]:
    """A running Sequence Service; its address."""
    sequencer = Sequencer(
        allocator,
        host="127.0.0.1",
        port=0,
        keys=ClusterKeys(SECRET),
        name=SERVICE,
        clock=wall_clock,
        metrics=metrics or Metrics(wall_clock),
    )
    port = await sequencer.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await sequencer.stop()


@asynccontextmanager
async def remote_at(
    *urls: str, secret: str = SECRET, answer_seconds: float = PATIENT_SECONDS
) -> AsyncIterator[RemoteAllocator]:
    calls = SignedCalls(ClusterKeys(secret), clock=wall_clock, random_bytes=secrets.token_bytes)
    try:
        yield RemoteAllocator(urls, calls, answer_seconds=answer_seconds)
    finally:
        await calls.close()


@asynccontextmanager
async def by_service(below: Kind) -> AsyncIterator[World]:
    async with (
        below() as counters,
        sequencer_over(counters.allocator) as url,
        line_to(port_of(url)) as line,
        remote_at(f"http://127.0.0.1:{line.port}") as allocator,
        remote_at(f"http://127.0.0.1:{line.port}", answer_seconds=HASTY_SECONDS) as hasty,
    ):
        yield World(allocator, hasty, line)


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


KINDS: dict[str, Kind] = {
    "dynamodb": over_dynamodb,
    "redis": over_redis,
    "service-dynamodb": lambda: by_service(over_dynamodb),
    "service-redis": lambda: by_service(over_redis),
}
