"""Consent on DynamoDB with several nodes: a request that was ready before somebody said no is not done."""

import asyncio
from functools import partial

import pytest

from parley.errors import Refused
from parley.model import Action, ChatType, Privacy, Relation
from parley.store.dynamodb.directory import MEMBERS_AT_ONCE_MAX
from parley.store.dynamodb.driver import Fault
from parley.store.shared import SEAL_AFTER_MS
from parley.testing.dynamodb_faults import conflict, timeout_done
from tests.contracts.acting import add_contact, add_group, add_people, block, change, outcome, stored, told
from tests.contracts.dynamodb_nodes import Held
from tests.contracts.dynamodb_world import ENGINES, MODES, world
from tests.contracts.test_consent import adding, creating, let
from tests.contracts.test_invitations import acceptance, invite, waiting_for
from tests.harness.fault_plans import Planned

WRITE = "TransactWriteItems"
SAY = "PutItem"
"""What a person says is one record."""
held = partial(world, seal_after_ms=SEAL_AFTER_MS)


@pytest.mark.parametrize("mode", ENGINES)
@pytest.mark.parametrize("how", ["nobody", "block", "contact removed"])
async def test_an_addition_on_its_way_from_another_node_is_refused(mode: str, how: str) -> None:
    """The transaction arrives after the answer to the change of mind, and finds it."""
    async with held(mode) as (one, two):
        (eve,) = await add_people(one, "eve")
        chat = await add_group(two, eve)
        await add_contact(one, one.ann, eve)
        await let(one, one.ann, Privacy.CONTACTS)
        two.faults.now = write = Held(WRITE)
        sending = asyncio.create_task(adding(two, chat, eve, one.ann))
        await write.reached.wait()
        match how:
            case "nobody":
                await let(one, one.ann, Privacy.NOBODY)
            case "block":
                await block(one, one.ann, eve)
            case _:
                await one.relations.set_relation(one.ann, eve, Relation.CONTACT, None)
        write.release()
        assert await sending == ("blocked" if how == "block" else "forbidden")
        assert await one.directory.role(chat, one.ann) is None
        assert one.breaches() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chat_type", ChatType)
async def test_a_chat_on_its_way_from_another_node_is_refused(mode: str, chat_type: ChatType) -> None:
    """A new chat that was ready before the person said no, and arrives after, is not created with them."""
    async with held(mode) as (one, two):
        (eve,) = await add_people(one, "eve")
        two.faults.now = write = Held(WRITE)
        opening = asyncio.create_task(creating(two, eve, one.ann, chat_type=chat_type))
        await write.reached.wait()
        await let(one, one.ann, Privacy.NOBODY)
        write.release()
        assert await opening == "forbidden"
        assert await one.directory.chat_ids_of(eve) == []


async def test_a_member_of_a_large_chat_is_asked_with_their_rows() -> None:
    """Their rows are written before the chat; who says no until then is not added, and nothing is left."""
    async with held("atomic") as (one, two):
        eve, *people = await add_people(one, "eve", *(f"p{n}" for n in range(MEMBERS_AT_ONCE_MAX + 5)))
        two.faults.now = write = Held(WRITE, people[0])
        opening = asyncio.create_task(creating(two, eve, *people))
        await write.reached.wait()
        await let(one, people[0], Privacy.NOBODY)
        write.release()
        assert await opening == "forbidden"
        for person in (eve, people[0], people[-1]):
            assert await one.directory.chat_ids_of(person) == []
        rows = await one.store.dynamo.query_all("delivery_state", "user_id = :user", {":user": people[-1]})
        assert rows == []


async def test_an_unrelated_change_delays_nothing_but_a_moment() -> None:
    """A new display name while somebody is added: decided again, and added."""
    async with held("atomic") as (one, two):
        (eve,) = await add_people(one, "eve")
        chat = await add_group(two, eve)
        two.faults.now = write = Held(WRITE)
        sending = asyncio.create_task(adding(two, chat, eve, one.ann))
        await write.reached.wait()
        await let(one, one.ann, Privacy.EVERYONE)
        write.release()
        assert await sending == "stored"


