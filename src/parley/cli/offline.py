"""The store and the use cases for commands, without a server.

Commands use the same use cases as the server and may run at the same time. They do not do its jobs: no lock,
no sealing, no checkpoint. A running server notices what they wrote: on SQLite within a second, and nodes that
share a store are told.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from parley import ids
from parley.accounts.accounts import AccountManager, check_device
from parley.accounts.api_tokens import ApiTokenService
from parley.accounts.deletions import AccountDeletions
from parley.accounts.links import LinkService
from parley.accounts.user_admin import UserAdmin
from parley.app.engines import make_engine
from parley.audit import COMMAND_LINE, OperatorCall
from parley.bus.embedded import EmbeddedBus
from parley.chats.invitations import InvitationService
from parley.chats.membership import Membership
from parley.chats.reports import ReportService
from parley.cli.names import require_chat, require_user
from parley.cli.places import Place
from parley.clock import wall_clock
from parley.config import Config
from parley.delivery.events import EventOutbox
from parley.ephemeral.local import LocalSignals
from parley.gateway.answered_requests import AnsweredRequests
from parley.model import ApiToken, Scope, Session
from parley.push.registrations import forget_devices
from parley.records.kinds import Kinds
from parley.sending.amended_log import amended_log
from parley.sending.pending import PendingSends
from parley.sending.sender import LocalSender
from parley.store.ports import Engine
from parley.telemetry import Metrics, configure_logs

if TYPE_CHECKING:
    from parley.app.cluster import CommandNotices

DEVICE_NAME = "parley command line"

T = TypeVar("T")


def ask(place: Place, question: Callable[[Engine], Awaitable[T]]) -> T:
    """Use the engine of a place without `Engine.open`: enough for listing, inspection and repairs."""

    async def answer() -> T:
        _require_store(place)
        engine = make_offline_engine(place)
        try:
            return await question(engine)
        finally:
            await engine.close()

    return run(answer())


def _require_store(place: Place) -> None:
    """CommandFailed if there is no store: only `store init` and a server create one."""
    if not place.is_shared:
        place.require_store()


def make_offline_engine(
    place: Place, make_ids: ids.Ids | None = None, metrics: Metrics | None = None
) -> Engine:
    """The engine of a place, not opened."""
    return make_engine(
        place.settings,
        clock=wall_clock,
        ids=make_ids or ids.Ids(random.SystemRandom().getrandbits),
        metrics=metrics or Metrics(wall_clock),
        environment=os.environ,
        beside=True,
    )


class OfflineServices:
    """The use cases that commands need, over one open engine."""

    def __init__(self, place: Place) -> None:
        self.make_ids = make_ids = ids.Ids(random.SystemRandom().getrandbits)
        metrics = Metrics(wall_clock)
        _require_store(place)
        self.engine = engine = make_offline_engine(place, make_ids, metrics)
        self.kinds = kinds = Kinds(engine, wall_clock)
        bus = EmbeddedBus()
        self.notices = _notices(place.settings, make_ids, metrics)
        if self.notices is not None:
            bus.subscribe(self.notices.listener)
        self.sending = LocalSender(engine.log, bus, PendingSends(), metrics, engine.batching)
        self.people = AccountManager(
            accounts=kinds.accounts,
            sessions=kinds.sessions,
            cursors=engine.cursors,
            bus=bus,
            clock=wall_clock,
            make_ids=make_ids,
            random_bytes=secrets.token_bytes,
            password_chars_min=place.settings.password_chars_min,
            refuses_common=place.settings.refuses_common_passwords,
            events=EventOutbox(kinds.deliveries, wall_clock, make_ids),
        )
        self.api_tokens = ApiTokenService(
            kinds.api_tokens, kinds.accounts, engine.directory, bus, wall_clock, secrets.token_bytes
        )
        self.membership = Membership(engine.directory, self.sending, bus, wall_clock, make_ids)
        self.deletions = AccountDeletions(
            admin=kinds.account_admin,
            directory=engine.directory,
            relations=kinds.relations,
            invitations=kinds.invitations,
            membership=self.membership,
            clock=wall_clock,
            forget_devices=partial(forget_devices, kinds.push.devices),
            forget_tokens=self.api_tokens.forget_person,
            device_lists=kinds.device_lists,
            forget_answers=AnsweredRequests(engine.records, wall_clock, secrets.token_bytes).forget_person,
        )
        self.user_admin = UserAdmin(
            manager=self.people,
            accounts=kinds.accounts,
            admin=kinds.account_admin,
            audit=kinds.audit,
            deletions=self.deletions,
            close_tokens=self.api_tokens.close_sockets,
            clock=wall_clock,
            make_ids=make_ids,
        )
        self.links = LinkService(
            kinds.links, self.people, self.user_admin, wall_clock, make_ids, secrets.token_bytes
        )
        self.reports = ReportService(
            kinds.reports, amended_log(engine), engine.directory, self.user_admin, wall_clock
        )
        self.invitations = InvitationService(
            self.membership,
            engine.directory,
            kinds.invitations,
            kinds.relations,
            LocalSignals(),  # frames to connected people come from servers alone
            wall_clock,
        )


def _notices(config: Config, make_ids: ids.Ids, metrics: Metrics) -> CommandNotices | None:
    """On a shared store nodes hear of ended sessions and new chats from the one who made them."""
    if not config.store.is_shared or not config.redis.url or not config.cluster.secret:
        return None
    from parley.app.cluster import CommandNotices

    return CommandNotices(config, wall_clock, make_ids, metrics)


@contextlib.asynccontextmanager
async def open_services(place: Place) -> AsyncIterator[OfflineServices]:
    services = OfflineServices(place)
    await services.engine.open()
    services.sending.start()
    try:
        yield services
    finally:
        await services.sending.stop()
        if services.notices is not None:
            await services.notices.close()
        services.people.close()
        await services.kinds.close()
        await services.engine.close()


def who_acts() -> OperatorCall:
    """For the audit log: the user of the operating system, by name or number."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    return OperatorCall(f"{COMMAND_LINE}{name}")


