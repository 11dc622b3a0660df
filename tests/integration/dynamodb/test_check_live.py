"""A check beside nodes at work: what is half written never looks broken."""

import asyncio
import random

import pytest

from parley.model import Action, Change, ChatType, Draft, Kind, Session, StoredChat, User
from parley.records.kinds import Kinds
from parley.store.dynamodb.driver import Dynamo
from parley.store.dynamodb.schema import create_tables
from parley.store.dynamodb.store import DynamoStore
from parley.testing.dynamodb_faults import RandomFaults
from tests.integration.dynamodb.filled import BEGINNING, REGION, check, open_store
from tests.integration.small_world import message
from tests.services import dynamodb_endpoint, fresh_prefix

ROUNDS = 6
PEOPLE = [f"user_{number}" for number in range(4)]


@pytest.mark.randomised
@pytest.mark.timeout(120)
@pytest.mark.parametrize("two_phase", [False, True])
async def test_a_store_at_work_looks_whole(two_phase: bool, seed: int) -> None:
    """While people write, join, leave, log in and make chats, and pages are torn, every check is clean."""
    faults = RandomFaults({"torn_page": 0.7}, seed=seed)
    endpoint = await asyncio.to_thread(dynamodb_endpoint)
    dynamo = Dynamo(endpoint, REGION, prefix=fresh_prefix(), faults=faults)
    await dynamo.open()
    try:
        await create_tables(dynamo)
        store = open_store(dynamo, two_phase=two_phase)
        for person in PEOPLE:
            await Kinds(store, lambda: 0).accounts.add_user(
                User(person, person, person, "", False, BEGINNING), "hash"
            )
        work = asyncio.gather(*(live(store, person, f"{seed} {person}") for person in PEOPLE))
        checks = 0
        while not work.done() or not checks:
            assert (await check(dynamo, two_phase=two_phase)).breaches == []
            checks += 1
        await work
        await store.cursors.close()
        assert (await check(dynamo, two_phase=two_phase)).breaches == []
    finally:
        await dynamo.close()


async def live(store: DynamoStore, me: str, seed: str) -> None:
    """One person's life, over several chats that others are in too."""
    dice, sessions = random.Random(seed), Kinds(store, lambda: 0).sessions
    for number in range(ROUNDS):
        chat = StoredChat(f"chat_{me}_{number}", ChatType.GROUP, "live", me, BEGINNING, BEGINNING, 1)
        await store.directory.create_chat(chat, dice.sample(PEOPLE, 2))
        session_id = f"ses_{me}_{number}"
        session = Session(session_id, me, "phone", "", 1, 1, 2**52)
        await sessions.add(session, session_id.encode())
        await store.log.append([message(chat.chat_id, me, f"{n}") for n in range(dice.randrange(1, 8))])
        other = dice.choice([person for person in PEOPLE if person != me])
        await store.log.append([_change(chat.chat_id, me, Action.JOINED, other)])
        await store.log.append([message(chat.chat_id, other, "hello")])
        head = (await store.log.heads([chat.chat_id]))[chat.chat_id].sequence
        store.cursors.note_acked(me, "phone", chat.chat_id, head, 1)
        store.cursors.note_read(other, chat.chat_id, dice.randrange(head + 1), 1)
        await store.cursors.flush()
        await store.log.append([_change(chat.chat_id, me, Action.REMOVED, other)])
        await sessions.end(me, [session_id])


def _change(chat_id: str, me: str, action: Action, about: str) -> Draft:
    content = f'{{"action":"{action}","user_id":"{about}","role":"member"}}'
    return Draft(
        chat_id=chat_id,
        sender_id=me,
        content=content,
        kind=Kind.MEMBER.value,
        change=Change(action, about),
    )
