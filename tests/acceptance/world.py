"""A server, people and a chat to try something in, over real sockets."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import apsw
from aiohttp import ClientSession

from tests.harness.clients import Frame, HttpClient, Person, RawClient
from tests.harness.history import History, check
from tests.harness.recording import Recording, read_store
from tests.harness.server import ServerProcess

MODES = ("atomic", "two_phase")
_numbers = count(1)


def mode_environment(mode: str) -> dict[str, str]:
    return {"PARLEY_STORE_SEQUENCING": mode}


class World:
    """Two people in one group on one server, and everything they said and heard."""

    def __init__(self, server: ServerProcess, session: ClientSession) -> None:
        self.server = server
        self.session = session
        self.http = HttpClient(session, server.url)
        self.history = History()
        self.ann: Person
        self.ben: Person
        self.chat_id = ""

    async def populate(self) -> None:
        number = next(_numbers)
        self.ann, self.ben = await asyncio.gather(
            self.http.newcomer(f"ann{number}"), self.http.newcomer(f"ben{number}")
        )
        self.chat_id = await self.http.of(self.ann).create_group(self.ben)

    def client(self, person: Person, url: str = "", **options: Any) -> RawClient:
        """A connection that is recorded; enter it to connect."""
        recording = Recording(self.history, person, f"{person.username}#{next(_numbers)}")
        return RawClient(self.session, url or self.server.url, person, observer=recording, **options)

    def unrecorded(self, person: Person, **options: Any) -> RawClient:
        """A connection for what no proper client does: it makes no claims that could be checked."""
        return RawClient(self.session, self.server.url, person, **options)

    async def fill(self, messages: int, chat_id: str = "") -> None:
        """The chat's next so many messages, from Ann."""
        chat_id = chat_id or self.chat_id
        async with self.client(self.ann, live=False) as ann:
            answers = [await ann.post_message(chat_id, f"message {n}") for n in range(messages)]
            for answer in answers:
                assert (await ann.answered(answer))["type"] == "ack"

    async def read_all(self) -> list[Frame]:
        """Every entry of the chat, as Ben is given them on a new connection."""
        async with self.client(self.ben, live=False) as ben:
            return await ben.sync_all(self.chat_id)

    async def device_of(self, person: Person, device_id: str) -> Person:
        """The same person on another device."""
        return await self.http.login(person.username, device_id)

    def assert_promise_kept(self) -> None:
        """Check everything that was recorded against everything that is stored."""
        read_store(self.history, self.server.sqlite_path)
        breaches = check(self.history)
        assert not breaches, "\n".join(map(str, breaches))


@asynccontextmanager
async def world_on(server: ServerProcess) -> AsyncIterator[World]:
    """A fresh world; whatever happened in it is checked at the end."""
    async with ClientSession() as session:
        world = World(server, session)
        await world.populate()
        yield world
    if server.is_running:
        world.assert_promise_kept()


class Store:
    """The store as an operator sees it beside the server, by the names of its tables."""

    def __init__(self, path: Path, chat_id: str) -> None:
        self._path = path
        self._chat_id = chat_id

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """`?` in the query is the chat."""
        with closing(apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_busy_timeout(5_000)
            return connection.execute(query, (self._chat_id,)).fetchall()

    @property
    def sequence_counter(self) -> int | None:
        found = self.rows("SELECT sequence_counter FROM chat_counters WHERE chat_id = ?")
        return int(found[0][0]) if found else None

    @property
    def messages(self) -> dict[int, str]:
        """Client message ids by sequence."""
        found = self.rows("SELECT sequence, client_message_id FROM messages WHERE chat_id = ?")
        return {int(sequence): str(client_id) for sequence, client_id in found}

    @property
    def idempotency_keys(self) -> dict[str, int]:
        found = self.rows("SELECT client_message_id, sequence FROM idempotency_keys WHERE chat_id = ?")
        return {str(client_id): int(sequence) for client_id, sequence in found}

    @property
    def voids(self) -> list[int]:
        found = self.rows("SELECT sequence FROM voids WHERE chat_id = ? ORDER BY sequence")
        return [int(sequence) for (sequence,) in found]

    def listed_devices(self, user_id: str) -> list[str]:
        """The devices that a person is known to have: a new one is noted behind its first ack."""
        query = "SELECT partition, record ->> '$.devices' FROM records WHERE kind = 'device_lists' AND ? > ''"
        return [name for person, names in self.rows(query) if person == user_id for name in json.loads(names)]

    def delete_counter(self) -> None:
        """The operational error of scenario 7, with an operator's own sqlite3."""
        with closing(sqlite3.connect(self._path, timeout=5)) as connection, connection:
            connection.execute("DELETE FROM chat_counters WHERE chat_id = ?", (self._chat_id,))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Another program holds the write lock: the store cannot be written."""
        with closing(sqlite3.connect(self._path, timeout=5, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")


def store_of(world: World) -> Store:
    return Store(world.server.sqlite_path, world.chat_id)


async def metric(world: World, name: str) -> float:
    """The sum of a metric over its labels."""
    text = (await world.http.get("/metrics")).body
    values = [
        line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
    ]
    assert values, f"no metric {name}"
    return sum(map(float, values))
