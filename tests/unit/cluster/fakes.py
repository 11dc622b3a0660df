"""A list of nodes and calls to them, as tests want them to be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parley.cluster import bodies
from parley.cluster.calls import NodeRefused, NodeSilent, NodeUnreachable
from parley.ephemeral.ports import Node

Handler = Callable[[bytes], Awaitable[bytes]]


class FakeNodes:
    """The list. `is_away`: it answers with the last known, as an engine does that is out of reach."""

    def __init__(self, *nodes: Node) -> None:
        self.listed = {node.node_id: node for node in nodes}
        self.is_away = False
        self.failure: Exception | None = None
        self.announced: list[Node] = []
        self._known: list[Node] = []

    async def announce(self, node: Node) -> bool:
        await asyncio.sleep(0)
        self.announced.append(node)
        if not self.is_away:
            self.listed[node.node_id] = node
        return not self.is_away

    async def withdraw(self, node_id: str) -> None:
        await asyncio.sleep(0)
        if not self.is_away:
            self.listed.pop(node_id, None)

    async def alive(self) -> list[Node]:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if not self.is_away:
            self._known = list(self.listed.values())
        return self._known


class FakeCalls:
    """Calls by address and path; nobody is at an address that no handler was given for."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.made: list[str] = []

    def answer(self, url: str, path: str, handler: Handler) -> None:
        self.handlers[url + path] = handler

    async def post(self, url: str, body: bytes, timeout: float, target: str = "") -> bytes:
        self.made.append(url)
        handler = self.handlers.get(url)
        if handler is None:
            raise NodeUnreachable(f"{url} cannot be reached")
        try:
            async with asyncio.timeout(timeout):
                return await handler(body)
        except TimeoutError as error:
            raise NodeSilent(f"{url} gave no answer") from error


async def hang(_: bytes) -> bytes:
    """As a node that was stopped: it takes the call, and that is all."""
    await asyncio.Event().wait()
    raise AssertionError("never")


async def fine(_: bytes) -> bytes:
    return b""


async def listed(_: bytes) -> bytes:
    """As a node whose own lease holds."""
    return bodies.LISTED


def refuse(status: int) -> Handler:
    async def refused(_: bytes) -> bytes:
        raise NodeRefused(status, b"")

    return refused


def node(name: str, *roles: str) -> Node:
    return Node(name, f"http://{name}", roles or ("gateway", "ingest", "delivery"))
