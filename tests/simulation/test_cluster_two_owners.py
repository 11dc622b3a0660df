"""A node is cut off from Redis while another one joins: both believe a chat to be theirs, one store is slow.

The slow node is on nobody's list and never hears of the other one, so it appends all chats itself; the other
one has joined and appends those that weigh for it, whether it finds the slow one's last lease or not.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, TCPConnector

from parley.testing.dynamodb_faults import VARIABLE
from parley.wire.limits import ANSWER_SECONDS_MAX
from tests.acceptance.cluster_world import ClusterWorld
from tests.clusters import MODES, metric, nodes_on_shared_services
from tests.harness.clients import Frame, RawClient
from tests.harness.proxy import Chaos, ChaosProxy
from tests.harness.server import HOST
from tests.seeds import ROUNDS
from tests.services import redis_url

IS_LONG = ROUNDS > 100
SLOW, QUICK = "slow", "quick"
LATE_MS = 400
WINDOW = 8
SLOW_TURNS = 2
BUSY_SECONDS = 5.0
"""What a machine that does other work may add to a promise."""
PROGRESS_SECONDS_MAX = 60.0
RETRY_PAUSE_SECONDS = 0.1


class Writer:
    """Pipelines messages that name their predecessors, and repeats with their ids what was not stored."""

    def __init__(self, client: RawClient, chat_id: str) -> None:
        self._client = client
        self._chat_id = chat_id
        self._last: str | None = None
        self.head = 0

    async def say(self, count: int) -> None:
        """Each transmission is answered in time: stored, or refused for now."""
        left = [str(uuid.uuid4()) for _ in range(count)]
        while left:
            sent, previous = [], self._last
            for client_id in left:
                sent.append(await self._post(client_id, previous))
                previous = client_id
            answers = [await self._client.answered(answer) for answer in sent]
            for client_id, answer in zip(tuple(left), answers, strict=True):
                if self._is_stored(answer):
                    left.remove(client_id)
                    self._last = client_id
            if left:
                await asyncio.sleep(RETRY_PAUSE_SECONDS)

    async def _post(self, client_id: str, previous: str | None) -> asyncio.Future[Frame]:
        fields = {"after_client_message_id": previous}
        return await self._client.post_message(self._chat_id, f"said as {client_id}", client_id, **fields)

    def _is_stored(self, answer: Frame) -> bool:
        if answer["type"] == "ack":
            self.head = max(self.head, answer["sequence"])
            return True
        assert answer["temporary"], f"refused for good: {answer}"
        return False

    async def go_on(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self.say(WINDOW)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["atomic", "dynamodb"] if IS_LONG else ["atomic"])
async def test_two_owners_of_a_chat_answer_in_time_and_keep_its_order(mode: str, tmp_path: Path) -> None:
    """Every send is answered, acks precede entries, the slow node gets on, and all is stored once."""
    async with two_owners(tmp_path, mode) as world, AsyncExitStack() as stack:
        chat_id = await world.chat_appended_by(QUICK, [world.ben])
        slow, quick = [
            [await stack.enter_async_context(client) for client in clients_of(world, name)]
            for name in (SLOW, QUICK)
        ]
        head = await talk_at_once(*([Writer(each, chat_id) for each in half] for half in (slow, quick)))
        await asyncio.gather(*(client.live_entry(chat_id, head) for client in (*slow, *quick)))
        assert await metric(world.session, world.cluster[SLOW], "parley_nodes") == 1
        assert [*world.order.overtaken, *await world.breaches()] == []


def clients_of(world: ClusterWorld, name: str) -> list[RawClient]:
    """Ann and Ben on one node. Whatever they wait for must come within the promise."""
    patience = {"deadline_seconds": ANSWER_SECONDS_MAX + BUSY_SECONDS}
    return [world.client(world.cluster[name], person, **patience) for person in (world.ann, world.ben)]


async def talk_at_once(slow: list[Writer], quick: list[Writer]) -> int:
    """The quick ones write without a pause until the slow ones are through; the chat's last position."""
    over = asyncio.Event()
    async with asyncio.timeout(PROGRESS_SECONDS_MAX), asyncio.TaskGroup() as group:
        for writer in quick:
            group.create_task(writer.go_on(over))
        for _ in range(SLOW_TURNS):
            await asyncio.gather(*(writer.say(WINDOW) for writer in slow))
        over.set()
    return max(writer.head for writer in (*slow, *quick))


@asynccontextmanager
async def two_owners(folder: Path, mode: str) -> AsyncIterator[ClusterWorld]:
    """The slow node started and was cut off from Redis; then the other one joined."""
    redis_port = urlsplit(await asyncio.to_thread(redis_url)).port or 0
    async with ChaosProxy(redis_port, Random(1)) as way_to_redis:
        settings = {"PARLEY_REDIS_URL": f"redis://{HOST}:{way_to_redis.port}", VARIABLE: f"late_ms:{LATE_MS}"}
        cluster = nodes_on_shared_services(folder, (QUICK, SLOW), MODES[mode], {SLOW: settings})
        try:
            await asyncio.to_thread(cluster.init)
            await asyncio.to_thread(cluster[SLOW].start)
            way_to_redis.chaos = Chaos(refuse_connections=True)
            way_to_redis.cut_all()
            await asyncio.to_thread(cluster[QUICK].start)
            async with ClientSession(connector=TCPConnector(limit=0)) as session:
                world = ClusterWorld(cluster, session)
                await world.populate()
                yield world
        finally:
            await asyncio.to_thread(cluster.kill)
