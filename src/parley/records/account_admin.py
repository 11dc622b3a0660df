"""What operators, and jobs, do to accounts.

Whatever takes a right away from a person is written first, and then everything that is under way is decided
again (`Directory.fence`).
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from parley.errors import LAST_OPERATOR, NO_SUCH_USER, Refused, StoreUnavailable
from parley.model import AccountDeletion, AccountState, User, UserPage
from parley.records.accounts import ATTEMPTS_MAX, CONTENDED, Accounts
from parley.records.book import all_in
from parley.store.maintenance import Inspection
from parley.store.ports import Directory, Records
from parley.store.rows import StoreCounts
from parley.store.rules import USERS_LOOKED_AT_MAX, emptied, folded, is_found_by
from parley.store.tables import (
    DELETIONS,
    ONE_LIST,
    OPERATORS,
    PEOPLE,
    CheckRecord,
    Operator,
    PersonRecord,
    PutRecord,
    RecordChange,
    RemoveRecord,
    listed,
    user_of,
)


class AccountAdmin:
    def __init__(
        self, records: Records, directory: Directory, accounts: Accounts, inspection: Inspection
    ) -> None:
        self._inspection = inspection
        self._records = records
        self._directory = directory
        self._accounts = accounts

    async def find_users(self, query: str, after: str, limit: int) -> UserPage:
        """People whose username or display name contains the query, both `folded`; all if it is empty.

        `after`: the `next_after` of the page before. Pages are in an order of the engine's own, and may be
        short: a page reads a bounded number of people.
        """
        wanted, found, looked_at = folded(query), list[User](), 0
        async for page in self._records.scan(PEOPLE, after=after):
            for user in map(user_of, page):
                looked_at += 1
                if is_found_by(wanted, user.username, user.display_name):
                    found.append(user)
                if len(found) == limit or looked_at == USERS_LOOKED_AT_MAX:
                    return UserPage(found, user.user_id)
            await asyncio.sleep(0)
        return UserPage(found, None)

    async def set_state(self, user_id: str, state: AccountState, witness_id: str) -> User:
        """Disable or enable an account; durable before it returns. Returns the person. May be repeated.

        Once it has returned, nothing of a disabled person is appended, not even by an append that has begun.
        Refused: `NO_SUCH_USER`, also for a deleted account; `LAST_OPERATOR`, if the person is an active
        operator and the witness is not another one, which is decided in the same write.
        """
        for _ in range(ATTEMPTS_MAX):
            before = await self._person(user_id)
            if before.user.state is AccountState.DELETED:
                raise Refused(NO_SUCH_USER)
            if state is not AccountState.ACTIVE:
                await self._step_down(before.user, witness_id)
            after = replace(before, user=replace(before.user, state=state))
            if await self._accounts.swap(before, after):
                if state is AccountState.ACTIVE:
                    await self._accounts.list_operator(after.user)
                else:
                    await self._directory.fence(user_id)
                return user_of(after)
        raise StoreUnavailable(CONTENDED)

    async def delete_user(self, user_id: str, witness_id: str, now_ms: int) -> User:
        """Delete an account: as disabled, and its username is free, its profile and password are gone.

        From then on appends to a direct chat with them are refused (`USER_DELETED`), and they join no chat.
        They may only leave chats, and make another member owner before. Listed by `deletions` until
        `finish_deletion`. Refused as in `set_state`. May be repeated, and goes on where it was cut short.
        """
        for _ in range(ATTEMPTS_MAX):
            person = await self._person(user_id)
            (note,) = await self._records.get(DELETIONS, [listed(user_id)])
            if person.user.state is AccountState.DELETED:
                break
            if note is None:
                await self._step_down(person.user, witness_id)
                note = AccountDeletion(user_id, now_ms, person.user.username)
                await self._records.commit(DELETIONS, [PutRecord(note)])
            elif person.user.is_operator:
                await self._accounts.unlist_operator(user_id)
            gone = PersonRecord(user=emptied(person.user), password_hash="")
            if await self._accounts.swap(person, gone):
                break
        else:
            raise StoreUnavailable(CONTENDED)
        if note is not None and note.username:
            await self._accounts.free_name(note.username, user_id)
        await self._accounts.take_name(emptied(person.user).username, user_id)
        if note is not None and note.username:  # what an erasure removes is nowhere, also not in this list
            await self._records.commit(DELETIONS, [PutRecord(replace(note, username=""), before=note)])
        await self._directory.fence(user_id)
        return emptied(person.user)

    async def _person(self, user_id: str) -> PersonRecord:
        person = await self._accounts.person(user_id)
        if person is None:
            raise Refused(NO_SUCH_USER)
        return person

    async def _step_down(self, user: User, witness_id: str) -> None:
        """Take an operator off the list, on the condition that another one, the witness, is on it."""
        if not user.is_operator or user.state is not AccountState.ACTIVE:
            return
        witness = await self._accounts.user(witness_id) if witness_id != user.user_id else None
        if witness is None or not witness.is_operator or witness.state is not AccountState.ACTIVE:
            raise Refused(LAST_OPERATOR)
        step_down: list[RecordChange[Operator]] = [
            RemoveRecord(listed(user.user_id)),
            CheckRecord(listed(witness_id), before=Operator(user_id=witness_id)),
        ]
        if not await self._records.commit(OPERATORS, step_down):
            raise Refused(LAST_OPERATOR)

    async def deletions(self) -> list[AccountDeletion]:
        """The deletions that are not finished, the oldest first."""
        return sorted(await all_in(self._records, DELETIONS, ONE_LIST), key=lambda one: one.since_ms)

    async def finish_deletion(self, user_id: str) -> None:
        """The account is in no group and no list any more."""
        await self._records.commit(DELETIONS, [RemoveRecord(listed(user_id))])

    async def counts(self) -> StoreCounts:
        """How many accounts, deleted ones included, and chats there are. It may be some hours old."""
        return StoreCounts(await self._records.count(PEOPLE), await self._inspection.chat_count())
