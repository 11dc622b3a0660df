"""What operators ask of a node: answered here, or by the node that is meant."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec import Raw

from parley.clock import iso
from parley.core.jobs import EndedRun
from parley.core.node_questions import (
    CloseOrder,
    ConnectionsQuestion,
    DrainOrder,
    NodeFinding,
    NodeQuestion,
    NodeReply,
    RunOrder,
    RunsQuestion,
    SeriesQuestion,
    StateQuestion,
)
from parley.errors import BAD_REQUEST, INTERNAL, NOT_FOUND, Refused
from parley.gateway.operator_view import OperatorView
from parley.gateway.series import STEP_SECONDS
from parley.wire import bodies, codes
from parley.wire.operator_bodies import ConnectionInfo, ConnectionList, JobRuns, NodeState, Series

if TYPE_CHECKING:
    from parley.gateway.connection import Connection

NO_SUCH_NODE = NOT_FOUND.because("there is no such node, or it is gone")
NO_SUCH_CONNECTION = NOT_FOUND.because("this node has no such connection")
OTHER_VERSION = INTERNAL.because("this node is of another version, and answers otherwise")

Found = TypeVar("Found")


class OtherNodes(Protocol):
    """The nodes that are alive, but for this one."""

    async def ask(self, node_id: str, question: NodeQuestion) -> NodeReply:
        """What this node says. Refused if there is none, or if it does not say."""
        ...

    async def ask_all(self, question: NodeQuestion) -> dict[str, NodeReply]:
        """What each of them says, within limits of time; why not, as a refusal."""
        ...


class NoOtherNodes:
    """A server on one machine."""

    async def ask(self, node_id: str, question: NodeQuestion) -> NodeReply:
        raise Refused(NO_SUCH_NODE)

    async def ask_all(self, question: NodeQuestion) -> dict[str, NodeReply]:
        return {}


class OperatedNodes:
    """An empty `node_id` is the node that answers."""

    def __init__(self, view: OperatorView, others: OtherNodes) -> None:
        self._view = view
        self._others = others

    async def ask(self, node_id: str, question: NodeQuestion, kind: type[Found]) -> Found:
        """What a node finds. Refused as it refuses."""
        if node_id in ("", self._view.node_id):
            return _read(self.answer(question), kind)
        return _read(await self._others.ask(node_id, question), kind)

    async def order(self, node_id: str, order: NodeQuestion) -> None:
        """Have a node do something."""
        await self.ask(node_id, order, type(None))

    async def ask_all(self, question: NodeQuestion, kind: type[Found]) -> dict[str, Found | Refused]:
        """What each node finds, this one first."""
        replies = {self._view.node_id: self.answer(question)} | await self._others.ask_all(question)
        found: dict[str, Found | Refused] = {}
        for node_id, reply in replies.items():
            try:
                found[node_id] = _read(reply, kind)
            except Refused as refused:
                found[node_id] = refused
        return found

    def answer(self, question: NodeQuestion) -> NodeReply:
        """For this node."""
        try:
            return NodeReply(Raw(msgspec.msgpack.encode(self._find(question))))
        except Refused as refused:
            return NodeReply(refusal=refused.refusal)

    def _find(self, question: NodeQuestion) -> NodeFinding:
        view = self._view
        match question:
            case SeriesQuestion():
                return self._series(question)
            case ConnectionsQuestion():
                return self._connections(question)
            case RunsQuestion():
                return JobRuns(shown_runs(view.last_runs()))
            case StateQuestion():
                return self._state()
            case CloseOrder():
                self._close(question.connection_id)
            case RunOrder():
                refusal = view.run_soon(question.job)
                if refusal is not None:
                    raise Refused(refusal)
            case DrainOrder():
                # The answer goes out first: who hears of it does not take the end for a crash.
                view.is_draining = True
                asyncio.get_running_loop().call_soon(view.drain)
        return None

    def _series(self, question: SeriesQuestion) -> Series:
        kept = self._view.series
        names = question.names or kept.names
        if unknown := sorted(set(names) - set(kept.names)):
            raise Refused(BAD_REQUEST.because(f"there is no {unknown[0][:64]}; choose of {kept.names}"))
        shown = {name: kept.last(name, question.seconds) for name in names}
        return Series(self._view.node_id, iso(self._view.clock()), STEP_SECONDS, shown)

    def _connections(self, question: ConnectionsQuestion) -> ConnectionList:
        limit, user_id = question.limit, question.user_id
        found = {id_of(one): one for one in self._view.connections if one.user_id}
        wanted = [
            name for name, one in found.items() if name > question.after and user_id in ("", one.user_id)
        ]
        some = heapq.nsmallest(limit + 1, wanted)
        shown = [_connection(name, found[name]) for name in some[:limit]]
        return ConnectionList(self._view.node_id, shown, some[limit - 1] if len(some) > limit else None)

    def _close(self, connection_id: str) -> None:
        found = next((one for one in self._view.connections if id_of(one) == connection_id), None)
        if found is None:
            raise Refused(NO_SUCH_CONNECTION)
        found.close(codes.GOING_AWAY)

    def _state(self) -> NodeState:
        view = self._view
        return NodeState(
            node_id=view.node_id,
            now_ms=view.clock(),
            connections=len(view.connections),
            memory_bytes=view.memory_bytes,
            loop_delay_ms=round(view.loop_delay_seconds * 1_000, 1),
            draining=view.is_draining,
            store_available=view.store_available(),
            lag=view.lag,
            webhooks_reached=view.webhooks_reached(),
            rings=view.rings,
        )


def shown_runs(runs: Mapping[str, list[EndedRun]]) -> dict[str, list[bodies.JobRun]]:
    return {
        name: [
            bodies.JobRun(
                iso(run.started_ms) if run.started_ms is not None else None,
                iso(run.finished_ms),
                run.outcome,
                run.error,
            )
            for run in ended
        ]
        for name, ended in runs.items()
    }


def id_of(one: Connection) -> str:
    """Nobody but the server chooses it, and no two that are open have the same."""
    return f"{one.session_id}.{id(one):x}"


def _connection(name: str, one: Connection) -> ConnectionInfo:
    return ConnectionInfo(
        connection_id=name,
        user_id=one.user_id,
        device_id=one.device_id,
        session_id=one.session_id,
        codec="msgpack" if one.codec.binary else "json",
        live=one.live,
        chats=len(one.chats),
        heard_from_at=iso(one.heard_from_ms),
        waiting_bytes=one.waiting_bytes,
        since=iso(one.opened_ms),
        address=one.address,
    )


def _read(reply: NodeReply, kind: type[Found]) -> Found:
    if reply.refusal is not None:
        raise Refused(reply.refusal)
    try:
        return msgspec.msgpack.decode(reply.found, type=kind)
    except msgspec.DecodeError as error:
        raise Refused(OTHER_VERSION) from error
