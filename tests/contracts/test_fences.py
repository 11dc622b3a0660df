"""`Directory.fence`: what was written before it counts from then on, also for what has begun.

The records are written here as if nobody had to be told of them, so that the fence alone makes them count.
"""

import asyncio

import pytest

from parley.clock import iso
from parley.model import Action, PersonConsent, Privacy
from parley.store.tables import CONSENTS
from tests.contracts.acting import (
    add_direct,
    add_group,
    add_people,
    change,
    code_of,
    message,
    outcome,
    said,
    stored,
    told,
)
from tests.contracts.engines import Engine, OpenStore
from tests.contracts.test_consent import adding, creating, let


async def say_nothing_but(store: OpenStore, user_id: str, *blocked: str) -> None:
    """A person has blocked these, and nothing else; no engine was told."""
    blocks = dict.fromkeys(blocked, iso(store.clock()))
    await store.records.load(CONSENTS, [PersonConsent(user_id=user_id, blocks=blocks)])


async def test_a_fenced_chat_is_decided_by_what_is_stored(engine: Engine) -> None:
    """Who is remembered as a member is looked at again, and so it is when the record says otherwise."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await said(store, chat, ben, "remembered")
        for blocked, code in ((ben,), "blocked"), ((), "stored"):
            await say_nothing_but(store, ann, *blocked)
            await store.directory.fence(ann, [chat])
            assert told(await outcome(store, message(chat, ben))) == code
        assert store.breaches() == []


async def test_without_chats_all_of_a_person_are_fenced(engine: Engine) -> None:
    """Direct chats and groups, and those of others stay as they are."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chats = [await add_direct(store, ann, other) for other in (ben, cem)]
        for chat, who in zip(chats, (ben, cem), strict=True):
            await said(store, chat, who, "remembered")
        await say_nothing_but(store, ann, ben, cem)
        await store.directory.fence(ann)
        for chat, who in zip(chats, (ben, cem), strict=True):
            assert await code_of(store, message(chat, who)) == "blocked"
        await stored(store, message(chats[0], ann))


@pytest.mark.parametrize("turns_before", [0, 1, 3, 10, 30])
async def test_no_append_under_way_outlives_a_fence(engine: Engine, turns_before: int) -> None:
    """Once the fence has returned, nothing is stored that the record forbids."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await said(store, chat, ben, "remembered")
        sending = [asyncio.create_task(outcome(store, message(chat, ben))) for _ in range(20)]
        for _ in range(turns_before):
            await asyncio.sleep(0)
        await say_nothing_but(store, ann, ben)
        await store.directory.fence(ann, [chat])
        last = (await store.log.heads([chat]))[chat].sequence
        outcomes = await asyncio.gather(*sending)
        assert {told(one) for one in outcomes} <= {"stored", "blocked"}
        assert max((one.sequence for one in outcomes if told(one) == "stored"), default=0) <= last  # type: ignore[union-attr]
        assert await code_of(store, message(chat, ben)) == "blocked"


@pytest.mark.parametrize("turns_before", [0, 1, 3, 10, 30])
async def test_no_addition_under_way_outlives_a_fence(engine: Engine, turns_before: int) -> None:
    """Neither a join nor a new chat that was decided by what the person said before."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chats = [await add_group(store, eve) for _ in range(4)]
        tasks = [asyncio.create_task(adding(store, chat, eve, ann)) for chat in chats[:3]]
        tasks += [asyncio.create_task(creating(store, eve, ann)) for _ in range(3)]
        for _ in range(turns_before):
            await asyncio.sleep(0)
        await store.directory.fence(ann, [])  # as before the first that a person says
        await say_nothing_but(store, ann, eve)
        await store.directory.fence(ann, [])
        then = sorted(await store.directory.chat_ids_of(ann))
        assert set(await asyncio.gather(*tasks)) <= {"stored", "created", "blocked"}
        assert sorted(await store.directory.chat_ids_of(ann)) == then
        assert await adding(store, chats[-1], eve, ann) == "blocked"


async def test_a_fence_delays_nobody_who_may_write(engine: Engine) -> None:
    """Appends and additions beside many fences are decided again, and done."""
    async with engine.opened() as store:
        eve, ann, ben = await add_people(store, "eve", "ann", "ben")
        chat = await add_group(store, eve, ann)
        told_to, _ = await asyncio.gather(
            asyncio.gather(*(outcome(store, message(chat, who)) for who in (eve, ann) * 3)),
            asyncio.gather(*(store.directory.fence(person, [chat]) for person in (eve, ann, ben))),
        )
        assert {told(one) for one in told_to} == {"stored"}
        added, _ = await asyncio.gather(adding(store, chat, eve, ben), store.directory.fence(ben, []))
        assert added == "stored"


async def test_what_does_not_exist_is_fenced_for_nothing(engine: Engine) -> None:
    """Nobody and no chat, whatever they are called."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        for odd in ("user_unknown", "", "x" * 3_000):
            await store.directory.fence(odd, [])
            await store.directory.fence(odd)
        chat = await add_group(store, ann)
        await stored(store, message(chat, ann))
        assert store.breaches() == []


# What else the records of people need


async def test_who_shares_a_chat_is_found(engine: Engine) -> None:
    """By groups and direct chats that both are in now, among those who are asked for."""
    async with engine.opened() as store:
        ann, ben, cem, dan, eve = await add_people(store, "ann", "ben", "cem", "dan", "eve")
        await add_group(store, ann, ben)
        await add_direct(store, cem, ann)
        left = await add_group(store, dan, ann)
        await stored(store, change(left, ann, Action.LEFT, ann))
        await add_group(store, eve, dan)
        others = [ben, cem, dan, eve, "user_unknown", "", "\0"]
        assert await store.directory.sharing_chats(ann, others) == {ben, cem}
        assert await store.directory.sharing_chats(ann, [cem]) == {cem}
        assert await store.directory.sharing_chats(ann, []) == set()
        assert await store.directory.sharing_chats("user_unknown", [ann]) == set()


async def test_unasked_chats_are_told_apart(engine: Engine) -> None:
    """Those that a stranger put the person into, as long as they are in them."""
    async with engine.opened() as store:
        ann, eve = await add_people(store, "ann", "eve")
        own, unasked = await add_group(store, ann), await add_group(store, eve, ann)
        assert sorted(await store.directory.chat_ids_of(ann)) == sorted([own, unasked])
        assert await store.directory.chat_ids_of(ann, unasked=True) == [unasked]
        await let(store, ann, Privacy.EVERYONE)
        await stored(store, change(unasked, ann, Action.LEFT, ann))
        assert await store.directory.chat_ids_of(ann, unasked=True) == []
