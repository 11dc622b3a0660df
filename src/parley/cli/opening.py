"""The use cases of a store without a server around them: what commands write through.

They use the same rooms as the server, may run beside it, and never take its place: no lock, no sealing,
no checkpoint. A running server notices what they wrote: in a folder of its own within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from parley import ids
from parley.bus.embedded import EmbeddedBus
from parley.chats.accounts import People, check_device
from parley.chats.membership import Membership
from parley.chats.sending import BATCH_DRAFTS_MAX, Sending
from parley.cli.naming import require_user
from parley.cli.places import Place
from parley.cli.records import records_of
from parley.clock import wall_clock
from parley.model import Session
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics, configure_logs

if TYPE_CHECKING:
    from parley.app.engines import Store

DEVICE_NAME = "parley command line"

T = TypeVar("T")


class Life(Protocol):
    """A store that is opened and closed; `lanes` and `batch_drafts_max` say how its log is sent to."""

    lanes: int
    batch_drafts_max: int

    @property
    def store(self) -> Store: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class Beside:
    """The store of a folder, perhaps beside its server. It must be there: commands make none by the way."""

    batch_drafts_max = BATCH_DRAFTS_MAX

    def __init__(self, place: Place, make_ids: ids.Ids, metrics: Metrics) -> None:
        self.store = SqliteStore(
            place.require_store(),
            clock=wall_clock,
            ids=make_ids,
            metrics=metrics,
            sequencing=place.settings.store.sequencing,
            beside=True,
        )
        self.lanes = self.store.log.lanes
        self.close = self.store.close

    async def open(self) -> None:
        await self.store.open()


def _life_of(place: Place, make_ids: ids.Ids, metrics: Metrics) -> Life:
    if not place.is_shared:
        return Beside(place, make_ids, metrics)
    from parley.app.shared import SharedEngine

    return SharedEngine(place.settings, wall_clock, make_ids, metrics, lambda _: None, os.environ)


class Desk:
    """People and memberships of one store."""

    def __init__(self, place: Place) -> None:
        make_ids = ids.Ids(random.SystemRandom().getrandbits)
        metrics = Metrics(wall_clock)
        self.life = life = _life_of(place, make_ids, metrics)
        self.store = store = life.store
        bus = EmbeddedBus()
        self.sending = Sending(store.log, bus, metrics, life.lanes, life.batch_drafts_max)
        self.people = People(
            store.accounts,
            store.cursors,
            bus,
            wall_clock,
            make_ids,
            secrets.token_bytes,
            place.settings.password_letters_min,
        )
        self.membership = Membership(store.directory, self.sending, bus, wall_clock, make_ids)


@contextlib.asynccontextmanager
async def open_desk(place: Place) -> AsyncIterator[Desk]:
    desk = Desk(place)
    await desk.life.open()
    desk.sending.start()
    try:
        yield desk
    finally:
        await desk.sending.stop()
        desk.people.close()
        await desk.life.close()


def make_token(place: Place, name: str, device_id: str) -> tuple[str, Session]:
    """A new session for somebody, and its token."""
    user_id = require_user(records_of(place), name)
    check_device(device_id)

    async def open_session() -> tuple[str, Session]:
        async with open_desk(place) as desk:
            return await desk.people.open_session(user_id, device_id, DEVICE_NAME)

    return run(open_session())


def end_session(place: Place, session: Session) -> None:
    """Forget a session that a command made for itself."""

    async def end() -> None:
        async with open_desk(place) as desk:
            await desk.store.accounts.end_sessions(session.user_id, [session.session_id])

    run(end())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command that waits; what it logs goes to stderr as lines to read."""
    configure_logs("warning", as_json=False)
    return asyncio.run(work)
