"""One chat on several nodes that share their tables, each with faults, a gate and a crash of its own.

async with world("dynamodb") as (one, other):
    one.faults.now = On(timeout_done, "TransactWriteItems")
    one.gate.close()                      # the next batch that has taken its numbers waits there
    one.crash.at = "after_commit_before_ack"
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from parley.store.dynamodb.bundles import all_unbundled, span_of
from parley.store.dynamodb.driver import Item, Request, Response, Send
from parley.store.dynamodb.schema import MESSAGES
from tests.contracts.acting import add_group, add_people
from tests.contracts.dynamodb_engine import DynamoOpenStore
from tests.contracts.dynamodb_nodes import Later

MODES = {"atomic": None, "two_phase": "dynamodb"}
ENGINES = {**MODES, "two_phase-redis": "redis", "two_phase-sequencer": "sequencer"}


class Crashed(Exception):
    """The process is gone: whatever it was about to do, it does not do."""


class Crash:
    """Ends whoever reaches a point of the way."""

    def __init__(self) -> None:
        self.at = ""

    def __call__(self, label: str) -> None:
        if label == self.at:
            raise Crashed(label)


class Gate:
    """While closed, keeps the next batch that has taken its numbers."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._way = asyncio.Event()
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def open(self) -> None:
        self._way.set()

    def __call__(self, label: str) -> Awaitable[bool] | None:
        if label != "after_allocate" or not self._is_closed:
            return None
        self._is_closed = False
        self.reached.set()
        return self._way.wait()


class Node(DynamoOpenStore):
    """One node; `ann` owns `chat`, and `ben` is in it."""

    ann: str
    ben: str
    chat: str

    def __init__(self, allocator: str | None, options: dict[str, Any]) -> None:
        self.faults, self.gate, self.crash = Later(), Gate(), Crash()

        def fault_point(label: str) -> Awaitable[bool] | None:
            self.crash(label)
            return self.gate(label)

        own = {"faults": self.faults, "fault_point": fault_point}
        super().__init__(allocator, own | options)

    async def beside(self, other: "Node") -> None:
        """Open on the tables of another node, in the same chat and time."""
        self.prefix, self.clock = other.prefix, other.clock
        self.ann, self.ben, self.chat = other.ann, other.ben, other.chat
        await self.open()

    async def items(self) -> dict[int, str]:
        """What stands in the chat's log, resolved or not: contents, or the word void."""
        found = await self.store.dynamo.query_all(MESSAGES, "chat_id = :chat", {":chat": self.chat})
        plain = all_unbundled(found)
        assert len({item["sequence"] for item in plain}) == len(plain), "no position has two entries"
        return {item["sequence"]: item.get("content", item["kind"]) for item in plain}  # type: ignore[misc]

    async def spans(self) -> list[tuple[int, int]]:
        """The first and the last position of each item of the chat's log."""
        found = await self.store.dynamo.query_all(MESSAGES, "chat_id = :chat", {":chat": self.chat})
        return [(span_of(item)[0], span_of(item)[-1]) for item in found]

    async def has_written(self, *numbers: int) -> bool:
        return set(numbers) <= (await self.items()).keys()

    async def set_chat(self, name: str, value: Any) -> None:
        """A foreign program sets an attribute of the chat's item."""
        key: Item = {"chat_id": self.chat}
        await self.store.dynamo.update("chats", key, "SET #n = :v", {":v": value}, names={"#n": name})


@asynccontextmanager
async def world(mode: str, count: int = 2, **options: Any) -> AsyncIterator[list[Node]]:
    """So many nodes, one chat; `options` go to each store."""
    nodes: list[Node] = []
    try:
        for _ in range(count):
            node = Node(ENGINES[mode], dict(options))
            if nodes:
                await node.beside(nodes[0])
            else:
                await node.create()
                node.ann, node.ben = await add_people(node, "ann", "ben")
                node.chat = await add_group(node, node.ann, node.ben)
            nodes.append(node)
        yield nodes
    finally:
        await close_all(nodes)
    await nodes[0].empty()


async def close_all(nodes: Iterable[Node]) -> None:
    for node in nodes:
        node.faults.now = None
        await node.close()


async def crashes(operation: str, request: Request, send: Send) -> Response:
    """The process ends before it has sent the request."""
    raise Crashed(operation)
