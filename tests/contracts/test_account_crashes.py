"""People and sessions where a process dies between two commits, or never hears of one."""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from parley.errors import OutcomeUnknown, StoreError
from parley.model import AccountState
from parley.records.account_admin import AccountAdmin
from parley.records.accounts import Accounts
from parley.records.raised import EMBEDDED_SECONDS, RaisedLater
from parley.records.sessions import Sessions
from parley.store.tables import USER_SESSIONS, Key, R, RecordChange, RecordTable
from tests.contracts.acting import add_group, add_people, code_of, message, said
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.test_account_admin import add_operator
from tests.contracts.test_accounts import new_session, new_user

WRITES_OF_AN_ADDITION, WRITES_OF_A_DELETION = 4, 6


class CutShort:
    """The records of a process that dies with one of its commits, done or not."""

    def __init__(self, store: OpenStore, at: int, *, is_done: bool) -> None:
        self._records: Any = store.records
        self._left = at
        self._is_done = is_done

    async def commit(self, table: RecordTable[R], changes: Sequence[RecordChange[R]]) -> bool:
        self._left -= 1
        if self._left < 0:
            raise OutcomeUnknown("it is dead")
        if self._left == 0:
            if self._is_done:
                await self._records.commit(table, changes)
            self._left = -1
            raise OutcomeUnknown("it dies")
        return bool(await self._records.commit(table, changes))

    async def get(self, table: RecordTable[R], keys: Sequence[Key], **options: Any) -> list[R | None]:
        if self._left < 0:
            raise OutcomeUnknown("it is dead")
        found: list[R | None] = await self._records.get(table, keys, **options)
        return found


def dying(store: OpenStore, at: int, *, is_done: bool) -> tuple[Accounts, AccountAdmin, Sessions]:
    records: Any = CutShort(store, at, is_done=is_done)
    raised = RaisedLater(records, EMBEDDED_SECONDS)
    accounts = Accounts(records, store.directory, raised)
    return (
        accounts,
        AccountAdmin(records, store.directory, accounts, store.engine.inspection),
        Sessions(records, raised),
    )


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", range(1, WRITES_OF_AN_ADDITION + 1))
async def test_an_addition_that_was_cut_short_is_there_or_not(engine: Engine, at: int, is_done: bool) -> None:
    """Whoever looks for the name finishes it; nobody else gets the name, and the check finds it whole."""
    async with engine.opened() as store:
        ann = replace(new_user(store, "ann"), is_operator=True)
        accounts, _, _ = dying(store, at, is_done=is_done)
        with pytest.raises(OutcomeUnknown):
            await accounts.add_user(ann, "hash")
        assert store.breaches() == []
        other = new_user(store, "ann")
        is_free = at == 1 and not is_done
        assert await store.accounts.add_user(other, "other") is is_free
        owner = (other, "other") if is_free else (ann, "hash")
        assert await store.accounts.user_by_name("ann") == owner
        assert (await store.accounts.user(ann.user_id) is None) is is_free
        assert store.breaches() == []
        if not is_free:  # an operator like any other
            ben = await add_operator(store, "ben")
            await store.account_admin.set_state(ben, AccountState.DISABLED, ann.user_id)


async def test_who_looks_for_a_name_finishes_what_was_cut_short(engine: Engine) -> None:
    """A person whose addition died behind the name logs in like any other."""
    async with engine.opened() as store:
        ann = new_user(store, "ann")
        accounts, _, _ = dying(store, 2, is_done=False)
        with pytest.raises(OutcomeUnknown):
            await accounts.add_user(ann, "hash")
        assert await store.accounts.user_by_name("ann") == (ann, "hash")
        assert await store.accounts.user(ann.user_id) == ann


async def test_who_asks_again_gets_what_was_cut_short(engine: Engine) -> None:
    """The same person with the same name is added by the next attempt, as the first had begun."""
    async with engine.opened() as store:
        ann = new_user(store, "ann")
        accounts, _, _ = dying(store, 2, is_done=False)
        with pytest.raises(OutcomeUnknown):
            await accounts.add_user(ann, "hash")
        assert await store.accounts.add_user(ann, "hash")
        assert not await store.accounts.add_user(ann, "hash")
        assert await store.accounts.user_by_name("ann") == (ann, "hash")


async def test_a_name_whose_id_another_account_got_is_freed(engine: Engine) -> None:
    """Taken by a process that died, for an id that belongs to somebody else by now."""
    async with engine.opened() as store:
        ann = new_user(store, "ann")
        accounts, _, _ = dying(store, 2, is_done=False)
        with pytest.raises(OutcomeUnknown):
            await accounts.add_user(replace(ann, username="bea"), "hash")
        assert await store.accounts.add_user(ann, "hash")
        assert await store.accounts.user_by_name("bea") is None
        assert await store.accounts.add_user(new_user(store, "bea"), "hash")
        assert store.breaches() == []


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", range(1, WRITES_OF_A_DELETION + 1))
async def test_a_deletion_that_was_cut_short_goes_on(engine: Engine, at: int, is_done: bool) -> None:
    """Once it is listed, whoever finishes deletions needs no witness; then the name is free for others."""
    async with engine.opened() as store:
        root, eve = await add_operator(store, "root"), await add_operator(store, "eve")
        (ann,) = await add_people(store, "ann")
        group = await add_group(store, ann, eve)
        await said(store, group, eve, "before")
        _, admin, _ = dying(store, at, is_done=is_done)
        with contextlib.suppress(StoreError):
            await admin.delete_user(eve, root, 1)
        for deletion in await store.account_admin.deletions():
            await store.account_admin.delete_user(deletion.user_id, "", deletion.since_ms)
        user = await store.accounts.user(eve)
        assert user is not None
        if user.state is not AccountState.DELETED:
            await store.account_admin.delete_user(eve, root, 1)
        assert await store.accounts.add_user(new_user(store, "eve"), "hash")
        assert await code_of(store, message(group, eve, "after")) != "stored"
        assert store.breaches() == []


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", [1, 2])
async def test_a_session_that_was_cut_short_can_be_revoked(engine: Engine, at: int, is_done: bool) -> None:
    """If its token works, it is on the person's list; a line without a session goes by itself."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        session = new_session(store, ann, "phone")
        _, _, sessions = dying(store, at, is_done=is_done)
        with pytest.raises(OutcomeUnknown):
            await sessions.add(session, b"token")
        is_there = await store.sessions.by_token(b"token") is not None
        assert (await store.sessions.of(ann) == [session]) is is_there
        assert (await store.sessions.end(ann, [session.session_id]) != []) is is_there
        store.clock.advance(3_600_000)
        assert await store.sessions.end_expired(store.clock()) == 0
        assert await store.records.count(USER_SESSIONS) == 0
        assert store.breaches() == []
