"""Contacts and blocks. `test_blocking` has what a block forbids."""

import pytest
from msgspec.structs import replace

from parley.clock import iso
from parley.errors import Refused
from parley.model import Action, Privacy, RelatedUser, Relation, Relationship, Visibility
from parley.records.relations import COUNTED_AGAIN_AFTER_MS
from parley.store.rules import RELATIONS_MAX
from parley.store.tables import CONSENTS
from tests.contracts.acting import (
    add_contact,
    add_direct,
    add_group,
    add_people,
    block,
    change,
    stored,
    unblock,
)
from tests.contracts.engines import Engine, OpenStore

LATER_MS = 60_000


@pytest.mark.parametrize("relation", Relation)
async def test_a_relation_is_kept(engine: Engine, relation: Relation) -> None:
    """Whom somebody holds so is listed with the time since when, also after a restart."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        since = iso(store.clock())
        await store.relations.set_relation(ann, ben, relation, since)
        for _ in range(2):
            assert await store.relations.related(ann, relation, "", 10) == [RelatedUser(ben, since)]
            await store.reopen()


@pytest.mark.parametrize("relation", Relation)
async def test_relating_again_changes_nothing(engine: Engine, relation: Relation) -> None:
    """A repeated relation keeps its first time, and ending it twice is as ending it once."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        since = iso(store.clock())
        await store.relations.set_relation(ann, ben, relation, since)
        await store.relations.set_relation(ann, ben, relation, iso(store.clock() + LATER_MS))
        assert await store.relations.related(ann, relation, "", 10) == [RelatedUser(ben, since)]
        for _ in range(2):
            await store.relations.set_relation(ann, ben, relation, None)
            assert await store.relations.related(ann, relation, "", 10) == []


@pytest.mark.parametrize("relation", Relation)
async def test_relating_says_since_when_it_holds(engine: Engine, relation: Relation) -> None:
    """The first time counts until it ends; then nothing holds, and another time may begin."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        first, later = "2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"
        assert await store.relations.set_relation(ann, ben, relation, first) == first
        assert await store.relations.set_relation(ann, ben, relation, later) == first
        assert await store.relations.set_relation(ann, ben, relation, None) is None
        assert await store.relations.set_relation(ann, ben, relation, None) is None
        assert await store.relations.set_relation(ann, ben, relation, later) == later


@pytest.mark.parametrize("relation", Relation)
async def test_a_relation_that_ended_may_begin_again(engine: Engine, relation: Relation) -> None:
    """After its end a relation is as new, with a new time."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await store.relations.set_relation(ann, ben, relation, iso(store.clock()))
        await store.relations.set_relation(ann, ben, relation, None)
        again = iso(store.clock() + LATER_MS)
        await store.relations.set_relation(ann, ben, relation, again)
        await store.reopen()
        assert await store.relations.related(ann, relation, "", 10) == [RelatedUser(ben, again)]


@pytest.mark.parametrize("relation", Relation)
async def test_relations_are_one_sided(engine: Engine, relation: Relation) -> None:
    """Holding somebody says nothing of how they hold oneself."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await store.relations.set_relation(ann, ben, relation, iso(store.clock()))
        assert await store.relations.related(ben, relation, "", 10) == []
        await store.relations.set_relation(ben, ann, relation, None)
        assert len(await store.relations.related(ann, relation, "", 10)) == 1


@pytest.mark.parametrize(
    ("ended", "left"), [(Relation.CONTACT, Relation.BLOCK), (Relation.BLOCK, Relation.CONTACT)]
)
async def test_a_contact_may_be_blocked(engine: Engine, ended: Relation, left: Relation) -> None:
    """Both may hold of the same two people, and ending one leaves the other as it is."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_contact(store, ann, ben)
        await block(store, ann, ben)
        await store.relations.set_relation(ann, ben, ended, None)
        assert await store.relations.related(ann, ended, "", 10) == []
        assert [related.user_id for related in await store.relations.related(ann, left, "", 10)] == [ben]


@pytest.mark.parametrize("relation", Relation)
async def test_relations_come_in_pages(engine: Engine, relation: Relation) -> None:
    """They are listed in the order of the ids, each once, page after page, nobody else's among them."""
    async with engine.opened() as store:
        ann, *others = await add_people(store, "ann", *(f"p{n}" for n in range(7)))
        other_relation = next(other for other in Relation if other is not relation)
        for number, other in enumerate(others):
            await store.relations.set_relation(ann, other, relation, iso(store.clock()))
            await store.relations.set_relation(other, ann, relation, iso(store.clock()))
            if number % 2:
                await store.relations.set_relation(ann, other, other_relation, iso(store.clock()))
        after, seen = "", list[str]()
        while page := await store.relations.related(ann, relation, after, 3):
            assert len(page) <= 3
            seen += [related.user_id for related in page]
            after = seen[-1]
        assert seen == sorted(others)


