"""The ports of a store that is opened, and opened again, in the midst of a test."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

from parley.store.attachments import Attachments
from parley.store.check import check
from parley.store.delivery.ports import DeliveryStore
from parley.store.identities.ports import ApiTokens, ExternalIds
from parley.store.invariants import Findings
from parley.store.ports import (
    AccountAdmin,
    Accounts,
    AuditLog,
    Cursors,
    Directory,
    Engine,
    Invitations,
    Log,
    LogHashes,
    MemberStates,
    Overviews,
    Relations,
    Store,
)
from parley.store.push.ports import PushStore
from parley.store.recovery import recover


def elsewhere(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end on another thread's loop, as an operator's tool would."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class PortsOfStore(ABC):
    """Always those of the store that is open now; and the engine that an operator has beside it."""

    store: Store

    @abstractmethod
    def make_operator(self) -> Engine:
        """The engine as a command has it, with connections of its own, not opened."""

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Engine]:
        engine = self.make_operator()
        try:
            yield engine
        finally:
            await engine.close()

    async def _as_operator(self, work: Callable[[Engine], Coroutine[Any, Any, Any]]) -> Any:
        async with self.operator() as engine:
            return await work(engine)

    def recover_counter(self, chat_id: str) -> None:
        elsewhere(self._as_operator(lambda engine: recover(engine, chat_id, apply=True)))

    def breaches(self) -> list[str]:
        findings: Findings = elsewhere(self._as_operator(lambda engine: check(engine.inspection)))
        return [str(breach) for breach in findings.breaches]

    @property
    def engine(self) -> Engine:
        return cast(Engine, self.store)

    @property
    def log(self) -> Log:
        return self.store.log

    @property
    def log_hashes(self) -> LogHashes:
        return self.store.log_hashes

    @property
    def directory(self) -> Directory:
        return self.store.directory

    @property
    def accounts(self) -> Accounts:
        return self.store.accounts

    @property
    def account_admin(self) -> AccountAdmin:
        return self.store.account_admin

    @property
    def audit(self) -> AuditLog:
        return self.store.audit

    @property
    def cursors(self) -> Cursors:
        return self.store.cursors

    @property
    def overviews(self) -> Overviews:
        return self.store.overviews

    @property
    def relations(self) -> Relations:
        return self.store.relations

    @property
    def invitations(self) -> Invitations:
        return self.store.invitations

    @property
    def deliveries(self) -> DeliveryStore:
        """Only of engines that have them."""
        found: DeliveryStore = getattr(self.store, "deliveries")  # noqa: B009 - not a port of every store
        return found

    @property
    def push(self) -> PushStore:
        found: PushStore = getattr(self.store, "push")  # noqa: B009 - not a port of every use case
        return found

    @property
    def api_tokens(self) -> ApiTokens:
        return self.engine.api_tokens

    @property
    def external_ids(self) -> ExternalIds:
        return self.engine.external_ids

    @property
    def attachments(self) -> Attachments:
        return self.engine.attachments

    @property
    def member_states(self) -> MemberStates:
        return self.store.member_states
