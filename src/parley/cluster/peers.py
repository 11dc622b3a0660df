"""This node among the others: who is alive, whose chat is whose, and calls to them.

Each node renews its lease on the list and reads the list as often. Who has failed is doubted: passed over
until it answers again. When everybody is doubted, somebody doubtful is better than nobody.

A node whose own lease has run out is on nobody's list: it leaves its chats to those who say that they are.
When nobody is, as when Redis is gone for all, the last known list counts for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from parley.chats.forwarding import RETRY_WITHIN_SECONDS
from parley.chats.sending import SEND_SECONDS_MAX
from parley.cluster import bodies
from parley.cluster.calls import NodeError, NodeRefused, NodeSilent
from parley.core import rendezvous
from parley.ephemeral.ports import NODE_LEASE_SECONDS, NODE_RENEW_SECONDS, Node, Nodes
from parley.errors import SHUTTING_DOWN, OutcomeUnknown, Refusal, StoreUnavailable
from parley.model import Draft, Outcome
from parley.telemetry import Metrics

SILENCE_SECONDS = 1.5
"""After so long without an answer, a node is asked whether it is there at all."""
PING_SECONDS_MAX = 0.5
APPEND_SECONDS_MAX = SEND_SECONDS_MAX
"""How long a node that is there may take: its store is slow, and another node's would be too."""
NOTICE_SECONDS_MAX = 2.0
OWNERS_REMEMBERED_MAX = 100_000
assert SILENCE_SECONDS + PING_SECONDS_MAX < RETRY_WITHIN_SECONDS, "there is time for another node"

GATEWAY = "gateway"
INGEST = "ingest"

log = structlog.get_logger("parley.cluster")


class Caller(Protocol):
    """Signed calls: see `parley.cluster.calls.SignedCalls`."""

    async def post(self, url: str, body: bytes, timeout: float) -> bytes:
        """The body of a good answer; NodeUnreachable, NodeRefused or NodeSilent otherwise."""
        ...


