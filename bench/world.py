"""People, chats and messages for a run, written straight into the store before the server starts.

Registering thousands of people over HTTP would measure the password hash, which is slow on purpose.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from parley import ids
from parley.clock import MS_PER_DAY, iso, wall_clock
from parley.model import ChatType, Draft, Session, StoredChat, User
from parley.records.kinds import Kinds
from parley.store.ports import Engine
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics
from parley.wire.limits import SESSION_DAYS

DEVICE_ID = "bench"
NO_PASSWORD = "!"
FILL_BATCH_MESSAGES = 1_000
PEOPLE_AT_ONCE = 25
"""Few: a database in a process of its own answers one by one, and its client has short timeouts."""
CONTENT = "x" * 128


class Person(Struct, frozen=True):
    user_id: str
    token: str
    device_id: str = DEVICE_ID


class World:
    """Writes with the store's own classes, so that the data is as users' data."""

    def __init__(self, store: Engine, make_ids: ids.Ids) -> None:
        self._store = store
        self._kinds = Kinds(store, wall_clock)
        self._ids = make_ids

    @property
    def store(self) -> Engine:
        return self._store

    async def people(self, count: int) -> list[Person]:
        """New people, each with the session of one device."""
        made: list[Person] = []
        while len(made) < count:
            some = min(PEOPLE_AT_ONCE, count - len(made))
            made += await asyncio.gather(*(self._person() for _ in range(some)))
        return made

    async def _person(self) -> Person:
        now_ms, token = wall_clock(), "prl_" + secrets.token_urlsafe(32)
        user_id = self._ids.next(ids.USER, now_ms)
        name = user_id[len(ids.USER) :].lower()
        session = Session(
            session_id=self._ids.next(ids.SESSION, now_ms),
            user_id=user_id,
            device_id=DEVICE_ID,
            device_name=DEVICE_ID,
            created_at_ms=now_ms,
            last_used_at_ms=now_ms,
            expires_at_ms=now_ms + SESSION_DAYS * MS_PER_DAY,
        )
        await self._kinds.accounts.add_user(User(user_id, name, name, "", False, iso(now_ms)), NO_PASSWORD)
        await self._kinds.sessions.add(session, hashlib.sha256(token.encode()).digest())
        return Person(user_id, token)

    async def group(self, members: Sequence[Person]) -> str:
        return await self._chat(ChatType.GROUP, "bench", members)

    async def direct(self, one: Person, other: Person) -> str:
        return await self._chat(ChatType.DIRECT, None, (one, other))

    async def _chat(self, chat_type: ChatType, title: str | None, members: Sequence[Person]) -> str:
        now_ms = wall_clock()
        chat_id = self._ids.next(ids.CHAT, now_ms)
        owner, moment = members[0].user_id, iso(now_ms)
        chat = StoredChat(chat_id, chat_type, title, owner, moment, moment, epoch=1)
        made, _ = await self._store.directory.create_chat(chat, [member.user_id for member in members])
        return made.chat_id

    async def fill(
        self, chat_id: str, sender: Person, messages: int, content: Callable[[], str] = lambda: CONTENT
    ) -> None:
        """Append as the server would, but without clients."""
        for start in range(0, messages, FILL_BATCH_MESSAGES):
            size = min(FILL_BATCH_MESSAGES, messages - start)
            await self._store.log.append([_draft(chat_id, sender, content()) for _ in range(size)])


def _draft(chat_id: str, sender: Person, content: str) -> Draft:
    client_id = uuid4()
    return Draft(
        chat_id=chat_id,
        sender_id=sender.user_id,
        content=content,
        client_message_id=str(client_id),
        client_key=client_id.bytes,
    )


@asynccontextmanager
async def open_world(data: Path) -> AsyncIterator[World]:
    """A store without a server."""
    make_ids = ids.Ids(secrets.randbits)
    store = SqliteStore(data, clock=wall_clock, ids=make_ids, metrics=Metrics(wall_clock))
    await store.open()
    try:
        yield World(store, make_ids)
    finally:
        await store.close()
