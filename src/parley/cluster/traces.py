"""Asks the other nodes what they remember of a message, and answers when they ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from parley.cluster.bodies import pack
from parley.cluster.calls import NodeError
from parley.cluster.peers import NodeCalls
from parley.core.timeline import NodeTrace, TraceQuestion
from parley.ephemeral.ports import Node, Nodes
from parley.traces.timeline import TraceAnswers

TRACE = "/node/trace"
TRACE_SECONDS_MAX = 1.5
NODES_AT_ONCE_MAX = 64
ALL_SECONDS_MAX = 2.0
"""However many nodes there are: an operator waits for the answer."""

_question = msgspec.msgpack.Decoder(TraceQuestion).decode
_trace = msgspec.msgpack.Decoder(NodeTrace).decode


class PeerTraces:
    """The port `TraceSource` over the list of live nodes. `node_id`: this one, which is not asked."""

    def __init__(self, nodes: Nodes, calls: NodeCalls, node_id: str) -> None:
        self._nodes = nodes
        self._calls = calls
        self._node_id = node_id

    async def ask(self, question: TraceQuestion) -> TraceAnswers:
        answers, body, room = TraceAnswers([], {}), pack(question), asyncio.Semaphore(NODES_AT_ONCE_MAX)
        others = [node for node in await self._nodes.alive() if node.node_id != self._node_id]
        answers.silent = {node.node_id: "it was not reached in time" for node in others}

        async def ask_one(node: Node) -> None:
            async with room:
                try:
                    url = node.url + TRACE
                    found = _trace(await self._calls.post(url, body, TRACE_SECONDS_MAX, node.target))
                except (NodeError, msgspec.MsgspecError) as error:
                    answers.silent[node.node_id] = str(error)
                else:
                    answers.traces.append(found)
                    del answers.silent[node.node_id]

        asked = [asyncio.create_task(ask_one(node)) for node in others]
        if asked:
            _, late = await asyncio.wait(asked, timeout=ALL_SECONDS_MAX)
            for task in late:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return answers


def trace_routes(trace: Callable[[TraceQuestion], NodeTrace]) -> list[web.RouteDef]:
    """What a node serves so that the others can ask it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            question = _question(await request.read())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise web.HTTPBadRequest(reason="this body is not well formed") from error
        return web.Response(body=pack(trace(question)), content_type="application/octet-stream")

    return [web.post(TRACE, answer)]
