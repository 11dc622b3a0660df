"""The other nodes: which are alive, which node owns which chat, and calls to them.

Each node renews its lease on the list of live nodes, and reads the list as often. A node that has failed is
suspected and gets no drafts until it answers again. When all nodes are suspected, they are called anyway.

The other nodes do not list a node whose lease has run out: it leaves its chats to nodes that say that their
own lease holds. When no lease holds, because Redis is gone for all, the last known list counts.

A node that is not listed is not told of bodies that were removed (`parley.cluster.forget_calls`). So it drops
what it keeps when its lease ends, also if it slept through that moment, and again when it is listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from parley import __version__
from parley.cluster import bodies
from parley.cluster.calls import NodeError, NodeRefused, NodeSilent, NodeUnreachable
from parley.core import rendezvous
from parley.ephemeral.ports import NODE_LEASE_SECONDS, NODE_RENEW_SECONDS, Node, Nodes
from parley.errors import SHUTTING_DOWN, OutcomeUnknown, Refusal, StoreUnavailable
from parley.model import Draft, Outcome, Persisted
from parley.sending.answers import SEND_SECONDS_MAX
from parley.sending.forwarder import RETRY_WITHIN_SECONDS
from parley.telemetry import Metrics

SILENCE_SECONDS = 1.5
"""A node that has not answered a call for so long is pinged."""
PING_SECONDS_MAX = 0.5
APPEND_SECONDS_MAX = SEND_SECONDS_MAX
"""How long a node that answers pings may take: its store is slow, and another node's would be too."""
NOTICE_SECONDS_MAX = 2.0
NEWS_SECONDS_MAX = 2.5
OWNERS_REMEMBERED_MAX = 100_000
assert SILENCE_SECONDS + PING_SECONDS_MAX < RETRY_WITHIN_SECONDS, "there is time for another node"

GATEWAY = "gateway"
INGEST = "ingest"
DELIVERY = "delivery"

log = structlog.get_logger("parley.cluster")


class NodeCalls(Protocol):
    """Signed calls: see `parley.cluster.calls.SignedCalls`."""

    async def post(self, url: str, body: bytes, timeout: float, target: str = "") -> bytes:
        """The body of a good answer; NodeUnreachable, NodeRefused or NodeSilent otherwise."""
        ...