@pytest.mark.parametrize("relation", Relation)
async def test_nobody_unknown_can_be_related(engine: Engine, relation: Relation) -> None:
    """A relation with somebody who does not exist is refused, and nothing is kept."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        with pytest.raises(Refused) as refused:
            await store.relations.set_relation(ann, "user_unknown", relation, iso(store.clock()))
        assert refused.value.refusal.code == "not_found"
        assert await store.relations.related(ann, relation, "", 10) == []


@pytest.mark.parametrize("relation", Relation)
async def test_relations_are_limited(
    engine: Engine, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more than allowed is refused, repeating one is not; ending one makes room for another."""
    monkeypatch.setitem(RELATIONS_MAX, relation, 2)
    other_relation = next(other for other in Relation if other is not relation)
    async with engine.opened() as store:
        ann, *others = await add_people(store, "ann", "ben", "cem", "dan")
        now = iso(store.clock())
        for other in others:
            await store.relations.set_relation(ann, other, other_relation, now)
        for other in (*others[:2], *others[:2]):
            await store.relations.set_relation(ann, other, relation, now)
        with pytest.raises(Refused) as refused:
            await store.relations.set_relation(ann, others[2], relation, now)
        assert refused.value.refusal.code == "bad_request"
        assert len(await store.relations.related(ann, relation, "", 10)) == 2
        for _ in range(2):
            await store.relations.set_relation(ann, others[0], relation, None)
        await store.relations.set_relation(ann, others[2], relation, now)
        held = await store.relations.related(ann, relation, "", 10)
        assert [related.user_id for related in held] == sorted(others[1:])


