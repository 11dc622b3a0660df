"""People who look at each other, over relations in memory that count and may fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs

from parley.clock import iso
from parley.ephemeral.local import LocalRegistry
from parley.ephemeral.ports import Presence
from parley.errors import StoreUnavailable
from parley.model import (
    ChatMember,
    ChatType,
    Contact,
    PersonConsent,
    Privacy,
    Relation,
    Relationship,
    Role,
    StoredChat,
    User,
    Visibility,
)
from parley.people.presence import PresenceService
from parley.people.presence_publisher import FLAP_SECONDS
from parley.people.presence_watches import PresenceWatcher
from parley.records.accounts import Accounts
from parley.records.raised import RaisedLater
from parley.records.relations import Relations
from parley.store.tables import CONSENTS, CONTACTS
from parley.telemetry import Metrics
from parley.wire.frames import PresenceChanged, ServerFrame
from tests.harness.clock import START_MS, VirtualClock, run_virtual
from tests.memory.people import MemoryDirectory
from tests.memory.records import MemoryRecords
from tests.memory.tables import Tables

CREATED_AT = iso(START_MS)
READ_SECONDS = 0.001
SOON_SECONDS = 0.5
assert SOON_SECONDS < FLAP_SECONDS / 2


class CountingRelations(Relations):
    """The relations of everybody whose id starts with "usr_": they share a chat, until they are strangers.

    Counts what it is asked, takes its time, and may be away.
    """

    def __init__(self, tables: Tables, clock: VirtualClock) -> None:
        records: Any = MemoryRecords(tables)
        accounts = Accounts(records, MemoryDirectory(tables), RaisedLater(records, SOON_SECONDS))
        super().__init__(records, MemoryDirectory(tables), accounts, clock)
        self.reads: list[tuple[str, int]] = []
        self.is_away = False
        self._tables = tables
        self._everybody = tables.add_chat(
            StoredChat("chat_everybody", ChatType.GROUP, None, "", CREATED_AT, CREATED_AT, 1), []
        )

    def set(self, user_id: str, privacy: Privacy = Privacy.EVERYONE, last_seen: str | None = None) -> None:
        self._meet(user_id)
        user = self._tables.user(user_id)
        self._tables.put_user(structs.replace(user, last_seen_privacy=privacy, last_seen=last_seen))

    def hold(self, relation: Relation, *pairs: tuple[str, str]) -> None:
        """From now on the first of each pair holds the second so, and nobody else does."""
        said = {user_id: PersonConsent(user_id=user_id) for user_id, _ in pairs}
        contacts = list[Contact]()
        for user_id, other_id in pairs:
            one = said[user_id]
            if relation is Relation.BLOCK:
                said[user_id] = structs.replace(one, blocks=one.blocks | {other_id: CREATED_AT})
            else:
                contacts.append(Contact(user_id=user_id, other_id=other_id, since=CREATED_AT))
                said[user_id] = structs.replace(one, contacts=one.contacts + 1)
        self._tables.records[CONSENTS.name] = {
            CONSENTS.key(one): (CONSENTS.encode(one), 0) for one in said.values()
        }
        self._tables.records[CONTACTS.name] = {
            CONTACTS.key(one): (CONTACTS.encode(one), 0) for one in contacts
        }

    def estrange(self, user_id: str) -> None:
        self._meet(user_id)
        del self._everybody.members[user_id]

    def _meet(self, *user_ids: str) -> None:
        for user_id in user_ids:
            if user_id.startswith("usr_") and not self._tables.has_account(user_id):
                name = user_id[4:]
                self._tables.put_user(User(user_id, name, name, "", False, CREATED_AT))
                self._everybody.members[user_id] = ChatMember(user_id, Role.MEMBER, CREATED_AT, 0)

    async def relationships(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Relationship]:
        await self._read("relationships", user_ids)
        self._meet(viewer_id, *user_ids)
        return await super().relationships(viewer_id, user_ids, acquainted)

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        await self._read("profiles", user_ids)
        self._meet(*user_ids)
        return await super().profiles(user_ids)

    async def visibility(self, user_ids: Sequence[str]) -> dict[str, Visibility]:
        await self._read("visibility", user_ids)
        self._meet(*user_ids)
        return await super().visibility(user_ids)

    async def _read(self, kind: str, user_ids: Sequence[str]) -> None:
        self.reads.append((kind, len(user_ids)))
        await asyncio.sleep(READ_SECONDS)
        if self.is_away:
            raise StoreUnavailable("the store is away")


class CountingRegistry(LocalRegistry):
    """Counts whom it was asked about; may go away, lose what happens meanwhile, and come back."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.asked = 0
        self.return_: Callable[[], None] = lambda: None

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        self.asked += len(user_ids)
        await asyncio.sleep(READ_SECONDS)
        return await super().presences(user_ids)

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        self.return_ = returned
        return lambda: None

    async def come(self, *user_ids: str) -> None:
        await self.connected([(user_id, "phone") for user_id in user_ids], "a")

    async def go(self, *user_ids: str) -> None:
        await self.disconnected([(user_id, "phone") for user_id in user_ids], "a")

    @asynccontextmanager
    async def unheard(self) -> AsyncIterator[None]:
        """What changes in here is told to nobody."""
        watchers, self._watchers = self._watchers, type(self._watchers)()
        yield
        self._watchers = watchers


class Connection:
    """What one connection was told, as (user, status, last seen)."""

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.told: list[tuple[str, str, str | None]] = []

    @property
    def statuses(self) -> list[tuple[str, str]]:
        return [(user_id, status) for user_id, status, _ in self.told]


class PresenceWorld:
    """One node: a registry, relations, and those who watch."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.registry = CountingRegistry(clock)
        self.relations = CountingRelations(Tables(), clock)
        self.metrics = Metrics(clock)
        self.frames = 0
        self.encodings = 0
        self.presences = PresenceService(self.registry, self.relations, self.metrics, self._tell_some)

    def _tell_some(self, watchers: Iterable[PresenceWatcher], frame: ServerFrame) -> None:
        assert isinstance(frame, PresenceChanged)
        self.encodings += 1
        for watcher in watchers:
            assert isinstance(watcher, Connection)
            self.frames += 1
            watcher.told.append((frame.user_id, frame.status, frame.last_seen))

    async def watches(self, viewer_id: str, *user_ids: str) -> Connection:
        connection = Connection(viewer_id)
        await self.presences.subscribe(connection, user_ids)
        return connection

    async def sees(self, viewer_id: str, user_id: str) -> tuple[str, str | None]:
        (view,) = await self.presences.query(viewer_id, [user_id])
        return view.status, view.last_seen


@asynccontextmanager
async def presence_world(clock: VirtualClock) -> AsyncIterator[PresenceWorld]:
    world = PresenceWorld(clock)
    world.presences.start()
    try:
        yield world
    finally:
        await world.presences.close()


def in_world(scenario: Callable[[PresenceWorld], Awaitable[None]]) -> None:
    """Play a scenario in virtual time."""

    async def run(clock: VirtualClock) -> None:
        async with presence_world(clock) as world:
            await scenario(world)

    run_virtual(run)


async def soon() -> None:
    """Long enough for what is told at once."""
    await asyncio.sleep(SOON_SECONDS)


async def quiet() -> None:
    """Long enough for what is held back."""
    await asyncio.sleep(2 * FLAP_SECONDS)