class ClusterPeers:
    """The port `Peers` of the forwarder, over the list of live nodes.

    `is_ready`: whether this node can append now; while it cannot, it does not list the role. `target`: the
    name of this process, which calls to it carry. `since_ms`: when it started.
    """

    def __init__(
        self,
        *,
        node_id: str,
        roles: Sequence[str],
        nodes: Nodes,
        calls: NodeCalls,
        metrics: Metrics,
        is_ready: Callable[[], bool] = lambda: True,
        target: str = "",
        since_ms: int = 0,
    ) -> None:
        self._node_id = node_id
        self._forget_all: Callable[[], None] = lambda: None
        self._lease_end: asyncio.TimerHandle | None = None
        self._target = target
        self._since_ms = since_ms
        self._roles = tuple(roles)
        self._nodes = nodes
        self._calls = calls
        self._metrics = metrics
        self._is_ready = is_ready
        self._url = ""
        self._others: dict[str, Node] = {}
        self._suspected: dict[str, float] = {}
        self._leased_until = 0.0
        self._listed: set[str] = set()
        """Nodes that have said that their lease holds, while this node's does not."""
        self._candidates: list[str] = []
        self._owners: dict[str, str] = {}
        self._listing = asyncio.Lock()
        self._is_leaving = False
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, url: str, forget_all: Callable[[], None] = lambda: None) -> None:
        """Join the list with the address of this node, and learn the others.

        `forget_all` drops what this node keeps of bodies, except on disk.
        """
        self._url, self._forget_all = url, forget_all
        await self._renew()
        self._keeping = asyncio.create_task(self._keep())

    async def withdraw(self) -> None:
        """Leave the list: the first step of a shutdown. The others are still known and called."""
        self._is_leaving = True
        async with self._listing:
            await self._nodes.withdraw(self._node_id)
        self._forget_all()

    async def stop(self) -> None:
        if self._lease_end is not None:
            self._lease_end.cancel()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    def others(self, role: str) -> list[Node]:
        """The other live nodes with this role, suspected ones included."""
        return [node for node in self._others.values() if role in node.roles]

    @property
    def is_listed(self) -> bool:
        """Whether this node's own lease holds, as far as it knows."""
        return asyncio.get_running_loop().time() < self._leased_until

    @property
    def is_told(self) -> bool:
        """Whether the other nodes tell this one of bodies that were removed: only then may it keep any."""
        return self.is_listed and not self._is_leaving

    async def told(self) -> list[Node]:
        """Every other node that may keep bodies, as the list says now, suspected ones included.

        StoreUnavailable: this node is cut off, and others may have joined that it does not know.
        """
        listed = await self._nodes.alive()
        if self.is_cut_off:
            raise StoreUnavailable("this node cannot know which other nodes there are")
        return [node for node in listed if node.node_id != self._node_id]

    @property
    def is_cut_off(self) -> bool:
        """Whether other nodes may be listed while this one is not: it then knows less than they do."""
        return not self.is_listed and (bool(self._listed) or not self._others)

    def owner_of(self, chat_id: str) -> str | None:
        """See `Peers`. This node is named by its own id."""
        found = self._owners.get(chat_id)
        if found is None and (found := rendezvous.owner(chat_id, self._candidates)) is not None:
            if len(self._owners) >= OWNERS_REMEMBERED_MAX:
                self._owners.clear()
            self._owners[chat_id] = found
        return found

    async def append(self, node_id: str, drafts: Sequence[Draft]) -> list[Outcome]:
        """See `Peers`."""
        node = self._others.get(node_id)
        if node is None:
            raise StoreUnavailable(f"{node_id} is gone")
        try:
            answer = await self._post_patiently(node, bodies.APPEND, bodies.pack(drafts))
            outcomes = bodies.read_outcomes(answer, len(drafts))
        except NodeSilent as error:
            self._suspect(node_id, NODE_LEASE_SECONDS, str(error))
            raise OutcomeUnknown(str(error)) from error
        except NodeError as error:
            self._suspect(node_id, 0, str(error))
            raise StoreUnavailable(str(error)) from error
        except bodies.BadBody as error:
            raise OutcomeUnknown(f"{node_id} gave an answer that cannot be read: {error}") from error
        if any(isinstance(told, Refusal) and told.code == SHUTTING_DOWN.code for told in outcomes):
            self._suspect(node_id, 0, "it is going away")
        return outcomes

    async def tell(self, node: Node, notices: Sequence[bodies.Notice]) -> None:
        """Send notices to one node. Returns when it has accepted them; NodeError otherwise."""
        url = node.url + bodies.NOTICES
        await self._calls.post(url, bodies.pack(notices), NOTICE_SECONDS_MAX, node.target)

    async def tell_news(self, node_id: str, news: Sequence[Persisted]) -> None:
        """Bring entries to a node. Returns when its clients were told; NodeError otherwise."""
        if node_id not in self._others:
            await self.refresh()  # it may have joined a moment ago
        node = self._others.get(node_id)
        if node is None:
            raise NodeUnreachable(f"{node_id} is not on the list")
        await self._calls.post(node.url + bodies.NEWS, bodies.pack(news), NEWS_SECONDS_MAX, node.target)

    def has(self, role: str) -> bool:
        """Whether a node that is alive, this one included, has this role."""
        return role in self._roles or any(role in node.roles for node in self._others.values())

    # The list

    async def refresh(self) -> None:
        """Read the list of live nodes."""
        try:
            listed = await self._nodes.alive()
        except Exception:
            log.exception("the list of nodes could not be read")
            return
        self._warn_of_namesakes(listed)
        others = {node.node_id: node for node in listed if node.node_id != self._node_id}
        for node_id in others.keys() - self._others.keys():
            log.info("node joined", node=node_id, url=others[node_id].url, roles=others[node_id].roles)
        for node_id in self._others.keys() - others.keys():
            log.info("node left", node=node_id)
        self._others = others
        self._suspected = {node_id: at for node_id, at in self._suspected.items() if node_id in others}
        self._metrics.nodes.set(len(others) + 1)
        self._choose()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(NODE_RENEW_SECONDS)
            try:
                await self._renew()
            except Exception:
                log.exception("the list of nodes could not be kept")

    async def _renew(self) -> None:
        async with self._listing:
            if not self._is_leaving:
                roles = tuple(role for role in self._roles if role != INGEST or self._is_ready())
                until = asyncio.get_running_loop().time() + NODE_LEASE_SECONDS
                node = Node(self._node_id, self._url, roles, self._target, __version__, self._since_ms)
                if await self._nodes.announce(node):
                    self._lease_holds(until)
        await self.refresh()
        await self._ping_suspected()
        await self._ask_who_is_listed()

    def _lease_holds(self, until: float) -> None:
        loop, was_listed = asyncio.get_running_loop(), self.is_listed
        self._leased_until = until
        if self._lease_end is not None:
            self._lease_end.cancel()
        self._lease_end = loop.call_at(until, self._forget_all)
        if not was_listed:  # what it read before may have been removed since
            self._forget_all()

    def _warn_of_namesakes(self, listed: Sequence[Node]) -> None:
        for node in listed:
            if node.node_id == self._node_id and node.url != self._url:
                log.error("another node has this name: give each its own cluster.node", node=self._node_id)

    def _choose(self) -> None:
        """Which nodes append. When that changes, the owner of every chat is computed again."""
        appending = [node.node_id for node in self.others(INGEST)]
        trusted = [node_id for node_id in appending if node_id not in self._suspected]
        listed = [] if self.is_listed else [node_id for node_id in trusted if node_id in self._listed]
        if listed:
            trusted = listed
        elif INGEST in self._roles and self._is_ready():
            trusted.append(self._node_id)
        candidates = sorted(trusted or appending)
        if candidates != self._candidates:
            self._candidates = candidates
            self._owners.clear()

    # Suspicion

    def _suspect(self, node_id: str, seconds: float, why: str) -> None:
        """Send a node no drafts for at least so long, and then until it answers a ping."""
        if node_id not in self._others:
            return
        if node_id not in self._suspected:
            log.warning("node suspected", node=node_id, why=why)
        until = asyncio.get_running_loop().time() + seconds
        self._suspected[node_id] = max(until, self._suspected.get(node_id, 0))
        self._choose()

    async def _ping_suspected(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [self._others[node_id] for node_id, until in self._suspected.items() if until <= now]
        for node, answer in zip(due, await asyncio.gather(*map(self._ping, due)), strict=True):
            if isinstance(answer, bytes) and self._suspected.pop(node.node_id, None) is not None:
                log.info("node trusted again", node=node.node_id)
        self._choose()

    async def _ask_who_is_listed(self) -> None:
        """While this node has no lease, ask the others whether they have theirs."""
        asked = [] if self.is_listed else self.others(INGEST)
        answers = zip(asked, await asyncio.gather(*map(self._ping, asked)), strict=True)
        listed = {node.node_id for node, answer in answers if answer == bodies.LISTED}
        if bool(listed) != bool(self._listed):
            log.warning(
                "lease ran out" if listed else "lease holds, or no node has one", others=sorted(listed)
            )
        self._listed = listed
        self._choose()

    async def _ping(self, node: Node) -> bytes | int | None:
        """The answer of a node: bytes if it takes batches, else a status; None if there is no answer."""
        try:
            return await self._calls.post(node.url + bodies.PING, b"", PING_SECONDS_MAX, node.target)
        except NodeRefused as error:
            return error.status
        except NodeError:
            return None

    async def _post_patiently(self, node: Node, path: str, body: bytes) -> bytes:
        """Wait for a slow answer, unless its node does not answer a ping either."""
        call = asyncio.create_task(self._calls.post(node.url + path, body, APPEND_SECONDS_MAX, node.target))
        try:
            await asyncio.wait([call], timeout=SILENCE_SECONDS)
            is_slow = not call.done()
            if is_slow and await self._ping(node) is None and not call.done():
                raise NodeSilent(f"{node.node_id} answers neither a call nor a ping")
            try:
                return await call
            except NodeSilent as error:
                if is_slow:
                    raise OutcomeUnknown(f"{node.node_id} took too long: {error}") from error
                raise
        finally:
            call.cancel()