async def test_a_count_that_a_crash_left_too_high_is_corrected(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted before it was written: who meets the limit counts again, if nobody may still be writing."""
    monkeypatch.setitem(RELATIONS_MAX, Relation.CONTACT, 2)
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        await add_contact(store, ann, ben)
        said = (await store.kinds.consents.of([ann]))[ann]
        await store.records.load(CONSENTS, [replace(said, contacts=2)])
        with pytest.raises(Refused):
            await add_contact(store, ann, cem)
        store.clock.advance(COUNTED_AGAIN_AFTER_MS)
        await add_contact(store, ann, cem)
        with pytest.raises(Refused):
            await add_contact(store, ann, ann)
        assert len(await store.relations.related(ann, Relation.CONTACT, "", 10)) == 2


# Regards


async def relationship(store: OpenStore, viewer: str, user_id: str, acquainted: bool = False) -> Relationship:
    return (await store.relations.relationships(viewer, [user_id], acquainted))[user_id]


async def test_strangers_have_nothing_to_do_with_each_other(engine: Engine) -> None:
    """Without chats and relations nothing holds, whoever looks; the person's own record is there."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        await add_group(store, ann, cem)
        await add_group(store, ben, cem)
        user = await store.accounts.user(ben)
        assert user is not None
        assert await relationship(store, ann, ben) == Relationship(user, False, False, False, False, False)


async def test_a_regard_tells_both_sides(engine: Engine) -> None:
    """Contacts and blocks are told apart by whose they are."""
    async with engine.opened() as store:
        ann, ben, cem, dan, eve = await add_people(store, "ann", "ben", "cem", "dan", "eve")
        await add_contact(store, ann, ben)
        await add_contact(store, cem, ann)
        await block(store, ann, dan)
        await block(store, eve, ann)
        found = await store.relations.relationships(ann, [ben, cem, dan, eve])
        flags = {
            user_id: (at.is_contact, at.has_contact, at.is_blocked, at.has_blocked)
            for user_id, at in found.items()
        }
        assert flags == {
            ben: (True, False, False, False),
            cem: (False, True, False, False),
            dan: (False, False, True, False),
            eve: (False, False, False, True),
        }


async def test_relations_that_ended_show_in_no_regard(engine: Engine) -> None:
    """What was undone holds no more."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_contact(store, ann, ben)
        await block(store, ben, ann)
        await store.relations.set_relation(ann, ben, Relation.CONTACT, None)
        await unblock(store, ben, ann)
        at = await relationship(store, ann, ben)
        assert (at.is_contact, at.has_blocked, at.is_acquainted) == (False, False, False)


@pytest.mark.parametrize("how", ["contacts", "group", "direct", "joined"])
async def test_people_are_acquainted(engine: Engine, how: str) -> None:
    """Being each other's contact and any shared chat make two people acquainted."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        match how:
            case "contacts":
                await add_contact(store, ben, ann)
                await add_contact(store, ann, ben)
            case "group":
                await add_group(store, cem, ann, ben)
            case "direct":
                await add_direct(store, ann, ben)
            case "joined":
                await stored(store, change(await add_group(store, ben), ben, Action.JOINED, ann))
        assert (await relationship(store, ann, ben)).is_acquainted
        assert (await relationship(store, ben, ann)).is_acquainted
        assert not (await relationship(store, "user_unknown", ann)).is_acquainted


async def test_a_contact_of_one_side_makes_nobody_acquainted(engine: Engine) -> None:
    """Who has a stranger as a contact remains one, seen from either side."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_contact(store, ann, ben)
        assert not (await relationship(store, ann, ben)).is_acquainted
        assert not (await relationship(store, ben, ann)).is_acquainted


async def test_contacts_of_one_side_who_share_a_chat_are_acquainted(engine: Engine) -> None:
    """A contact does not keep the engine from finding the chat that the two share."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_contact(store, ann, ben)
        await add_group(store, ann, ben)
        assert (await relationship(store, ben, ann)).is_acquainted


async def test_a_block_makes_nobody_acquainted(engine: Engine) -> None:
    """Who blocks a stranger remains one."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await block(store, ann, ben)
        assert not (await relationship(store, ann, ben)).is_acquainted
        assert not (await relationship(store, ben, ann)).is_acquainted


async def test_a_chat_that_was_left_is_shared_no_more(engine: Engine) -> None:
    """Acquaintance by a chat ends when one of the two leaves it."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await stored(store, change(chat, ben, Action.LEFT, ben))
        assert not (await relationship(store, ann, ben)).is_acquainted
        assert not (await relationship(store, ben, ann)).is_acquainted


async def test_who_knows_of_a_shared_chat_says_so(engine: Engine) -> None:
    """With `acquainted` the answer says it of everybody, and the rest is as without."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        await add_group(store, ann, ben, cem)
        await block(store, cem, ann)
        found = await store.relations.relationships(ann, [ben, cem], acquainted=True)
        assert found == await store.relations.relationships(ann, [ben, cem])
        assert [at.is_acquainted for at in found.values()] == [True, True]


async def test_regards_are_of_those_who_exist(engine: Engine) -> None:
    """Unknown ids are left out, repeated ones answered once, and the viewer may be among them."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        asked = [ben, "user_unknown", ann, ben, "", "nul \0", "user_" + "x" * 500]
        assert set(await store.relations.relationships(ann, asked)) == {ann, ben}
        assert await store.relations.relationships(ann, []) == {}


async def test_regards_carry_settings_and_times(engine: Engine) -> None:
    """A relationship tells of a person what the accounts tell, as of now."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await set_privacy(store, ben, Privacy.CONTACTS, send_read_receipts=False)
        store.accounts.note_seen(ben, store.clock() + LATER_MS)
        await store.kinds.raised.flush()
        user = (await relationship(store, ann, ben)).user
        assert user == await store.accounts.user(ben)
        assert (user.last_seen_privacy, user.send_read_receipts) == (Privacy.CONTACTS, False)
        assert user.last_seen == iso(store.clock() + LATER_MS)


async def test_many_are_regarded_at_once(engine: Engine) -> None:
    """A question about very many people is answered for each of them."""
    async with engine.opened() as store:
        ann, *others = await add_people(store, "ann", *(f"p{n}" for n in range(120)))
        await add_group(store, ann, *others[:60])
        await add_contact(store, others[70], ann)
        await add_contact(store, ann, others[70])
        found = await store.relations.relationships(ann, others)
        assert set(found) == set(others)
        acquainted = [user_id for user_id, at in found.items() if at.is_acquainted]
        assert sorted(acquainted) == sorted([*others[:60], others[70]])


# Visibility and profiles


async def test_manners_are_what_others_may_notice(engine: Engine) -> None:
    """Whether reads are told, whom somebody has blocked, and who is a program; unknown people have none."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        await set_privacy(store, ben, Privacy.NOBODY, send_read_receipts=False)
        await add_contact(store, ann, ben)
        for blocked in (ben, cem):
            await block(store, ann, blocked)
        cem_before = await store.accounts.user(cem)
        assert cem_before is not None
        await store.accounts.update_user(replace(cem_before, is_bot=True))
        found = await store.relations.visibility([ann, ben, "user_unknown", ann, cem])
        assert found == {
            ann: Visibility(True, frozenset([ben, cem])),
            ben: Visibility(False, frozenset()),
            cem: Visibility(True, frozenset(), is_bot=True),
        }
        await unblock(store, ann, cem)
        assert (await store.relations.visibility([ann]))[ann].blocked == frozenset([ben])
        assert await store.relations.visibility([]) == {}


async def test_profiles_are_of_those_who_exist(engine: Engine) -> None:
    """Each is what the accounts tell of the person; unknown ids are left out."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await set_privacy(store, ben, Privacy.NOBODY, send_read_receipts=False)
        found = await store.relations.profiles([ben, ann, "user_unknown", ben])
        assert found == {user_id: await store.accounts.user(user_id) for user_id in (ann, ben)}
        assert await store.relations.profiles([]) == {}


async def set_privacy(store: OpenStore, user_id: str, privacy: Privacy, send_read_receipts: bool) -> None:
    user = await store.accounts.user(user_id)
    assert user is not None
    await store.accounts.update_user(
        replace(user, last_seen_privacy=privacy, send_read_receipts=send_read_receipts)
    )
