"""The use cases of a store without a server around them: what commands write through.

They use the same rooms as the server, may run beside it, and never take its place: no lock, no sealing,
no checkpoint. A running server notices what they wrote within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from parley import ids
from parley.bus.embedded import EmbeddedBus
from parley.chats.accounts import People, check_device
from parley.chats.membership import Membership
from parley.chats.sending import Sending
from parley.cli.naming import require_user
from parley.cli.places import Place
from parley.clock import wall_clock
from parley.model import Session
from parley.store.sqlite.store import SqliteStore
from parley.telemetry import Metrics, configure_logs

DEVICE_NAME = "parley command line"

T = TypeVar("T")


class Desk:
    """People and memberships of one store."""

    def __init__(self, place: Place) -> None:
        make_ids = ids.Ids(random.SystemRandom().getrandbits)
        metrics = Metrics(wall_clock)
        self.store = store = SqliteStore(
            place.folder,
            clock=wall_clock,
            ids=make_ids,
            metrics=metrics,
            sequencing=place.settings.store.sequencing,
            beside=True,
        )
        bus = EmbeddedBus()
        self.sending = Sending(store.log, bus, metrics, store.log.lanes)
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
    await desk.store.open()
    desk.sending.start()
    try:
        yield desk
    finally:
        await desk.sending.stop()
        desk.people.close()
        await desk.store.close()


def make_token(place: Place, name: str, device_id: str) -> tuple[str, Session]:
    """A new session for somebody, and its token."""
    user_id = require_user(place.require_store(), name)
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
