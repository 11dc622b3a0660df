"""What operators do to people when something happens, each action recorded before it begins.

An operator acts by HTTP or at the command line, with the same rules. See docs/accounts.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.chats.accounts import AccountManager
from parley.chats.deletions import AccountDeletions
from parley.clock import Clock, iso
from parley.errors import NOT_FOUND, OUTCOME_UNKNOWN, STORE_UNAVAILABLE, OutcomeUnknown, Refused, StoreError
from parley.model import AccountState, AuditRecord, Session, User, UserPage
from parley.store.ports import AccountAdmin, Accounts, AuditLog

OPERATORS_PER_PAGE = 500
DONE, FAILED = "done", "failed"
COMMAND_LINE = "cli:"

log = structlog.get_logger("parley.accounts")


class OperatorCall(Struct, frozen=True):
    """Who acts, and by which request."""

    actor: str
    request_id: str = ""

    @property
    def is_person(self) -> bool:
        return not self.actor.startswith(COMMAND_LINE)


class UserAdmin:
    """`changed` is called with the id of a person whose profile or state changed."""

    def __init__(
        self,
        manager: AccountManager,
        accounts: Accounts,
        admin: AccountAdmin,
        audit: AuditLog,
        deletions: AccountDeletions,
        clock: Clock,
        make_ids: ids.Ids,
        changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._manager = manager
        self._accounts = accounts
        self._admin = admin
        self._audit = audit
        self._deletions = deletions
        self._clock = clock
        self._ids = make_ids
        self._changed = changed

    # Looking

    async def find(self, query: str, after: str, limit: int) -> UserPage:
        """The person with exactly this username or id; if there is none, those whose names contain it."""
        if query and not after:
            found = await self._accounts.user_by_name(query)
            user = found[0] if found is not None else await self._accounts.user(query)
            if user is not None:
                return UserPage([user], None)
        return await self._admin.find_users(query, after, limit)

    async def sessions(self, user_id: str) -> list[Session]:
        await self._manager.user(user_id)
        return await self._manager.sessions(user_id)

    async def records(self, before: str, limit: int) -> list[AuditRecord]:
        return await self._audit.records(before, limit)

    # Acting

    async def disable(self, call: OperatorCall, user_id: str) -> User:
        """Nothing they send is stored any more, their sockets close, and they cannot log in."""
        async with self.audited(call, "user.disable", user_id):
            witness = await self._witness(call, user_id)
            async with self._manager.events.changed(user_id):
                user = await self._admin.set_state(user_id, AccountState.DISABLED, witness)
            await self._end_all_sessions(user_id)
        return user

    async def enable(self, call: OperatorCall, user_id: str) -> User:
        """They may log in again; sessions that ended stay so."""
        async with self.audited(call, "user.enable", user_id):
            async with self._manager.events.changed(user_id):
                user = await self._admin.set_state(user_id, AccountState.ACTIVE, "")
            self._changed(user_id)
        return user

    async def set_password(self, call: OperatorCall, user_id: str, password: str) -> None:
        """All sessions of the person end."""
        async with self.audited(call, "user.password", user_id):
            if (await self._manager.user(user_id)).state is AccountState.DELETED:
                raise Refused(NOT_FOUND.because("this account is deleted"))
            await self._manager.set_password(user_id, password)

    async def delete(self, call: OperatorCall, user_id: str) -> User:
        """The account cannot be used from now on, and its name is free. It leaves its groups one by one."""
        async with self.audited(call, "user.delete", user_id):
            witness = await self._witness(call, user_id)
            async with self._manager.events.changed(user_id):
                user = await self._admin.delete_user(user_id, witness, self._clock())
            await self._end_all_sessions(user_id)
            self._deletions.wake()
        return user

    async def end_sessions(self, call: OperatorCall, user_id: str, session_id: str = "") -> None:
        """One session, or all; the account stays as it is."""
        async with self.audited(call, "user.revoke", user_id, session_id):
            await self._manager.user(user_id)
            if session_id:
                await self._manager.revoke(user_id, session_id)
            else:
                await self._manager.end_all_sessions(user_id)

    async def _end_all_sessions(self, user_id: str) -> None:
        await self._manager.end_all_sessions(user_id)
        self._changed(user_id)

    async def _witness(self, call: OperatorCall, user_id: str) -> str:
        """An operator who is left afterwards: the caller, or the first other one; empty if there is none."""
        if call.is_person and call.actor != user_id:
            return call.actor
        if not (await self._manager.user(user_id)).is_operator:
            return ""
        after: str | None = ""
        while after is not None:
            page = await self._admin.find_users("", after, OPERATORS_PER_PAGE)
            for user in page.users:
                if user.is_operator and user.state is AccountState.ACTIVE and user.user_id != user_id:
                    return user.user_id
            after = page.next_after
        return ""

    @asynccontextmanager
    async def audited(
        self, call: OperatorCall, action: str, target_id: str, detail: str = ""
    ) -> AsyncIterator[None]:
        """What happens inside is recorded before it begins; without a record it does not happen."""
        now_ms = self._clock()
        record = AuditRecord(
            audit_id=self._ids.next(ids.AUDIT, now_ms),
            at=iso(now_ms),
            actor=call.actor,
            action=action,
            target_id=target_id,
            request_id=call.request_id,
            detail=detail,
        )
        await self._audit.record(record)
        outcome = FAILED
        try:
            yield
            outcome = DONE
        except Refused as error:
            outcome = error.refusal.code
            raise
        except StoreError as error:
            unknown = isinstance(error, OutcomeUnknown)
            outcome = (OUTCOME_UNKNOWN if unknown else STORE_UNAVAILABLE).code
            raise
        finally:
            try:
                await self._audit.record(replace(record, outcome=outcome))
            except StoreError as error:  # the record says `begun`
                log.error("outcome not recorded", audit_id=record.audit_id, outcome=outcome, error=str(error))