class ClusterPeers:
    """The port `Peers` of forwarding, over the list of live nodes.

    `is_ready`: whether this node could append now; while it could not, it offers nobody to.
    """

    def __init__(
        self,
        node_id: str,
        roles: Sequence[str],
        nodes: Nodes,
        calls: Caller,
        metrics: Metrics,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._node_id = node_id
        self._roles = tuple(roles)
        self._nodes = nodes
        self._calls = calls
        self._metrics = metrics
        self._is_ready = is_ready
        self._url = ""
        self._others: dict[str, Node] = {}
        self._doubted: dict[str, float] = {}
        self._leased_until = 0.0
        self._listed: set[str] = set()
        """Nodes that said that their lease holds, since this one's has run out."""
        self._candidates: list[str] = []
        self._owners: dict[str, str] = {}
        self._listing = asyncio.Lock()
        self._is_leaving = False
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, url: str) -> None:
        """Go on the list with the address that others reach this node by, and know the others."""
        self._url = url
        await self._renew()
        self._keeping = asyncio.create_task(self._keep())

    async def withdraw(self) -> None:
        """Go off the list: the first step of going away. The others are still known and called."""
        self._is_leaving = True
        async with self._listing:
            await self._nodes.withdraw(self._node_id)

    async def stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    def others(self, role: str) -> list[Node]:
        """The other live nodes with this role, also those that are doubted."""
        return [node for node in self._others.values() if role in node.roles]

    @property
    def is_listed(self) -> bool:
        """Whether this node's own lease holds, as far as it knows."""
        return asyncio.get_running_loop().time() < self._leased_until

    def owner_of(self, chat_id: str) -> str | None:
        """The port `Peers`: this node by its own id."""
        found = self._owners.get(chat_id)
        if found is None and (found := rendezvous.owner(chat_id, self._candidates)) is not None:
            if len(self._owners) >= OWNERS_REMEMBERED_MAX:
                self._owners.clear()
            self._owners[chat_id] = found
        return found

    async def append(self, node_id: str, drafts: Sequence[Draft]) -> list[Outcome]:
        """The port `Peers`."""
        node = self._others.get(node_id)
        if node is None:
            raise StoreUnavailable(f"{node_id} is gone")
        try:
            answer = await self._post_patiently(node, bodies.APPEND, bodies.pack(drafts))
            outcomes = bodies.read_outcomes(answer, len(drafts))
        except NodeSilent as error:
            self._doubt(node_id, NODE_LEASE_SECONDS, str(error))
            raise OutcomeUnknown(str(error)) from error
        except NodeError as error:
            self._doubt(node_id, 0, str(error))
            raise StoreUnavailable(str(error)) from error
        except bodies.BadBody as error:
            raise OutcomeUnknown(f"{node_id} gave no answer to make sense of: {error}") from error
        if any(isinstance(told, Refusal) and told.code == SHUTTING_DOWN.code for told in outcomes):
            self._doubt(node_id, 0, "it is going away")
        return outcomes

    async def tell(self, node: Node, notices: Sequence[bodies.Notice]) -> None:
        """Notices to one node; it has heard them when this returns. NodeError otherwise."""
        await self._calls.post(node.url + bodies.NOTICES, bodies.pack(notices), NOTICE_SECONDS_MAX)

    # The list

    async def look(self) -> None:
        """Read the list of live nodes."""
        try:
            listed = await self._nodes.alive()
        except Exception:
            log.exception("the list of nodes could not be read")
            return
        self._warn_of_namesakes(listed)
        others = {node.node_id: node for node in listed if node.node_id != self._node_id}
        for node_id in others.keys() - self._others.keys():
            log.info("node came", node=node_id, url=others[node_id].url, roles=others[node_id].roles)
        for node_id in self._others.keys() - others.keys():
            log.info("node went", node=node_id)
        self._others = others
        self._doubted = {node_id: at for node_id, at in self._doubted.items() if node_id in others}
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
                if await self._nodes.announce(Node(self._node_id, self._url, roles)):
                    self._leased_until = until
        await self.look()
        await self._ask_doubted()
        await self._ask_who_is_listed()

    def _warn_of_namesakes(self, listed: Sequence[Node]) -> None:
        for node in listed:
            if node.node_id == self._node_id and node.url != self._url:
                log.error("another node has this name: give each its own cluster.node", node=self._node_id)

    def _choose(self) -> None:
        """Who appends; the chats' owners are weighed anew when that changes."""
        appending = [node.node_id for node in self.others(INGEST)]
        trusted = [node_id for node_id in appending if node_id not in self._doubted]
        listed = [] if self.is_listed else [node_id for node_id in trusted if node_id in self._listed]
        if listed:
            trusted = listed
        elif INGEST in self._roles and self._is_ready():
            trusted.append(self._node_id)
        candidates = sorted(trusted or appending)
        if candidates != self._candidates:
            self._candidates = candidates
            self._owners.clear()

    # Doubt

    def _doubt(self, node_id: str, seconds: float, why: str) -> None:
        """Pass a node over for at least so long, and then until it answers."""
        if node_id not in self._others:
            return
        if node_id not in self._doubted:
            log.warning("node doubted", node=node_id, why=why)
        until = asyncio.get_running_loop().time() + seconds
        self._doubted[node_id] = max(until, self._doubted.get(node_id, 0))
        self._choose()

    async def _ask_doubted(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [self._others[node_id] for node_id, until in self._doubted.items() if until <= now]
        for node, answer in zip(due, await asyncio.gather(*map(self._ping, due)), strict=True):
            if isinstance(answer, bytes) and self._doubted.pop(node.node_id, None) is not None:
                log.info("node trusted again", node=node.node_id)
        self._choose()

    async def _ask_who_is_listed(self) -> None:
        """Without a lease of its own, this node asks the others whether theirs hold."""
        asked = [] if self.is_listed else self.others(INGEST)
        answers = zip(asked, await asyncio.gather(*map(self._ping, asked)), strict=True)
        listed = {node.node_id for node, answer in answers if answer == bodies.LISTED}
        if bool(listed) != bool(self._listed):
            log.warning("lease ran out" if listed else "lease holds, or nobody's does", others=sorted(listed))
        self._listed = listed
        self._choose()

    async def _ping(self, node: Node) -> bytes | int | None:
        """What a node answers: bytes when it takes batches, else a status; None when it does not answer."""
        try:
            return await self._calls.post(node.url + bodies.PING, b"", PING_SECONDS_MAX)
        except NodeRefused as error:
            return error.status
        except NodeError:
            return None

    async def _post_patiently(self, node: Node, path: str, body: bytes) -> bytes:
        """A slow answer is waited for, unless its node does not even answer a ping."""
        call = asyncio.create_task(self._calls.post(node.url + path, body, APPEND_SECONDS_MAX))
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
