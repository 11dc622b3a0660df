"""Three nodes as processes of their own, over real Kafka, DynamoDB and Redis, and people who use them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

from aiohttp import ClientSession

from tests.harness.clients import PASSWORD, Frame, HttpClient, Person, RawClient
from tests.harness.server import ServerProcess, parley_command
from tests.services import OwnServices, fresh_prefix, service_environment
from tests.waiting import eventually, stretched

SECRET = "shared by three processes"
CHATS = 6
PAUSE_SECONDS = 0.02
RETRY_SECONDS = 0.2
SLOW_SECONDS_MAX = 60.0
INIT_SECONDS_MAX = 60


class ThreeNodes:
    """`front` takes connections, `back` appends, `both` does both."""

    def __init__(self, folder: Path) -> None:
        self.services = OwnServices(folder / "services")
        self.services.up("redis")
        prefix = fresh_prefix()
        self.environment = {
            **service_environment("dynamodb"),
            **service_environment("kafka"),
            **self.services.environment("redis"),
            "PARLEY_STORE_ENGINE": "dynamodb",
            "PARLEY_DYNAMODB_PREFIX": prefix,
            "PARLEY_KAFKA_PREFIX": prefix,
            "PARLEY_KAFKA_PARTITIONS": "3",
            "PARLEY_CLUSTER_SECRET": SECRET,
        }
        self._make_tables()
        self.front = self._node(folder, "front", "gateway")
        self.both = self._node(folder, "both", "gateway,ingest,delivery")
        self.back = self._node(folder, "back", "ingest,delivery")
        self.nodes = (self.both, self.back, self.front)

    def _make_tables(self) -> None:
        subprocess.run(
            [*parley_command(), "store", "init"],
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            timeout=stretched(INIT_SECONDS_MAX),
        )

    def add_operator(self, name: str) -> None:
        subprocess.run(
            [*parley_command(), "user", "add", name, "--operator", "--password-stdin"],
            env={**os.environ, **self.environment},
            check=True,
            input=PASSWORD.encode(),
            capture_output=True,
            timeout=stretched(INIT_SECONDS_MAX),
        )

    def _node(self, folder: Path, name: str, roles: str) -> ServerProcess:
        own = {"PARLEY_CLUSTER_NODE": name}
        return ServerProcess(folder / name, {**self.environment, **own}, ["--roles", roles])

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        self.services.destroy()

    async def be_well(self, session: ClientSession) -> None:
        """Every node runs, and those with people know of all."""
        for node in self.nodes:
            if not node.is_running:
                await asyncio.to_thread(node.start)

        async def all_are_known() -> bool:
            return all([await metric(session, node, "parley_nodes") == 3 for node in self.nodes])

        await eventually(all_are_known, SLOW_SECONDS_MAX)


class Heard:
    """An observer that keeps what one connection was sent, in order: acks and entries by their message id."""

    def __init__(self) -> None:
        self.order: list[tuple[str, str]] = []

    def sent(self, frame: Frame) -> None:
        """What it says itself does not matter here."""

    def received(self, frame: Frame) -> None:
        if frame["type"] == "ack":
            self.order.append(("ack", frame["message_id"]))
        elif frame["type"] == "messages":
            self.order += [("entry", entry["message_id"]) for entry in frame["entries"]]


class Town:
    """Ann on the front node, Ben on the one that does both, and chats that they share."""

    def __init__(self, nodes: ThreeNodes, session: ClientSession) -> None:
        self.nodes = nodes
        self.session = session
        self.ann_http = HttpClient(session, nodes.front.url)
        self.ben_http = HttpClient(session, nodes.both.url)
        self.chats: list[str] = []
        self.sent: dict[str, list[str]] = {}
        self._numbers = count(1)

    async def settle(self) -> None:
        name = uuid.uuid4().hex[:8]
        self.ann = await self.ann_http.newcomer(f"ann.{name}")
        self.ben = await self.ben_http.newcomer(f"ben.{name}")
        self.ann_http, self.ben_http = self.ann_http.of(self.ann), self.ben_http.of(self.ben)
        self.chats = [await self.ann_http.create_group(self.ben) for _ in range(CHATS)]
        self.sent = {chat_id: [] for chat_id in self.chats}

    def at(self, node: ServerProcess, person: Person, observer: Heard | None = None) -> RawClient:
        return RawClient(self.session, node.url, person, observer=observer)

    async def say(self, client: RawClient, chat_id: str) -> None:
        """One message, sent again under the same id for as long as it is refused as temporary."""
        content, client_message_id = f"{next(self._numbers)}", str(uuid.uuid4())
        while (frame := await client.send_message(chat_id, content, client_message_id))["type"] != "ack":
            assert frame["temporary"], f"refused for good: {frame}"
            await asyncio.sleep(RETRY_SECONDS)
        self.sent[chat_id].append(content)

    @contextlib.asynccontextmanager
    async def talk(self, client: RawClient) -> AsyncIterator[None]:
        """Somebody goes on talking in every chat until the end of the block."""
        is_over = asyncio.Event()

        async def chatter(chat_id: str) -> None:
            while not is_over.is_set():
                await self.say(client, chat_id)
                await asyncio.sleep(PAUSE_SECONDS)

        talking = [asyncio.create_task(chatter(chat_id)) for chat_id in self.chats]
        try:
            await self.more(CHATS)
            yield
        finally:
            is_over.set()
            await asyncio.gather(*talking)

    async def more(self, messages: int) -> None:
        """Until so many more are acknowledged."""

        def acknowledged() -> int:
            return sum(map(len, self.sent.values()))

        goal = acknowledged() + messages
        await eventually(lambda: acknowledged() >= goal, SLOW_SECONDS_MAX)

    async def logs(self, client: RawClient) -> dict[str, list[str]]:
        """What every chat holds, as anybody may read it."""
        found = {}
        for chat_id in self.chats:
            entries = await client.sync_all(chat_id)
            assert [entry["sequence"] for entry in entries] == list(range(1, len(entries) + 1))
            found[chat_id] = [entry["content"] for entry in entries]
        return found


@contextlib.asynccontextmanager
async def a_town(nodes: ThreeNodes) -> AsyncIterator[Town]:
    async with ClientSession() as session:
        await nodes.be_well(session)
        town = Town(nodes, session)
        await town.settle()
        yield town


async def metric(session: ClientSession, node: ServerProcess, name: str) -> float:
    async with session.get(f"{node.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def stop(node: ServerProcess) -> None:
    """It exists, and does nothing: a long pause of its machine."""
    os.kill(node.pid, signal.SIGSTOP)


def wake(node: ServerProcess) -> None:
    os.kill(node.pid, signal.SIGCONT)
