"""Notices to other gateways of what is not in the log: new chats and ended sessions.

A notice is sent until it is acknowledged, for a minute at most. It has an id, so that a gateway acts on it
once. A gateway that misses one notices by reading: each heartbeat reads the session, and gateways read the
chats of their users in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine

import structlog
from msgspec import Struct

from parley import ids
from parley.clock import Clock
from parley.cluster.bodies import (
    MEMBERS_PER_CALL_MAX,
    NOTICES_PER_CALL_MAX,
    Joined,
    Notice,
    SessionsEnded,
)
from parley.cluster.calls import NodeError
from parley.cluster.peers import GATEWAY, ClusterPeers
from parley.core.backoff import backoff
from parley.ephemeral.ports import Node
from parley.model import Head, Persisted
from parley.telemetry import Metrics

NOTICE = "ntc_"
WAITING_MAX = 1_000
TELL_SECONDS_MAX = 60.0
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 3.0
STOP_SECONDS_MAX = 0.5

log = structlog.get_logger("parley.cluster")


class NodeMailbox(Struct, eq=False):
    """The notices that one node has not acknowledged yet, each with the time when it is dropped."""

    node: Node
    waiting: list[tuple[float, Notice]]


class NoticeSender:
    """A listener on this node's bus that sends notices to the other gateways."""

    def __init__(self, peers: ClusterPeers, metrics: Metrics, clock: Clock, make_ids: ids.Ids) -> None:
        self._peers = peers
        self._metrics = metrics
        self._clock = clock
        self._ids = make_ids
        self._fresh: list[Notice] = []
        self._mailboxes: dict[str, NodeMailbox] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_sending = False

    def persisted(self, news: list[Persisted]) -> None:
        """Other nodes read this from the bus."""

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self._add(Joined(self._new_id(), chat_id, head, user_ids))

    def sessions_ended(self, session_ids: list[str]) -> None:
        self._add(SessionsEnded(self._new_id(), session_ids))

    async def stop(self, seconds: float = STOP_SECONDS_MAX) -> None:
        """Wait so long for notices that are under way, then drop them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks:  # one that reads the list starts one for each node
                    await asyncio.wait(self._tasks)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _new_id(self) -> str:
        return self._ids.next(NOTICE, self._clock())

    def _add(self, notice: Notice) -> None:
        if len(self._fresh) >= WAITING_MAX:
            self._give_up("too many wait", [notice])
            return
        self._fresh.append(notice)
        if not self._is_sending:
            self._is_sending = True
            self._start(self._send_fresh())

    async def _send_fresh(self) -> None:
        """Send to every gateway that is listed now: one that joined a moment ago may already have clients."""
        try:
            while self._fresh:
                await self._peers.refresh()
                notices, self._fresh = self._fresh, []
                due = asyncio.get_running_loop().time() + TELL_SECONDS_MAX
                for node in self._peers.others(GATEWAY):
                    self._post(node, [(due, notice) for notice in notices])
        finally:
            self._is_sending = False

    def _post(self, node: Node, fresh: list[tuple[float, Notice]]) -> None:
        mailbox = self._mailboxes.get(node.node_id)
        if mailbox is None:
            mailbox = self._mailboxes[node.node_id] = NodeMailbox(node, [])
            self._start(self._deliver(mailbox))
        room = WAITING_MAX - len(mailbox.waiting)
        mailbox.node = node
        mailbox.waiting += fresh[:room]
        if fresh[room:]:
            self._give_up("too many wait", [notice for _, notice in fresh[room:]], node)

    async def _deliver(self, mailbox: NodeMailbox) -> None:
        failures = 0
        while mailbox.waiting:
            part = _fitting([notice for _, notice in mailbox.waiting])
            try:
                await self._peers.tell(mailbox.node, part)
            except NodeError as error:
                log.warning("notices not sent", node=mailbox.node.node_id, count=len(part), error=str(error))
                await asyncio.sleep(backoff(failures, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX))
                failures += 1
                self._forget_old(mailbox)
            else:
                del mailbox.waiting[: len(part)]
                failures = 0
        del self._mailboxes[mailbox.node.node_id]

    def _forget_old(self, mailbox: NodeMailbox) -> None:
        now = asyncio.get_running_loop().time()
        old = [notice for due, notice in mailbox.waiting if due <= now]
        if old:
            mailbox.waiting = [(due, notice) for due, notice in mailbox.waiting if due > now]
            self._give_up("it did not acknowledge them", old, mailbox.node)

    def _give_up(self, why: str, notices: list[Notice], node: Node | None = None) -> None:
        self._metrics.notices_lost.inc(len(notices))
        log.error("notices lost", why=why, count=len(notices), node=node and node.node_id)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fitting(notices: list[Notice]) -> list[Notice]:
    """As many of the first ones as fit into one call, and at least one."""
    members = 0
    for count, notice in enumerate(notices[:NOTICES_PER_CALL_MAX]):
        members += len(notice.user_ids) if isinstance(notice, Joined) else 0
        if count and members > MEMBERS_PER_CALL_MAX:
            return notices[:count]
    return notices[:NOTICES_PER_CALL_MAX]