def make_token(place: Place, name: str, device_id: str) -> tuple[str, Session]:
    """A new session of a person, and its token."""
    check_device(device_id)

    async def open_session() -> tuple[str, Session]:
        async with open_services(place) as services:
            user_id = await require_user(services.kinds.listing, name)
            async with services.user_admin.audited(who_acts(), "user.token", user_id, device_id):
                return await services.people.open_session(user_id, device_id, DEVICE_NAME)

    return run(open_session())


def make_api_token(
    place: Place, name: str, scopes: Sequence[Scope], chat: str, expires_in_days: int | None
) -> tuple[str, ApiToken]:
    """A new token for a program that acts for a person, or for a bot."""

    async def make() -> tuple[str, ApiToken]:
        async with open_services(place) as services:
            listing = services.kinds.listing
            user_id = await require_user(listing, name)
            chat_id = (await require_chat(listing, chat)).chat_id if chat else ""
            call, detail = who_acts(), f"name={name} scopes={','.join(scopes)} chat={chat_id}"
            async with services.user_admin.audited(call, "token.make", user_id, detail):
                return await services.api_tokens.make(
                    user_id, name, scopes, chat_id, expires_in_days, [call.actor]
                )

    return run(make())


async def begin_erasure(engine: Engine, user_id: str) -> None:
    """Note that a person's bodies go; the job of a server removes them."""
    from parley.bodies.erasures import note_erasure

    kinds = Kinds(engine, wall_clock)
    await note_erasure(kinds.erasures, kinds.erasure_reports, user_id, wall_clock())


def end_session(place: Place, session: Session) -> None:
    """End a session that a command created for itself."""

    async def end() -> None:
        async with open_services(place) as services:
            await services.kinds.sessions.end(session.user_id, [session.session_id])

    run(end())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run an asynchronous command; its log goes to stderr as text."""
    configure_logs("warning", as_json=False)
    return asyncio.run(work)
