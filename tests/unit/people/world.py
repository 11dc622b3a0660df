"""People who look at each other, over stores that count and may fail, for tests of presence and typing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from msgspec import structs

from parley.clock import iso
from parley.ephemeral.local import LocalRegistry
from parley.ephemeral.ports import Presence
from parley.errors import StoreUnavailable
from parley.model import Manners, Privacy, Regard, Related, Relation, User
from parley.people.presence import Presences
from parley.people.publishing import FLAP_SECONDS
from parley.people.watching import Watcher
from parley.telemetry import Metrics
from parley.testing.clock import START_MS, VirtualClock, run_virtual
from parley.wire.frames import PresenceChanged, ServerFrame

CREATED_AT = iso(START_MS)
READ_SECONDS = 0.001
SOON_SECONDS = 0.5
assert SOON_SECONDS < FLAP_SECONDS / 2


class FakeRelations:
    """Everybody whose id starts with "usr_" exists, and all of them share a chat, but for strangers."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.contacts: set[tuple[str, str]] = set()
        self.blocks: set[tuple[str, str]] = set()
        self.strangers: set[str] = set()
        self.reads: list[tuple[str, int]] = []
        self.is_away = False

    def user(self, user_id: str) -> User | None:
        if not user_id.startswith("usr_"):
            return None
        return self.users.get(user_id) or User(user_id, user_id[4:], user_id[4:], "", False, CREATED_AT)

    def set(self, user_id: str, privacy: Privacy = Privacy.EVERYONE, last_seen: str | None = None) -> None:
        user = self.user(user_id)
        assert user is not None
        self.users[user_id] = structs.replace(user, last_seen_privacy=privacy, last_seen=last_seen)

    async def regards(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Regard]:
        await self._read("regards", user_ids)
        found = {user_id: self._regard(viewer_id, user_id, acquainted) for user_id in user_ids}
        return {user_id: regard for user_id, regard in found.items() if regard is not None}

    def _regard(self, viewer_id: str, user_id: str, acquainted: bool) -> Regard | None:
        user = self.user(user_id)
        if user is None:
            return None
        is_contact = (viewer_id, user_id) in self.contacts
        has_contact = (user_id, viewer_id) in self.contacts
        shares = acquainted or not {viewer_id, user_id} & self.strangers
        return Regard(
            user=user,
            is_contact=is_contact,
            has_contact=has_contact,
            is_blocked=(viewer_id, user_id) in self.blocks,
            has_blocked=(user_id, viewer_id) in self.blocks,
            is_acquainted=shares or is_contact or has_contact,
        )

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        await self._read("profiles", user_ids)
        return {user_id: user for user_id in user_ids if (user := self.user(user_id)) is not None}

    async def manners(self, user_ids: Sequence[str]) -> dict[str, Manners]:
        await self._read("manners", user_ids)
        return {
            user_id: Manners(True, frozenset(blocked for by, blocked in self.blocks if by == user_id))
            for user_id in user_ids
            if self.user(user_id) is not None
        }

    async def relate(self, user_id: str, other_id: str, relation: Relation, since: str | None) -> None:
        raise NotImplementedError

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[Related]:
        raise NotImplementedError

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
        watching, self._watching = self._watching, type(self._watching)()
        yield
        self._watching = watching


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
        self.relations = FakeRelations()
        self.metrics = Metrics(clock)
        self.frames = 0
        self.encodings = 0
        self.presences = Presences(self.registry, self.relations, self.metrics, self._tell_some)

    def _tell_some(self, watchers: Iterable[Watcher], frame: ServerFrame) -> None:
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
