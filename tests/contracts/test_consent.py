"""Who may add whom: every engine decides it with the write, whatever changes meanwhile."""

import asyncio
import itertools

import pytest
from msgspec.structs import replace

from parley.errors import Refused
from parley.model import AccountState, Action, ChatType, Privacy, Role
from tests.contracts.acting import (
    add_contact,
    add_direct,
    add_group,
    add_people,
    block,
    change,
    new_chat,
    outcome,
    stored,
    told,
    unblock,
)
from tests.contracts.engines import Engine, OpenStore

SHARE = 3
GHOST = "user_ZZZZZZZZZZZZZZZZZZZZZZZZZZ"
"""Of nobody, and behind all others in the order of ids."""


async def let(store: OpenStore, user_id: str, who_may_add: Privacy) -> None:
    """A person changes who may add them."""
    user = await store.accounts.user(user_id)
    assert user is not None
    await store.accounts.update_user(replace(user, who_may_add=who_may_add))


async def adding(store: OpenStore, chat: str, actor: str, user_id: str) -> str:
    """What somebody is told who adds a person."""
    return told(await outcome(store, change(chat, actor, Action.JOINED, user_id)))


async def creating(store: OpenStore, creator: str, *others: str, chat_type: ChatType = ChatType.GROUP) -> str:
    """What somebody is told who creates a chat."""
    try:
        await store.directory.create_chat(new_chat(store, creator, chat_type), list(others))
    except Refused as error:
        return error.refusal.code
    return "created"


async def test_the_setting_is_kept(engine: Engine) -> None:
    """Everyone may add a new person, and a change lasts."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        user = await store.accounts.user(ann)
        assert user is not None
        assert user.who_may_add is Privacy.EVERYONE
        await let(store, ann, Privacy.CONTACTS)
        await store.reopen()
        user = await store.accounts.user(ann)
        assert user is not None
        assert user.who_may_add is Privacy.CONTACTS


@pytest.mark.parametrize(
    ("who_may_add", "is_contact", "code"),
    [
        (Privacy.EVERYONE, False, "stored"),
        (Privacy.CONTACTS, False, "forbidden"),
        (Privacy.CONTACTS, True, "stored"),
        (Privacy.NOBODY, True, "forbidden"),
    ],
)
async def test_who_may_add(engine: Engine, who_may_add: Privacy, is_contact: bool, code: str) -> None:
    """An addition to a group, a new group and a new direct chat ask for the same consent."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        await let(store, ann, who_may_add)
        if is_contact:
            await add_contact(store, ann, eve)
        chat = await add_group(store, eve)
        created = "created" if code == "stored" else code
        assert await adding(store, chat, eve, ann) == code
        assert await creating(store, eve, ann) == created
        assert await creating(store, eve, ann, chat_type=ChatType.DIRECT) == created


async def test_a_contact_of_the_wrong_side_does_not_count(engine: Engine) -> None:
    """Who adds a person to their own contacts may not add them to a chat by that."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        await let(store, ann, Privacy.CONTACTS)
        await add_contact(store, eve, ann)
        assert await adding(store, await add_group(store, eve), eve, ann) == "forbidden"


async def test_who_is_blocked_adds_nobody(engine: Engine) -> None:
    """The blocked one can neither add the blocker nor create a chat with them, and nothing is left of it."""
    async with engine.opened() as store:
        eve, ann, ben = await add_people(store, "eve", "ann", "ben")
        chat = await add_group(store, eve)
        await add_contact(store, ann, eve)
        await block(store, ann, eve)
        assert await adding(store, chat, eve, ann) == "blocked"
        assert await creating(store, eve, ann, ben) == "blocked"
        assert await store.directory.chat_ids_of(ann) == []
        assert await store.directory.chat_ids_of(ben) == []
        await unblock(store, ann, eve)
        assert await adding(store, chat, eve, ann) == "stored"


async def test_a_blocker_may_still_add(engine: Engine) -> None:
    """A block keeps the blocked one from adding, not the blocker."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        await block(store, ann, eve)
        assert await adding(store, await add_group(store, ann), ann, eve) == "stored"


async def test_an_existing_direct_chat_stays_open(engine: Engine) -> None:
    """The setting is about new chats: who has one with the person finds it as before."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_direct(store, eve, ann)
        await let(store, ann, Privacy.NOBODY)
        assert await add_direct(store, eve, ann) == chat


async def test_everybody_joins_an_open_group_alone(engine: Engine) -> None:
    """Who may add a person is no question when they join by themself."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        await let(store, ann, Privacy.NOBODY)
        chat = await add_group(store, eve, open_to_join=True)
        assert await adding(store, chat, ann, ann) == "stored"


async def test_consents_are_read_for_many(engine: Engine) -> None:
    """What decides about an addition is told for each person who exists."""
    async with engine.opened() as store:
        eve, ann, ben, cem = await add_people(store, "eve", "ann", "ben", "cem")
        await let(store, ann, Privacy.CONTACTS)
        await add_contact(store, ben, eve)
        await block(store, cem, eve)
        await add_group(store, eve, ben)
        await add_group(store, ann, ben)
        found = await store.invitations.consents(eve, [ann, ben, cem, "user_unknown", "", "\0"])
        assert found.keys() == {ann, ben, cem}
        assert (found[ann].who_may_add, found[ann].is_contact) == (Privacy.CONTACTS, False)
        assert (found[ben].is_contact, found[ben].unasked_chats) == (True, 1)
        assert found[cem].has_blocked


# A person changes their mind while they are added