@pytest.mark.parametrize("mode", MODES)
async def test_a_withdrawn_invitation_is_not_accepted_from_another_node(mode: str) -> None:
    """An acceptance that was ready before the withdrawal and arrives after its answer is refused."""
    async with held(mode) as (one, two):
        (eve,) = await add_people(one, "eve")
        chat = await add_group(one, eve)
        await invite(one, chat, one.ann, eve)
        two.faults.now = write = Held(WRITE)
        accepting = asyncio.create_task(outcome(two, acceptance(chat, one.ann)))
        await write.reached.wait()
        assert await one.invitations.end(one.ann, chat)
        write.release()
        assert told(await accepting) == "not_a_member"
        assert await one.directory.role(chat, one.ann) is None


async def test_a_first_block_counts_although_its_node_died() -> None:
    """It was stored and not answered: whoever decides about an addition then reads it."""
    async with held("atomic") as (one, two):
        (eve,) = await add_people(one, "eve")
        chat = await add_group(two, eve)
        one.faults.now = saying = Held(SAY, "records_consents")
        blocking = asyncio.create_task(block(one, one.ann, eve))
        await saying.reached.wait()
        one.faults.now = dying = Held("UpdateItem")
        saying.release()
        await dying.reached.wait()
        assert await adding(two, chat, eve, one.ann) == "blocked"
        blocking.cancel()
        await asyncio.gather(blocking, return_exceptions=True)


async def test_an_invitation_on_its_way_meets_the_block() -> None:
    """An invitation that was ready before the block and arrives after its answer is refused."""
    async with held("atomic") as (one, two):
        (eve,) = await add_people(one, "eve")
        chat = await add_group(one, eve)
        two.faults.now = write = Held(SAY, "records_consents")
        inviting = asyncio.create_task(invite(two, chat, one.ann, eve))
        await write.reached.wait()
        await block(one, one.ann, eve)
        write.release()
        assert await inviting == "blocked"
        assert await waiting_for(one, one.ann) == []


async def test_an_invitation_on_its_way_meets_the_member() -> None:
    """Who was added meanwhile is not invited as well."""
    async with held("atomic") as (one, two):
        (eve,) = await add_people(one, "eve")
        chat = await add_group(one, eve)
        two.faults.now = write = Held(SAY, "records_consents")
        inviting = asyncio.create_task(invite(two, chat, one.ann, eve))
        await write.reached.wait()
        await stored(one, change(chat, eve, Action.JOINED, one.ann))
        write.release()
        assert await inviting == "bad_request"
        assert await waiting_for(one, one.ann) == []


@pytest.mark.parametrize("fault", [timeout_done, conflict])
async def test_invitations_get_through_faults(fault: Fault) -> None:
    """A lost answer and a conflict end in one invitation, and in its end."""
    async with held("atomic") as (one, two):
        (eve,) = await add_people(one, "eve")
        chat = await add_group(one, eve)
        one.faults.now = Planned(PutItem=[fault, fault], UpdateItem=[fault])
        assert await invite(one, chat, one.ann, eve) == "invited"
        assert await waiting_for(two, one.ann) == [chat]
        one.faults.now = Planned(DeleteItem=[fault, fault], UpdateItem=[fault])
        await one.invitations.end(one.ann, chat)
        assert await waiting_for(two, one.ann) == []
        assert one.breaches() == []


async def test_strangers_on_two_nodes_fill_no_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the limit an addition on its way meets another one, and counts again."""
    monkeypatch.setattr("parley.core.consent.UNASKED_CHATS_MAX", 2)
    monkeypatch.setattr("parley.store.dynamodb.consents.CONTENDED_FROM", 1)
    async with held("atomic") as (one, two):
        eve, ann = await add_people(one, "eve", "new")
        chats = [await add_group(one, eve) for _ in range(3)]
        await stored(one, change(chats[0], eve, Action.JOINED, ann))
        two.faults.now = write = Held(WRITE)
        sending = asyncio.create_task(adding(two, chats[1], eve, ann))
        await write.reached.wait()
        await stored(one, change(chats[2], eve, Action.JOINED, ann))
        write.release()
        assert await sending == "forbidden"
        assert sorted(await one.directory.chat_ids_of(ann)) == sorted([chats[0], chats[2]])


@pytest.mark.parametrize("mode", MODES)
async def test_a_refused_creation_names_no_chat(mode: str) -> None:
    """A chat that was refused for lack of consent is nowhere, whatever it had begun to write."""
    async with held(mode) as (one, _):
        (eve,) = await add_people(one, "eve")
        await let(one, one.ann, Privacy.NOBODY)
        with pytest.raises(Refused):
            await add_group(one, eve, one.ann)
        assert await one.directory.chat_ids_of(eve) == []
