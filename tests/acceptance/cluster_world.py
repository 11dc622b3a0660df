"""People on several nodes, a chat of all of them, and everything that they said and heard."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from aiohttp import ClientSession, TCPConnector
from msgspec.structs import replace

from parley.core import rendezvous
from tests.ack_first import AckFirst, AckOrder
from tests.clusters import until_acquainted
from tests.harness.clients import HttpClient, Person, RawClient
from tests.harness.cluster import ClusterProcess
from tests.harness.history import History, check
from tests.harness.server import ServerProcess
from tests.harness.tables import tables_of

_numbers = count(1)


class ClusterWorld:
    """`ann` and `ben` are in `chat_id`."""

    def __init__(self, cluster: ClusterProcess, session: ClientSession) -> None:
        self.cluster = cluster
        self.session = session
        self.history = History()
        self.order = AckOrder()
        self.ann: Person
        self.ben: Person
        self.chat_id = ""

    async def populate(self) -> None:
        first = next(iter(self.cluster))
        self.ann, self.ben = await asyncio.gather(self.newcomer(first), self.newcomer(first))
        self.chat_id = await self.http(first, self.ann).create_group(self.ben)

    def http(self, node: ServerProcess, person: Person | None = None) -> HttpClient:
        return HttpClient(self.session, node.url, person.token if person else "")

    async def newcomer(self, node: ServerProcess) -> Person:
        return await self.http(node).newcomer(f"somebody{next(_numbers)}")

    def client(self, node: ServerProcess, person: Person, **options: Any) -> RawClient:
        """A connection to a node that is recorded; enter it to connect."""
        recording = AckFirst(
            self.history, sender_of(person), f"{person.username}#{next(_numbers)}", self.order
        )
        return RawClient(self.session, node.url, person, observer=recording, **options)

    async def chat_appended_by(self, name: str, members: Sequence[Person]) -> str:
        """A chat of Ann's and these that belongs to this node."""
        http = self.http(self.cluster[name], self.ann)
        while True:
            chat_id = await http.create_group(*members)
            if rendezvous.owner(chat_id, self.cluster.names) == name:
                return chat_id

    async def breaches(self) -> list[str]:
        """What of the promise was broken, in the light of what the tables hold."""
        async with tables_of(self.cluster.environment) as tables:
            await tables.read_into(self.history)
        return [str(breach) for breach in check(self.history)]


@asynccontextmanager
async def world_on(cluster: ClusterProcess) -> AsyncIterator[ClusterWorld]:
    """A fresh world on nodes that know each other; whatever happened in it is checked at the end."""
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        world = ClusterWorld(cluster, session)
        await until_acquainted(session, list(cluster))
        await world.populate()
        yield world
    breaches = [*world.order.overtaken, *await world.breaches()]
    assert not breaches, "\n".join(breaches[:20])


def sender_of(person: Person) -> Person:
    """Messages keep their order on one socket; several of one device know nothing of each other."""
    return replace(person, device_id=f"{person.device_id} {next(_numbers)}")