@pytest.mark.parametrize("turns_before", [0, 1, 3, 10, 30])
@pytest.mark.parametrize("how", ["nobody", "block"])
async def test_nobody_is_added_after_they_said_no(engine: Engine, turns_before: int, how: str) -> None:
    """Once the change of mind is answered, no addition follows, also none that was under way."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chats = [await add_group(store, eve) for _ in range(6)]
        tasks = [asyncio.create_task(adding(store, chat, eve, ann)) for chat in chats[:3]]
        tasks += [asyncio.create_task(creating(store, eve, ann)) for _ in range(3)]
        for _ in range(turns_before):
            await asyncio.sleep(0)
        await (let(store, ann, Privacy.NOBODY) if how == "nobody" else block(store, ann, eve))
        then = await store.directory.chat_ids_of(ann)
        outcomes = await asyncio.gather(*tasks)
        assert set(outcomes) <= {"stored", "created", "forbidden", "blocked"}
        assert sorted(await store.directory.chat_ids_of(ann)) == sorted(then)
        no = "forbidden" if how == "nobody" else "blocked"
        assert await adding(store, chats[-1], eve, ann) == no
        assert await creating(store, eve, ann) == no


# Strangers cannot fill a person's chats


@pytest.fixture
def small_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers may put a person into three chats."""
    monkeypatch.setattr("parley.core.consent.UNASKED_CHATS_MAX", SHARE)
    monkeypatch.setattr("parley.store.dynamodb.consents.CONTENDED_FROM", SHARE // 2)


@pytest.mark.usefixtures("small_share")
@pytest.mark.parametrize("how", ["add", "create", "direct"])
async def test_strangers_cannot_fill_anybodys_chats(engine: Engine, how: str) -> None:
    """However many strangers there are, they fill a share; contacts and the person use the rest."""
    async with engine.opened() as store:
        ann, *strangers = await add_people(store, "ann", *(f"eve{n}" for n in range(SHARE + 2)))
        told_to = []
        for eve in strangers:
            if how == "add":
                told_to.append(await adding(store, await add_group(store, eve), eve, ann))
            else:
                chat_type = ChatType.GROUP if how == "create" else ChatType.DIRECT
                told_to.append(await creating(store, eve, ann, chat_type=chat_type))
        assert told_to[SHARE:] == ["forbidden"] * 2
        assert "forbidden" not in told_to[:SHARE]
        await add_contact(store, ann, strangers[-1])
        assert await creating(store, strangers[-1], ann) == "created"
        assert await creating(store, ann) == "created"
        await store.reopen()
        assert await creating(store, strangers[0], ann) == "forbidden"


@pytest.mark.usefixtures("small_share")
async def test_leaving_makes_room_for_strangers(engine: Engine) -> None:
    """The share counts the chats that a person is in, not those that they were once put into."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chats = [await add_group(store, eve, ann) for _ in range(SHARE)]
        assert await creating(store, eve, ann) == "forbidden"
        await stored(store, change(chats[0], ann, Action.LEFT, ann))
        assert await creating(store, eve, ann) == "created"


@pytest.mark.usefixtures("small_share")
async def test_chats_of_ones_own_choice_are_not_in_the_share(engine: Engine) -> None:
    """What a person created or joined, and where contacts added them, leaves strangers their share."""
    async with engine.opened() as store:
        eve, ann, ben = await add_people(store, "eve", "ann", "ben")
        await add_contact(store, ann, ben)
        for _ in range(SHARE):
            await add_group(store, ann)
            await add_group(store, ben, ann)
            await stored(
                store, change(await add_group(store, eve, open_to_join=True), ann, Action.JOINED, ann)
            )
        assert await creating(store, eve, ann) == "created"


@pytest.mark.usefixtures("small_share")
async def test_strangers_who_come_at_once_fill_no_more(engine: Engine) -> None:
    """Additions and new chats that count at the same time do not exceed the share together."""
    async with engine.opened() as store:
        ann, *strangers = await add_people(store, "ann", *(f"eve{n}" for n in range(2 * SHARE)))
        chats = {eve: await add_group(store, eve) for eve in strangers}
        await add_group(store, strangers[0], ann)
        told_to = await asyncio.gather(
            *(adding(store, chat, eve, ann) for eve, chat in chats.items()),
            *(creating(store, eve, ann) for eve in strangers),
        )
        assert set(told_to) <= {"stored", "created", "forbidden"}
        assert len(await store.directory.chat_ids_of(ann)) == SHARE
        assert (await store.directory.role(chats[strangers[0]], strangers[0])) is Role.OWNER


async def test_a_chat_with_several_obstacles_is_refused_for_the_same_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every combination: unknown people come first, then the creator, then consent, and limits come last."""
    monkeypatch.setattr("parley.core.permissions.USER_CHATS_MAX", 2)
    async with engine.opened() as store:
        ann, out, shy, foe, full = await add_people(store, "ann", "out", "shy", "foe", "full")
        await let(store, shy, Privacy.CONTACTS)
        for creator in (ann, out):
            await block(store, foe, creator)
        for _ in range(2):
            await add_group(store, full)
        await store.account_admin.set_state(out, AccountState.DISABLED, "")
        consent = {shy: "forbidden", foe: "blocked"}
        some = itertools.product((True, False), repeat=4)
        combinations = [list(itertools.compress((GHOST, shy, foe, full), chosen)) for chosen in some]
        for creator, others in itertools.product((ann, out), combinations):
            expected = [
                "not_found" if GHOST in others else "",
                "account_disabled" if creator == out else "",
                *(consent[person] for person in sorted(others) if person in consent),
                "bad_request" if full in others else "",
                "created",
            ]
            assert await creating(store, creator, *others) == next(filter(None, expected)), (creator, others)
