"""The ports of a store that is opened, and opened again, in the midst of a test."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

from parley.checks.check import check
from parley.checks.recovery import recover
from parley.records.account_admin import AccountAdmin
from parley.records.accounts import Accounts
from parley.records.attachments import Attachments
from parley.records.deliveries import DeliveryRecords
from parley.records.invitations import Invitations
from parley.records.kinds import Kinds
from parley.records.push import PushRecords
from parley.records.relations import Relations
from parley.records.sessions import Sessions
from parley.store.invariants import Findings
from parley.store.ports import (
    Cursors,
    Directory,
    Engine,
    Log,
    MemberStates,
    Overviews,
    Records,
    Store,
)
from parley.store.tables import R, RecordTable
from tests.harness.clock import VirtualClock


def elsewhere(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end on another thread's loop, as an operator's tool would."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class PortsOfStore(ABC):
    """Always those of the store that is open now; and the engine that an operator has beside it."""

    store: Store
    clock: VirtualClock
    _kinds: tuple[Store, Kinds] | None = None

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

    def load(self, table: RecordTable[R], *records: R) -> None:
        """Write these as they are, from another thread."""
        elsewhere(self._as_operator(lambda engine: engine.records.load(table, records)))

    def breaches(self) -> list[str]:
        findings: Findings = elsewhere(self._as_operator(lambda engine: check(engine)))
        return [str(breach) for breach in findings.breaches]

    @property
    def engine(self) -> Engine:
        return cast(Engine, self.store)

    @property
    def log(self) -> Log:
        return self.store.log

    @property
    def directory(self) -> Directory:
        return self.store.directory

    @property
    def accounts(self) -> Accounts:
        return self.kinds.accounts

    @property
    def account_admin(self) -> AccountAdmin:
        return self.kinds.account_admin

    @property
    def sessions(self) -> Sessions:
        return self.kinds.sessions

    @property
    def cursors(self) -> Cursors:
        return self.store.cursors

    @property
    def overviews(self) -> Overviews:
        return self.store.overviews

    @property
    def relations(self) -> Relations:
        return self.kinds.relations

    @property
    def invitations(self) -> Invitations:
        return self.kinds.invitations

    @property
    def deliveries(self) -> DeliveryRecords:
        return self.kinds.deliveries

    @property
    def push(self) -> PushRecords:
        return self.kinds.push

    @property
    def records(self) -> Records:
        return self.engine.records

    @property
    def kinds(self) -> Kinds:
        """Those of the engine that is open: they keep what was noted until it is written."""
        if self._kinds is None or self._kinds[0] is not self.store:
            self._kinds = self.store, Kinds(self.engine, self.clock)
        return self._kinds[1]

    @property
    def attachments(self) -> Attachments:
        return self.kinds.attachments

    @property
    def member_states(self) -> MemberStates:
        return self.store.member_states
