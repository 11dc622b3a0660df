"""A whole server in the test's own process, and short words for those who talk to it.

async def test_something(place: Place) -> None:
    async with place.serving() as served:
        ann, ben = await served.people("ann", "ben")
        chat = await served.as_(ann).create_group(ben)
        async with served.client(ann) as client:
            ...
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from parley import config
from parley.app import App
from parley.clock import Clock, wall_clock
from parley.store.sqlite.store import SqliteStore
from tests.harness.clients import PASSWORD, Answer, Frame, HttpClient, Person, RawClient


class Served:
    """A running server and a session to reach it."""

    def __init__(self, app: App, port: int, session: ClientSession) -> None:
        self.app = app
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.session = session
        self.http = HttpClient(session, self.url)

    @property
    def sqlite(self) -> SqliteStore:
        """The store, for tests that look into its file."""
        assert isinstance(self.app.store, SqliteStore)
        return self.app.store

    async def people(self, *usernames: str) -> list[Person]:
        """New accounts, each logged in on a device called phone."""
        return [await self.http.newcomer(username) for username in usernames]

    async def operator(self, username: str = "root") -> Person:
        """A new account that may use /v1/admin, logged in."""
        await self.app.accounts.register(username, PASSWORD, is_operator=True, by_operator=True)
        return await self.http.login(username)

    def as_(self, person: Person) -> HttpClient:
        return self.http.of(person)

    def client(self, person: Person, **options: Any) -> RawClient:
        return RawClient(self.session, self.url, person, **options)

    async def said(self, person: Person, chat_id: str, *contents: str) -> list[Frame]:
        """Messages over HTTP, one after the other; their receipts."""
        receipts = []
        for content in contents:
            answer = await self.as_(person).post(f"/v1/chats/{chat_id}/messages", message(content))
            assert answer.status == 201, answer
            receipts.append(answer.body)
        return receipts

    def metric(self, name: str, **labels: str) -> float:
        return self.app.metrics.registry.get_sample_value(name, labels) or 0.0


class Place:
    """A data folder and settings, by the names of the environment."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.settings = dict(settings)

    @asynccontextmanager
    async def serving(
        self, settings: Mapping[str, str] | None = None, clock: Clock = wall_clock, **faults: str
    ) -> AsyncIterator[Served]:
        """Serve until the end of the block; `faults` are variables of `parley.testing.faults`."""
        environment = {**self.settings, **(settings or {}), "PARLEY_SERVER_PORT": "0"}
        chosen, unknown = config.load(None, {"PARLEY_SERVER_DATA": str(self.folder), **environment})
        assert not unknown
        app = App(chosen, clock=clock, environment=faults)
        port = await app.start()
        try:
            async with ClientSession() as session:
                yield Served(app, port, session)
        finally:
            await app.stop()


_numbers = iter(range(1, 2**30))


def new_id() -> str:
    """A client's UUIDv4, unlike any before."""
    return f"{next(_numbers):08x}-0000-4000-8000-000000000000"


def message(content: str = "hi", client_id: str = "", **fields: Any) -> dict[str, Any]:
    """The body of a send."""
    return {"client_message_id": client_id or new_id(), "content": content, **fields}


def assert_refused(answer: Answer, status: int, code: str) -> None:
    """An error has its status, and a body of exactly the documented fields."""
    assert (answer.status, answer.body.get("code")) == (status, code), answer
    assert set(answer.body) - {"retry_after_ms"} == {"code", "reason", "temporary"}
    assert answer.body["reason"]
    headers = {name.lower(): value for name, value in answer.headers.items()}
    assert ("retry-after" in headers) == ("retry_after_ms" in answer.body)
    assert headers["x-request-id"]
