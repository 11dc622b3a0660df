"""What is promised of relations on DynamoDB alone: what they cost, and people of older versions."""

import asyncio

import pytest

from parley.clock import iso
from parley.errors import Refused
from parley.model import MemberSettings, Relation, User
from parley.store.dynamodb.driver import Fault, Item
from parley.store.rules import RELATIONS_MAX
from parley.store.tables import PEOPLE, PersonRecord
from parley.testing.dynamodb_faults import conflict, throttle, timeout_done, timeout_not_done
from tests.contracts.acting import add_contact, add_direct, add_group, add_people
from tests.contracts.dynamodb_engine import DynamoEngine, DynamoOpenStore
from tests.contracts.dynamodb_nodes import Counted, Later, nodes
from tests.harness.fault_plans import Planned

ATOMIC = DynamoEngine(None)
CROWD = 250


async def add_crowd(store: DynamoOpenStore, count: int = CROWD) -> list[str]:
    """Many people who hold nobody and are in no chat."""
    people = [f"user_{number:04}" for number in range(count)]
    now = iso(store.clock())
    users = [User(person, person, person, "", False, now) for person in people]
    people_of = [(user.user_id, PEOPLE.encode(PersonRecord(user=user, password_hash=""))) for user in users]
    items: list[Item] = [
        {"partition": user_id, "place": "-", "record": record.decode()} for user_id, record in people_of
    ]
    await store.store.dynamo.batch_put("records_people", items)
    return people


# What it costs


async def test_what_a_crowd_says_is_read_once() -> None:
    """Of people without contacts their own items are read and what they say, 100 at once."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        crowd = await add_crowd(store)
        faults.now = counted = Counted()
        assert list(await store.relations.relationships(ann, crowd, acquainted=True)) == crowd
        assert list(await store.relations.visibility(crowd)) == crowd
        assert set(await store.relations.profiles(crowd)) == set(crowd)
        assert counted.met == {("BatchGetItem", "records_people"): 9, ("BatchGetItem", "records_consents"): 6}


async def test_strangers_of_somebody_without_chats_cost_no_more() -> None:
    """Who is in no chat shares none, whatever chats the others are in."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        crowd = await add_crowd(store)
        faults.now = counted = Counted()
        found = await store.relations.relationships(ann, crowd)
        assert not any(at.is_acquainted for at in found.values())
        assert counted.met == {
            ("BatchGetItem", "records_people"): 3,
            ("BatchGetItem", "records_consents"): 3,
            ("Query", "delivery_state"): 1,
        }


async def test_only_who_is_not_acquainted_otherwise_is_looked_for() -> None:
    """Mutual contacts and partners of direct chats are known at once; for the rest their chats are read."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, ben, cem, dan = await add_people(store, "ann", "ben", "cem", "dan")
        await add_contact(store, ann, ben)
        await add_contact(store, ben, ann)
        await add_direct(store, ann, cem)
        await add_group(store, ann, dan)
        crowd = await add_crowd(store, 40)
        faults.now = counted = Counted()
        found = await store.relations.relationships(ann, [ben, cem, dan, *crowd])
        assert [user_id for user_id, at in found.items() if at.is_acquainted] == [ben, cem, dan]
        assert counted.met == {
            ("BatchGetItem", "records_people"): 1,
            ("BatchGetItem", "records_consents"): 1,
            ("GetItem", "records_contacts"): 1,
            ("Query", "records_contacts"): 1,
            ("BatchGetItem", "direct_chats"): 1,
            ("Query", "delivery_state"): 1 + 1 + len(crowd),
        }


async def test_a_chat_asks_nothing_of_people_who_have_said_nothing() -> None:
    """Only who has a revision may have said anything: a chat of many costs no request more for it."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        (ann,) = await add_people(store, "ann")
        crowd = await add_crowd(store, 30)
        faults.now = counted = Counted()
        await add_group(store, ann, *crowd)
        assert counted.met == {
            ("BatchGetItem", "records_people"): 1,
            ("Query", "delivery_state"): 31,
            ("TransactWriteItems", ""): 1,
        }


# Many at once


@pytest.mark.parametrize("fault", [timeout_done, timeout_not_done, conflict, throttle])
@pytest.mark.parametrize("relation", Relation)
async def test_relations_are_counted_through_faults(relation: Relation, fault: Fault) -> None:
    """Whatever befalls the writes, everybody who is held is counted once."""
    faults = Later()
    async with ATOMIC.opened(faults=faults) as store:
        ann, *others = await add_people(store, "ann", "ben", "cem", "dan")
        faults.now = Planned(TransactWriteItems=[fault, None, fault, None, fault, fault])
        for other in others:
            await store.relations.set_relation(ann, other, relation, iso(store.clock()))
        await store.relations.set_relation(ann, others[0], relation, None)
        assert len(await store.relations.related(ann, relation, "", 10)) == 2
        assert store.breaches() == []


async def test_no_two_nodes_relate_more_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is part of the transaction: of many at once only so many are taken."""
    monkeypatch.setitem(RELATIONS_MAX, Relation.CONTACT, 3)
    async with nodes(2) as stores:
        ann, *others = await add_people(stores[0], "ann", *(f"p{n}" for n in range(8)))
        results = await asyncio.gather(
            *(add_contact(stores[number % 2], ann, other) for number, other in enumerate(others)),
            return_exceptions=True,
        )
        assert [type(result) for result in results if result is not None] == [Refused] * 5
        assert len(await stores[1].relations.related(ann, Relation.CONTACT, "", 10)) == 3


@pytest.mark.parametrize("odd", ["", "x" * 5_000, "user_\ud800"])
async def test_who_cannot_exist_is_related_to_nobody(odd: str) -> None:
    """Names that DynamoDB would not even look for are unknown, and what they hold is nothing."""
    async with ATOMIC.opened() as store:
        (ann,) = await add_people(store, "ann")
        for relation in Relation:
            with pytest.raises(Refused):
                await store.relations.set_relation(ann, odd, relation, iso(store.clock()))
            await store.relations.set_relation(odd, ann, relation, None)
            assert await store.relations.related(odd, relation, "", 10) == []
        assert set(await store.relations.relationships(odd, [ann, odd])) == {ann}
        assert (await store.relations.visibility([odd]), await store.relations.profiles([odd])) == ({}, {})
        assert await store.member_states.cursors(odd) == []
        assert await store.member_states.settings(odd, [odd]) == {odd: MemberSettings()}
        await store.member_states.mute(odd, odd, None)
        await store.cursors.forget_device(odd, "phone")
        store.accounts.note_seen(odd, store.clock())
        await store.kinds.raised.flush()
