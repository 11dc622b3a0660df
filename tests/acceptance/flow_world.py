"""People on one server with SQLite, or on two nodes with real services, whose phones ring in the test.

`near` is the node of the sender and `far` that of the recipient. With SQLite both are the same server.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientSession

from tests.acceptance.cluster_world import sender_of
from tests.ack_first import AckFirst, AckOrder
from tests.clusters import ATOMIC, nodes_on_shared_services, until_acquainted
from tests.harness.clients import PASSWORD, Frame, HttpClient, Person, RawClient
from tests.harness.history import History, check
from tests.harness.recording import read_store
from tests.harness.server import ServerProcess
from tests.harness.tables import tables_of
from tests.integration.cli.running import parley
from tests.integration.gateway.test_webhook_channel import Receiver, receiving
from tests.waiting import eventually

OPERATOR = "root"
PHONE = "phone"
NAMES = ("n1", "n2")
HYBRID_MEMBERS, READ_MEMBERS = 4, 5
SETTINGS = {
    **ATOMIC,
    "PARLEY_PUSH_ALLOWED_NETWORKS": "127.0.0.0/8",
    "PARLEY_WEBHOOKS_ALLOWED_NETWORKS": "127.0.0.0/8",
    "PARLEY_DELIVERY_WRITE_BELOW": str(HYBRID_MEMBERS),
    "PARLEY_DELIVERY_READ_ABOVE": str(HYBRID_MEMBERS),
}
"""Groups are large with very few members, so that each strategy is seen in a small test."""
RING_SECONDS_MAX = 60.0
"""A group of Kafka consumers that has just begun takes some seconds to share the partitions."""

_numbers = count(1)


class Deployment:
    """Running nodes with one operator. `read_into` adds what is stored to a history."""

    def __init__(
        self, near: ServerProcess, far: ServerProcess, read_into: Callable[[History], Awaitable[None]]
    ) -> None:
        self.near = near
        self.far = far
        self.read_into = read_into

    @property
    def nodes(self) -> list[ServerProcess]:
        return [self.near] if self.near is self.far else [self.near, self.far]


@contextmanager
def sqlite_deployment(folder: Path) -> Iterator[Deployment]:
    """One server for everybody."""
    with ServerProcess(folder / "data", {**SETTINGS, "PARLEY_CLUSTER_NODE": NAMES[0]}) as server:

        async def read_into(history: History) -> None:
            read_store(history, server.sqlite_path)

        _add_operator(data=server.data)
        yield Deployment(server, server, read_into)


@contextmanager
def cluster_deployment(folder: Path) -> Iterator[Deployment]:
    """Two nodes on DynamoDB, Kafka and Redis."""
    with nodes_on_shared_services(folder, NAMES, SETTINGS) as cluster:

        async def read_into(history: History) -> None:
            async with tables_of(cluster.environment) as tables:
                await tables.read_into(history)

        _add_operator(environment=cluster.environment)
        yield Deployment(cluster[NAMES[0]], cluster[NAMES[1]], read_into)


def _add_operator(**place: Any) -> None:
    made = parley("user", "add", OPERATOR, "--operator", "--password-stdin", given=PASSWORD, **place)
    assert made.status == 0, made.stderr


class FlowWorld:
    """What a test does, and what it sees of people, phones and timelines."""

    def __init__(self, deployment: Deployment, session: ClientSession, receiver: Receiver) -> None:
        self.near, self.far = deployment.near, deployment.far
        self.session = session
        self.history = History()
        self.order = AckOrder()
        self.root: Person
        self._receiver = receiver

    async def newcomers(self, number: int) -> list[Person]:
        return [await self.http().newcomer(f"somebody{next(_numbers)}", PHONE) for _ in range(number)]

    def http(self, person: Person | None = None, node: ServerProcess | None = None) -> HttpClient:
        """The HTTP API of a node, the near one if none is given."""
        return HttpClient(self.session, (node or self.near).url, person.token if person else "")

    def client(self, node: ServerProcess, person: Person) -> RawClient:
        """A connection to a node that is recorded; enter it to connect."""
        name = f"{person.username}#{next(_numbers)}"
        recording = AckFirst(self.history, sender_of(person), name, self.order)
        return RawClient(self.session, node.url, person, observer=recording)

    # Phones

    async def register_phone(self, *people: Person) -> None:
        """The phones of these people ring by requests to the test."""
        body = {"provider": "webhook", "token": f"http://127.0.0.1:{self._receiver.port}/"}
        for person in people:
            answer = await self.http(person).put(f"/v1/me/push/{PHONE}", body)
            assert answer.status == 200, answer

    def rings(self, person: Person) -> list[str]:
        """The contents of the messages that a person's phone rang for, in their order."""
        rung = [msgspec.json.decode(body) for _, body in self._receiver.got]
        return [ring["content"] for ring in rung if ring["user_id"] == person.user_id]

    async def until_rung(self, person: Person, *contents: str) -> None:
        """Until the phone has rung for these messages, and for nothing else."""
        await eventually(lambda: len(self.rings(person)) >= len(contents), RING_SECONDS_MAX)
        assert self.rings(person) == list(contents)

    # What is known of people and messages

    async def until_presence(self, viewer: Person, person: Person, status: str) -> None:
        """Until the registry says so, which also decides about rings."""

        async def is_so() -> bool:
            answer = await self.http(viewer).get("/v1/presence", user_ids=person.user_id)
            return bool(answer.body["presences"][0]["status"] == status)

        await eventually(is_so)

    async def until_status(self, sender: Person, ack: Frame, status: str) -> None:
        """Until the sender is told this status of a message: sent, delivered or read."""

        async def is_so() -> bool:
            path = f"/v1/chats/{ack['chat_id']}/messages/{ack['sequence']}/receipts"
            return bool((await self.http(sender).get(path)).body["status"] == status)

        await eventually(is_so)

    async def steps(self, ack: Frame, name: str, person: Person | None = None) -> list[Frame]:
        """The steps of a message's timeline with this name, of this person if one is given."""
        path = f"/v1/admin/messages/{ack['message_id']}/timeline"
        answer = await self.http(self.root).get(path, chat_id=ack["chat_id"])
        assert answer.status == 200, answer
        return [
            step
            for step in answer.body["steps"]
            if step["step"] == name and (person is None or step.get("user_id") == person.user_id)
        ]

    async def until_step(
        self, ack: Frame, name: str, person: Person | None = None, detail: str = ""
    ) -> Frame:
        """Until the timeline has such a step, of this person if one is given, with this text as detail."""
        found: list[Frame] = []

        async def is_there() -> bool:
            steps = await self.steps(ack, name, person)
            found[:] = [step for step in steps if detail in step.get("detail", "")]
            return bool(found)

        await eventually(is_there, RING_SECONDS_MAX)
        return found[0]

    async def fanout(self, chat_id: str) -> tuple[str, int]:
        """The strategy of a chat and the number of its members, as operators see them."""
        shown = (await self.http(self.root).get(f"/v1/admin/chats/{chat_id}")).body
        return shown["fanout"], shown["member_count"]


@asynccontextmanager
async def flows_on(deployment: Deployment) -> AsyncIterator[FlowWorld]:
    """A fresh world; what was said and heard in it is checked at the end."""
    async with ClientSession() as session, receiving() as receiver:
        world = FlowWorld(deployment, session, receiver)
        if len(deployment.nodes) > 1:
            await until_acquainted(session, deployment.nodes)
        world.root = await world.http().login(OPERATOR, "console")
        yield world
    await deployment.read_into(world.history)
    breaches = [*world.order.overtaken, *map(str, check(world.history))]
    assert not breaches, "\n".join(breaches[:20])
