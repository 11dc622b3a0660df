"""What operators do to people when something happens, each action recorded before it begins.

An operator acts by HTTP or at the command line, with the same rules. See docs/accounts.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from parley import ids
from parley.accounts.accounts import AccountManager, check_device
from parley.accounts.deletions import AccountDeletions
from parley.audit import AuditTrail, OperatorCall
from parley.clock import Clock
from parley.errors import LAST_OPERATOR, NO_SUCH_USER, NOT_FOUND, Refused
from parley.model import AccountState, Session, User, UserPage
from parley.records.account_admin import AccountAdmin
from parley.records.accounts import Accounts
from parley.records.audit import AuditLog

OPERATORS_PER_PAGE = 500
PEOPLE_LOOKED_AT_MAX = 5_000
"""People whom a page with conditions reads."""


class WantedPeople(Struct, frozen=True):
    """Which people are meant: all that are given must hold."""

    state: AccountState | None = None
    is_operator: bool | None = None
    is_bot: bool | None = None

    def takes(self, user: User) -> bool:
        pairs = (
            (self.state, user.state),
            (self.is_operator, user.is_operator),
            (self.is_bot, user.is_bot),
        )
        return all(wanted is None or wanted == found for wanted, found in pairs)


ANYBODY = WantedPeople()


class UserAdmin(AuditTrail):
    """`close_tokens` closes the sockets of the tokens that a person made. `changed` is called with the id of
    a person whose profile or state changed.
    """

    def __init__(
        self,
        *,
        manager: AccountManager,
        accounts: Accounts,
        admin: AccountAdmin,
        audit: AuditLog,
        deletions: AccountDeletions,
        close_tokens: Callable[[str], Awaitable[None]],
        clock: Clock,
        make_ids: ids.Ids,
        changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(audit, clock, make_ids)
        self._manager = manager
        self._accounts = accounts
        self._admin = admin
        self._deletions = deletions
        self._close_tokens = close_tokens
        self._changed = changed

    # Looking

    async def find(self, query: str, after: str, limit: int, wanted: WantedPeople = ANYBODY) -> UserPage:
        """The person with this id; else who has exactly this username, then those whose names contain it. A
        page reads a bounded number of people.
        """
        found, looked_at = list[User](), 0
        while True:
            page = await self._find(query, after, limit)
            found += [user for user in page.users if wanted.takes(user)]
            looked_at += limit
            is_enough = wanted == ANYBODY or looked_at >= PEOPLE_LOOKED_AT_MAX
            if found or page.next_after is None or is_enough:
                return UserPage(found, page.next_after)
            after = page.next_after

    async def _find(self, query: str, after: str, limit: int) -> UserPage:
        if query and not after:
            user = await self._accounts.user(query)
            if user is not None:
                return UserPage([user], None)
        named = await self._accounts.user_by_name(query) if query and limit > 1 else None
        if named is None:
            return await self._admin.find_users(query, after, limit)
        page = await self._admin.find_users(query, after, limit - 1)
        others = [user for user in page.users if user.user_id != named[0].user_id]
        return UserPage(others if after else [named[0], *others], page.next_after)

    async def sessions(self, user_id: str) -> list[Session]:
        await self._manager.user(user_id)
        return await self._manager.sessions(user_id)

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

    async def set_operator(self, call: OperatorCall, user_id: str, *, is_operator: bool) -> User:
        """Whether a person is an operator, from their next request on; there is always one who is left.

        The witness is looked at again afterwards: two who end each other at once both stay.
        """
        action = "operator.add" if is_operator else "operator.remove"
        async with self.audited(call, action, user_id):
            user = await self._manager.user(user_id)
            if user.state is AccountState.DELETED:
                raise Refused(NO_SUCH_USER)
            if user.is_operator is is_operator:
                return user
            witness = "" if is_operator else await self._witness(call, user_id)
            if not is_operator and not await self._operates(witness):
                raise Refused(LAST_OPERATOR)
            changed = replace(user, is_operator=is_operator)
            await self._accounts.update_user(changed)
            if not is_operator and not await self._operates(witness):
                await self._accounts.update_user(user)
                raise Refused(LAST_OPERATOR)
            self._changed(user_id)
        return changed

    async def _operates(self, user_id: str) -> bool:
        user = await self._accounts.user(user_id) if user_id else None
        return user is not None and user.is_operator and user.state is AccountState.ACTIVE

    async def end_sessions(self, call: OperatorCall, user_id: str, session_id: str = "") -> None:
        """One session, or all; the account stays as it is."""
        async with self.audited(call, "user.revoke", user_id, session_id):
            await self._manager.user(user_id)
            if session_id:
                await self._manager.revoke(user_id, session_id)
            else:
                await self._manager.end_all_sessions(user_id)

    async def make_session(
        self, user_id: str, device_id: str, device_name: str, expires_in_seconds: int | None
    ) -> tuple[str, Session]:
        """A token for a device of a person, who need not know of it."""
        check_device(device_id, device_name)
        if (await self._manager.user(user_id)).state is AccountState.DELETED:
            raise Refused(NOT_FOUND.because("this account is deleted"))
        return await self._manager.open_session(
            user_id, device_id, device_name, expires_in_seconds=expires_in_seconds
        )

    async def _end_all_sessions(self, user_id: str) -> None:
        await self._manager.end_all_sessions(user_id)
        await self._close_tokens(user_id)
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
