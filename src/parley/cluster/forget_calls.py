"""Bodies that were removed from the store are forgotten by every node, before the removal is answered.

A node keeps bodies beside the store: words in its search index, blocks of the archive, entries that wait for
a gap to be filled. The node that removes a body calls every node on the list, all at once, and forgets too.
Each answers when it has nothing left. One that does not answer in time leaves the outcome unknown, until it
answers, or is off the list: a node that loses its place there drops what it keeps, see `ClusterPeers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web
from msgspec import Struct

from parley.cluster.bodies import pack
from parley.cluster.calls import NodeError
from parley.cluster.peers import NodeCalls
from parley.ephemeral.ports import Node
from parley.errors import StoreError, StoreUnavailable
from parley.wire.limits import ANSWER_SECONDS_MAX

FORGET = "/node/forget"
FORGET_SECONDS_MAX = 2.5
"""For all nodes together, when named messages are forgotten: the sender of a delete waits."""
COMPARE_SECONDS_MAX = 60.0
"""The same when a whole chat is compared with its log."""
NODES_AT_ONCE_MAX = 64
assert FORGET_SECONDS_MAX <= ANSWER_SECONDS_MAX / 2, "a delete has as much time for the store"

ForgetBodies = Callable[[str, list[int] | None], Awaitable[None]]
"""What a node does. None: whatever the log of the chat no longer has."""


class ForgetCall(Struct, frozen=True):
    """`sequences`: the messages whose bodies are gone; None: compare the chat with its log."""

    chat_id: str
    sequences: list[int] | None = None


_call = msgspec.msgpack.Decoder(ForgetCall).decode


class PeerForgets:
    """`others`: every other node that may keep bodies, as the list says now. `local`: of this node."""

    def __init__(
        self, others: Callable[[], Awaitable[list[Node]]], calls: NodeCalls, local: ForgetBodies
    ) -> None:
        self._others = others
        self._calls = calls
        self._local = local

    async def forget(self, chat_id: str, sequences: list[int]) -> None:
        """No node keeps the bodies of these messages. StoreUnavailable if one has not said so."""
        await self._everywhere(ForgetCall(chat_id, sequences), FORGET_SECONDS_MAX)

    async def compare(self, chat_id: str) -> None:
        """No node keeps a body that the log of this chat no longer has. StoreUnavailable as above."""
        await self._everywhere(ForgetCall(chat_id), COMPARE_SECONDS_MAX)

    async def _everywhere(self, call: ForgetCall, seconds: float) -> None:
        """A failure of one keeps no other from forgetting."""
        local, silent = await asyncio.gather(
            self._local(call.chat_id, call.sequences), self._tell_all(call, seconds), return_exceptions=True
        )
        for outcome in (local, silent):
            if isinstance(outcome, BaseException):
                raise outcome
        if silent:
            assert isinstance(silent, dict)
            named = "; ".join(f"{node_id}: {reason}" for node_id, reason in sorted(silent.items()))
            raise StoreUnavailable(f"not every node has forgotten what was removed: {named}")

    async def _tell_all(self, call: ForgetCall, seconds: float) -> dict[str, str]:
        """The nodes that have not confirmed it, and why."""
        others = await self._others()
        body, room = pack(call), asyncio.Semaphore(NODES_AT_ONCE_MAX)
        silent = {node.node_id: "it was not reached in time" for node in others}

        async def tell(node: Node) -> None:
            async with room:
                try:
                    await self._calls.post(node.url + FORGET, body, seconds, node.target)
                except NodeError as error:
                    silent[node.node_id] = str(error)
                else:
                    del silent[node.node_id]

        calls = [asyncio.create_task(tell(node)) for node in others]
        if calls:
            try:
                await asyncio.wait(calls, timeout=seconds)
            finally:
                for task in calls:
                    task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        return silent


def forget_routes(local: ForgetBodies) -> list[web.RouteDef]:
    """What a node serves so that the others can tell it."""

    async def forget(request: web.Request) -> web.StreamResponse:
        try:
            call = _call(await request.read())
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise web.HTTPBadRequest(reason="this body is not well formed") from error
        try:
            await local(call.chat_id, call.sequences)
        except StoreError as error:
            raise web.HTTPServiceUnavailable(reason="this node has not forgotten it yet") from error
        return web.Response(body=b"", content_type="application/octet-stream")

    return [web.post(FORGET, forget)]
