"""Disabled and deleted accounts on DynamoDB with several nodes: once it is answered, it holds everywhere."""

import asyncio
from functools import partial

import pytest

from parley.model import AccountState, Action
from parley.store.dynamodb.driver import Fault
from parley.store.shared import SEAL_AFTER_MS
from parley.testing.dynamodb_faults import conflict, timeout_done
from tests.contracts.acting import (
    add_direct,
    add_group,
    change,
    code_of,
    contents,
    message,
    outcome,
    read_all,
    said,
    told,
)
from tests.contracts.dynamodb_nodes import Held
from tests.contracts.dynamodb_world import ENGINES, MODES, world
from tests.harness.fault_plans import Planned

WRITE = "TransactWriteItems"
ACTIVE, DISABLED = AccountState.ACTIVE, AccountState.DISABLED
held = partial(world, seal_after_ms=SEAL_AFTER_MS)


@pytest.mark.parametrize("mode", ENGINES)
async def test_a_disabled_persons_message_on_its_way_from_another_node_is_refused(mode: str) -> None:
    """A transaction that was ready before the disable and arrives after its answer is not done."""
    async with held(mode) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        two.faults.now = write = Held(WRITE)
        sending = asyncio.create_task(outcome(two, message(one.chat, one.ben, "late")))
        await write.reached.wait()
        await one.account_admin.set_state(one.ben, DISABLED, "")
        write.release()
        assert told(await sending) == "account_disabled"
        assert contents(await read_all(one, one.chat)) == ["warm"]


@pytest.mark.parametrize("mode", ENGINES)
async def test_a_message_to_a_deleted_person_on_its_way_is_refused(mode: str) -> None:
    """The other one's message to the direct chat, ready before the deletion, is not done after it."""
    async with held(mode) as (one, two):
        direct = await add_direct(one, one.ann, one.ben)
        await said(two, direct, one.ann, "warm")
        two.faults.now = write = Held(WRITE)
        sending = asyncio.create_task(outcome(two, message(direct, one.ann, "late")))
        await write.reached.wait()
        await one.account_admin.delete_user(one.ben, "", 1)
        write.release()
        assert told(await sending) == "user_deleted"
        assert contents(await read_all(one, direct)) == ["warm"]


@pytest.mark.parametrize("mode", MODES)
async def test_only_the_disabled_ones_drafts_are_taken_out_of_a_batch(mode: str) -> None:
    """Ann's messages in the same append, on a node that does not know of it, are stored."""
    async with held(mode) as (one, two):
        await said(two, one.chat, one.ben, "warm")
        await one.account_admin.set_state(one.ben, DISABLED, "")
        drafts = [message(one.chat, who, f"{n}") for n, who in enumerate([one.ann, one.ben, one.ann])]
        result = await two.log.append(drafts)
        assert [told(each) for each in result.outcomes] == ["stored", "account_disabled", "stored"]


@pytest.mark.parametrize("mode", MODES)
async def test_no_node_remembers_that_somebody_is_disabled(mode: str) -> None:
    """A node that has refused somebody takes their next message once another node has enabled them."""
    async with held(mode) as (one, two):
        for _ in range(2):
            await one.account_admin.set_state(one.ben, DISABLED, "")
            assert await code_of(two, message(one.chat, one.ben)) == "account_disabled"
            await one.account_admin.set_state(one.ben, ACTIVE, "")
            assert told(await outcome(two, message(one.chat, one.ben))) == "stored"


@pytest.mark.parametrize("mode", MODES)
async def test_a_join_on_its_way_does_not_bring_a_deleted_person_back(mode: str) -> None:
    """A group that had decided to take them in finds at the write that they are gone."""
    async with held(mode) as (one, two):
        chat = await add_group(one, one.ann)
        two.faults.now = write = Held(WRITE)
        joining = asyncio.create_task(outcome(two, change(chat, one.ann, Action.JOINED, one.ben)))
        await write.reached.wait()
        await one.account_admin.delete_user(one.ben, "", 1)
        write.release()
        assert told(await joining) == "not_found"
        assert await one.directory.role(chat, one.ben) is None


@pytest.mark.parametrize("mode", MODES)
async def test_a_disabled_person_does_not_join_by_a_request_on_its_way(mode: str) -> None:
    """An open group finds at the write that they may do nothing."""
    async with held(mode) as (one, two):
        chat = await add_group(one, one.ann, open_to_join=True)
        two.faults.now = write = Held(WRITE)
        joining = asyncio.create_task(outcome(two, change(chat, one.ben, Action.JOINED, one.ben)))
        await write.reached.wait()
        await one.account_admin.set_state(one.ben, DISABLED, "")
        write.release()
        assert told(await joining) == "account_disabled"


@pytest.mark.parametrize("fault", [conflict, timeout_done], ids=["conflict", "answer lost"])
async def test_a_deletion_whose_write_fails_is_done_once(fault: Fault) -> None:
    """A conflict, or an answer that is lost, ends in one deletion with everything that belongs to it."""
    async with held("atomic") as (one, two):
        one.faults.now = Planned(TransactWriteItems=[fault])
        gone = await one.account_admin.delete_user(one.ben, "", 7)
        one.faults.now = None
        assert gone.state is AccountState.DELETED
        assert [each.user_id for each in await two.account_admin.deletions()] == [one.ben]
        assert await two.accounts.user_by_name("ben") is None
        assert await code_of(two, message(one.chat, one.ben)) == "account_disabled"
        assert one.breaches() == []
