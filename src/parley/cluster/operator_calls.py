"""What operators ask of other nodes: this one calls the node that is meant, and answers when it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from parley.cluster.bodies import pack
from parley.cluster.calls import NodeError, NodeRefused, NodeUnreachable
from parley.cluster.peers import NodeCalls
from parley.core.node_questions import CHANGING, NodeQuestion, NodeReply
from parley.ephemeral.ports import Node, Nodes
from parley.errors import NODE_SILENT, NOT_FOUND, OUTCOME_UNKNOWN, Refused

OPERATE = "/node/operate"
ASK_SECONDS_MAX = 2.0
NODES_AT_ONCE_MAX = 64
ALL_SECONDS_MAX = 2.5
"""However many nodes there are: an operator waits for the answer."""
NO_SUCH_NODE = NOT_FOUND.because("there is no such node, or it is gone")
LATE = NODE_SILENT.because("it was not reached in time")

_question: msgspec.msgpack.Decoder[NodeQuestion] = msgspec.msgpack.Decoder(NodeQuestion)
_reply = msgspec.msgpack.Decoder(NodeReply).decode


class PeerOperations:
    """The port `OtherNodes` over the list of live nodes. `node_id`: this one, which is not asked."""

    def __init__(self, nodes: Nodes, calls: NodeCalls, node_id: str) -> None:
        self._nodes = nodes
        self._calls = calls
        self._node_id = node_id

    async def ask(self, node_id: str, question: NodeQuestion) -> NodeReply:
        """A question that is lost changes nothing; of an order it is not known."""
        found = next((node for node in await self._others() if node.node_id == node_id), None)
        if found is None:
            raise Refused(NO_SUCH_NODE)
        return await self._ask(found, question)

    async def ask_all(self, question: NodeQuestion) -> dict[str, NodeReply]:
        others, room = await self._others(), asyncio.Semaphore(NODES_AT_ONCE_MAX)
        replies = {node.node_id: NodeReply(refusal=LATE) for node in others}

        async def ask_one(node: Node) -> None:
            async with room:
                try:
                    replies[node.node_id] = await self._ask(node, question)
                except Refused as refused:
                    replies[node.node_id] = NodeReply(refusal=refused.refusal)

        asked = [asyncio.create_task(ask_one(node)) for node in others]
        if asked:
            _, late = await asyncio.wait(asked, timeout=ALL_SECONDS_MAX)
            for task in late:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return replies

    async def _others(self) -> list[Node]:
        return [node for node in await self._nodes.alive() if node.node_id != self._node_id]

    async def _ask(self, node: Node, question: NodeQuestion) -> NodeReply:
        try:
            body = pack(question)
            return _reply(await self._calls.post(node.url + OPERATE, body, ASK_SECONDS_MAX, node.target))
        except (NodeUnreachable, NodeRefused) as error:
            raise Refused(NODE_SILENT.because(str(error))) from error
        except (NodeError, msgspec.MsgspecError) as error:
            refusal = OUTCOME_UNKNOWN if isinstance(question, CHANGING) else NODE_SILENT
            raise Refused(refusal.because(str(error))) from error


def operator_routes(answer: Callable[[NodeQuestion], NodeReply]) -> list[web.RouteDef]:
    """What a node serves so that operators reach it by the others."""

    async def operate(request: web.Request) -> web.StreamResponse:
        try:
            question = _question.decode(await request.read())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise web.HTTPBadRequest(reason="this body is not well formed") from error
        return web.Response(body=pack(answer(question)), content_type="application/octet-stream")

    return [web.post(OPERATE, operate)]
