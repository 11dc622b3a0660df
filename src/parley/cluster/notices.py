"""What other gateways must hear and would not find in the log in time: new chats and ended sessions.

A notice is told until it is acknowledged, for a minute at most; it has an id, so that it is heard once.
Whoever misses one finds out by reading: each heartbeat reads its session, each look at the heads its chats.
"""

from __future__ import annotations

import asyncio
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


class Mail(Struct, eq=False):
    """What one node has not acknowledged yet, each with the time when it is given up."""

    node: Node
    waiting: list[tuple[float, Notice]]


class Herald:
    """A listener on this node's bus that passes on to the other gateways."""

    def __init__(self, peers: ClusterPeers, metrics: Metrics, clock: Clock, make_ids: ids.Ids) -> None:
        self._peers = peers
        self._metrics = metrics
        self._clock = clock
        self._ids = make_ids
        self._fresh: list[Notice] = []
        self._mails: dict[str, Mail] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_spreading = False

    def persisted(self, news: list[Persisted]) -> None:
        """The log and the bus bring this to everybody."""

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self._tell(Joined(self._new_id(), chat_id, head, user_ids))

    def sessions_ended(self, session_ids: list[str]) -> None:
        self._tell(SessionsEnded(self._new_id(), session_ids))

    async def stop(self) -> None:
        """A last chance for what is on its way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS_MAX)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _new_id(self) -> str:
        return self._ids.next(NOTICE, self._clock())

    def _tell(self, notice: Notice) -> None:
        if len(self._fresh) >= WAITING_MAX:
            self._give_up("too many wait", [notice])
            return
        self._fresh.append(notice)
        if not self._is_spreading:
            self._is_spreading = True
            self._start(self._spread())

    async def _spread(self) -> None:
        """To everybody who is on the list now: a node that came a moment ago may already serve people."""
        try:
            while self._fresh:
                await self._peers.look()
                notices, self._fresh = self._fresh, []
                due = asyncio.get_running_loop().time() + TELL_SECONDS_MAX
                for node in self._peers.others(GATEWAY):
                    self._post(node, [(due, notice) for notice in notices])
        finally:
            self._is_spreading = False

    def _post(self, node: Node, fresh: list[tuple[float, Notice]]) -> None:
        mail = self._mails.get(node.node_id)
        if mail is None:
            mail = self._mails[node.node_id] = Mail(node, [])
            self._start(self._deliver(mail))
        room = WAITING_MAX - len(mail.waiting)
        mail.node = node
        mail.waiting += fresh[:room]
        if fresh[room:]:
            self._give_up("too many wait", [notice for _, notice in fresh[room:]], node)

    async def _deliver(self, mail: Mail) -> None:
        pause = RETRY_SECONDS_MIN
        while mail.waiting:
            part = _fitting([notice for _, notice in mail.waiting])
            try:
                await self._peers.tell(mail.node, part)
            except NodeError as error:
                log.warning("notices not told", node=mail.node.node_id, count=len(part), error=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS_MAX)
                self._forget_old(mail)
            else:
                del mail.waiting[: len(part)]
                pause = RETRY_SECONDS_MIN
        del self._mails[mail.node.node_id]

    def _forget_old(self, mail: Mail) -> None:
        now = asyncio.get_running_loop().time()
        old = [notice for due, notice in mail.waiting if due <= now]
        if old:
            mail.waiting = [(due, notice) for due, notice in mail.waiting if due > now]
            self._give_up("it did not acknowledge them", old, mail.node)

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
