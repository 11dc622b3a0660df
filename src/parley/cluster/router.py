"""Brings events to the nodes whose clients hear them, and to no other node.

The interest is looked up after an event was read, never before and never from a cache. An event is done when
every node that the lookup found has confirmed it, or that node's tenure has ended: then the node registers
everything again and reads the heads, and so finds what it did not get. A node that does not confirm in time
loses its tenure by the router's hand, so that it delays the others for seconds at most.

While the registry cannot be asked, every gateway on the list is told, and nothing is done until the registry
is back and all tenures have been ended: a node that was not on the list then reads its heads. See
docs/fan-out.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import structlog
from msgspec import Struct

from parley.cluster.calls import NodeError
from parley.core.backoff import backoff
from parley.ephemeral.ports import TENURE_LEASE_SECONDS, Interests
from parley.model import Persisted
from parley.store.ports import Directory
from parley.telemetry import Metrics
from parley.wire.limits import KIB, MIB

GROUP = "routing"
UNCONFIRMED_SECONDS_MAX = TENURE_LEASE_SECONDS
"""A node that has confirmed nothing for so long loses its tenure: as soon as if it had died."""
RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 1.0
CALL_BYTES_MAX = 512 * KIB
POSITION_BYTES_BESIDE_WIRE = 256
NODE_QUEUE_BYTES_MAX = 8 * MIB
"""What may wait for one node. Beyond it the router takes no more events until the node confirms or is out."""
REGISTRY_RETRY_SECONDS = 1.0
MEMBERS_PER_PAGE = 500
FIRST_SEQUENCE = 1

log = structlog.get_logger("parley.router")

Confirmed = asyncio.Future[None]


class RoutedPeers(Protocol):
    """The other nodes: see `parley.cluster.peers.ClusterPeers`."""

    async def tell_news(self, node_id: str, news: Sequence[Persisted]) -> None:
        """Bring entries to a node. Returns when its clients were told; NodeError otherwise."""
        ...


class NodeBatch(Struct, eq=False):
    """What one chunk has for one node, and under which tenures the node is to get it; none: as a hint."""

    news: list[Persisted]
    tenures: frozenset[str]
    size: int
    since: float
    confirmed: Confirmed


class NodeQueue(Struct, eq=False):
    """The batches that one node has not confirmed, in order. One call is under way at a time."""

    node_id: str
    batches: deque[NodeBatch]
    size: int = 0
    failing_since: float | None = None
    room: asyncio.Event | None = None

    def add(self, batch: NodeBatch) -> None:
        self.batches.append(batch)
        self.size += batch.size

    def take(self, count: int) -> list[NodeBatch]:
        """The first so many, which then no longer wait."""
        taken = [self.batches.popleft() for _ in range(count)]
        self.size -= sum(batch.size for batch in taken)
        if self.room is not None:
            self.room.set()
        return taken


class Router:
    """`deliver` brings news to the clients of this node; None if it has none.

    `gateways`: the ids of the other nodes with clients, as far as this node knows.
    """

    def __init__(
        self,
        *,
        node_id: str,
        interests: Interests,
        directory: Directory,
        peers: RoutedPeers,
        gateways: Callable[[], Iterable[str]],
        deliver: Callable[[list[Persisted]], None] | None,
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._interests = interests
        self._directory = directory
        self._peers = peers
        self._gateways = gateways
        self._deliver = deliver
        self._metrics = metrics
        self._queues: dict[str, NodeQueue] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._registry_back: Confirmed | None = None
        self._waiting_for_registry: asyncio.Task[None] | None = None

    async def route(self, news: list[Persisted]) -> Confirmed:
        """Queue events for the nodes that hear them, in order. They must have been read before the call.

        What it returns is done when all of these nodes have confirmed, or have lost their tenures.
        """
        subjects = await self._subjects_of(news)
        found = await self._interests.tenures(list(dict.fromkeys(one for some in subjects for one in some)))
        if found is None:
            return await self._tell_everybody(news)
        routes: dict[str, tuple[list[Persisted], set[str]]] = {}
        for item, some in zip(news, subjects, strict=True):
            tenures = {tenure for subject in some for tenure in found[subject]}
            for node_id in dict.fromkeys(map(node_of, sorted(tenures))):
                if node_id != item.told_by:
                    batch = routes.setdefault(node_id, ([], set()))
                    batch[0].append(item)
                    batch[1].update(tenure for tenure in tenures if node_of(tenure) == node_id)
        sent = [await self._send(node_id, *batch) for node_id, batch in routes.items()]
        return _all_of([confirmed for confirmed in sent if confirmed is not None])

    async def _subjects_of(self, news: list[Persisted]) -> list[list[str]]:
        """For each item its chat, the people whom it changes, and, if it begins the chat, all members."""
        subjects = []
        for item in news:
            changed = [stored.change.user_id for stored in item.positions if stored.change is not None]
            some = [item.chat_id, *filter(None, changed)]
            if item.positions[0].sequence == FIRST_SEQUENCE:
                some += await self._members_of(item.chat_id)
            subjects.append(some)
        return subjects

    async def _members_of(self, chat_id: str) -> list[str]:
        """The notice of a new chat may be lost: its first entry goes to all whom it should have reached."""
        found: list[str] = []
        while True:
            page = await self._directory.members(chat_id, found[-1] if found else "", MEMBERS_PER_PAGE)
            found += [member.user_id for member in page]
            if len(page) < MEMBERS_PER_PAGE:
                return found

    async def _send(self, node_id: str, news: list[Persisted], tenures: set[str]) -> Confirmed | None:
        """None: it is done already."""
        if not news:
            return None
        if node_id == self._node_id:
            if self._deliver is not None:
                self._deliver(news)
            return None
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = NodeQueue(node_id, deque())
        while queue.size >= NODE_QUEUE_BYTES_MAX:
            queue.room = asyncio.Event()
            await queue.room.wait()
        loop = asyncio.get_running_loop()
        batches = [
            NodeBatch(some, frozenset(tenures), size_of(some), loop.time(), loop.create_future())
            for some in _cut(news)
        ]
        for batch in batches:
            queue.add(batch)
        sender = self._senders.get(node_id)
        if sender is None or sender.done():
            self._senders[node_id] = loop.create_task(self._work(queue))
        return _all_of([batch.confirmed for batch in batches])

    # One node

    async def _work(self, queue: NodeQueue) -> None:
        """Until nothing waits for the node."""
        time = asyncio.get_running_loop().time
        failures = 0
        while queue.batches:
            count = _fitting(queue.batches)
            news = [item for batch in list(queue.batches)[:count] for item in batch.news]
            try:
                await self._peers.tell_news(queue.node_id, news)
            except NodeError as error:
                queue.failing_since = queue.failing_since or time()
                if time() - queue.failing_since >= UNCONFIRMED_SECONDS_MAX:
                    await self._give_up(queue, str(error))
                    continue
                self._metrics.route_failures.labels("retried").inc()
                await asyncio.sleep(backoff(failures, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX))
                failures += 1
            else:
                self._confirm(queue.take(count))
                queue.failing_since, failures = None, 0

    def _confirm(self, batches: list[NodeBatch]) -> None:
        now = asyncio.get_running_loop().time()
        self._metrics.routed_batches.inc()
        for batch in batches:
            self._metrics.routed_positions.inc(sum(len(item.positions) for item in batch.news))
            self._metrics.route_confirm_seconds.observe(now - batch.since)
            _finish(batch.confirmed)

    async def _give_up(self, queue: NodeQueue, why: str) -> None:
        """End the tenures of a node that does not confirm: it finds out, and reads the heads."""
        batches = queue.take(len(queue.batches))
        queue.failing_since = None
        self._metrics.route_failures.labels("given_up").inc(len(batches))
        log.warning("a node does not confirm", node=queue.node_id, batches=len(batches), why=why)
        ended = True
        for tenure in sorted({tenure for batch in batches for tenure in batch.tenures}):
            ended = await self._interests.end(tenure) and ended
        for batch in batches:
            if ended or not batch.tenures:
                _finish(batch.confirmed)
            else:
                back = self._until_registry_is_back()
                back.add_done_callback(lambda _, done=batch.confirmed: _finish(done))  # type: ignore[misc]

    # Without the registry

    async def _tell_everybody(self, news: list[Persisted]) -> Confirmed:
        """Every gateway may have a client that hears it."""
        back = self._until_registry_is_back()
        for node_id in (self._node_id, *self._gateways()):
            await self._send(node_id, [item for item in news if item.told_by != node_id], set())
        return back

    def _until_registry_is_back(self) -> Confirmed:
        """Done when the registry has answered and every tenure was ended. Others may have begun since."""
        if self._registry_back is None:
            loop = asyncio.get_running_loop()
            self._registry_back = loop.create_future()
            self._waiting_for_registry = loop.create_task(self._wait_for_registry(self._registry_back))
            log.warning("the registry cannot be asked: every gateway is told of everything")
        return self._registry_back

    async def _wait_for_registry(self, back: Confirmed) -> None:
        while not await self._interests.end():  # noqa: ASYNC110 - nothing tells when it is back
            await asyncio.sleep(REGISTRY_RETRY_SECONDS)
        self._registry_back = None
        log.info("the registry is back: all nodes register again")
        _finish(back)

    async def close(self) -> None:
        """What is under way stays unconfirmed: another router begins with it."""
        tasks = [*self._senders.values(), *filter(None, [self._waiting_for_registry])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def node_of(tenure: str) -> str:
    """A tenure is named after its node."""
    return tenure.rpartition(".")[0]


def size_of(news: list[Persisted]) -> int:
    return sum(
        len(stored.wire or b"") + POSITION_BYTES_BESIDE_WIRE for item in news for stored in item.positions
    )


def _cut(news: list[Persisted]) -> list[list[Persisted]]:
    """Parts that fit into a call each, unless one item is larger."""
    parts: list[list[Persisted]] = []
    size = CALL_BYTES_MAX + 1
    for item in news:
        size += size_of([item])
        if size > CALL_BYTES_MAX:
            parts.append([])
            size = size_of([item])
        parts[-1].append(item)
    return parts


def _fitting(batches: Iterable[NodeBatch]) -> int:
    """How many of the first ones fit into one call, and at least one."""
    size = 0
    for count, batch in enumerate(batches):
        size += batch.size
        if count and size > CALL_BYTES_MAX:
            return count
    return count + 1


def _finish(confirmed: Confirmed) -> None:
    if not confirmed.done():
        confirmed.set_result(None)


def _all_of(parts: list[Confirmed]) -> Confirmed:
    """Done when all of these are."""
    whole: Confirmed = asyncio.get_running_loop().create_future()
    left = len(parts)

    def one_done(_: Awaitable[None]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            _finish(whole)

    for part in parts:
        part.add_done_callback(one_done)
    if not parts:
        whole.set_result(None)
    return whole
