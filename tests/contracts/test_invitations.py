"""Invitations: made once, accepted by whom they are for, and bounded."""

import asyncio

import pytest

from parley.clock import MS_PER_DAY, iso
from parley.errors import Refused
from parley.model import Action, Draft, Invitation, Role
from parley.wire.limits import INVITATION_DAYS
from tests.contracts.acting import add_group, add_people, block, change, outcome, stored, told
from tests.contracts.engines import Engine, OpenStore


def invitation(
    store: OpenStore, chat: str, user_id: str, by: str, role: Role = Role.MEMBER, age_ms: int = 0
) -> Invitation:
    return Invitation(user_id, chat, by, role, iso(store.clock() - age_ms))


async def invite(
    store: OpenStore, chat: str, user_id: str, by: str, role: Role = Role.MEMBER, age_ms: int = 0
) -> str:
    """What somebody is told who invites a person."""
    try:
        await store.invitations.invite(invitation(store, chat, user_id, by, role, age_ms))
    except Refused as error:
        return error.refusal.code
    return "invited"


def acceptance(chat: str, user_id: str, role: Role = Role.MEMBER) -> Draft:
    return change(chat, user_id, Action.JOINED, user_id, role)


async def waiting_for(store: OpenStore, user_id: str) -> list[str]:
    """The chats that a person is invited to."""
    return [one.chat_id for one in await store.invitations.of_user(user_id, "", 1000)]


async def test_an_invitation_is_kept(engine: Engine) -> None:
    """It is found by person, by chat and by both, also after a restart."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_group(store, eve)
        made = invitation(store, chat, ann, eve, Role.ADMIN)
        assert await store.invitations.invite(made) == []
        for _ in range(2):
            assert await store.invitations.invitation(ann, chat) == made
            assert await store.invitations.of_user(ann, "", 10) == [made]
            assert await store.invitations.of_chat(chat, "", 10) == [made]
            await store.reopen()
        assert await store.invitations.of_user(eve, "", 10) == []


async def test_who_accepts_is_a_member(engine: Engine) -> None:
    """The invited one joins a closed group with the role that was offered, and the invitation is over."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_group(store, eve)
        await invite(store, chat, ann, eve, Role.ADMIN)
        assert told(await outcome(store, acceptance(chat, ann, Role.ADMIN))) == "stored"
        assert await store.directory.role(chat, ann) is Role.ADMIN
        assert await store.invitations.invitation(ann, chat) is None
        assert await store.invitations.of_chat(chat, "", 10) == []


@pytest.mark.parametrize("role", [Role.ADMIN, Role.OWNER])
async def test_an_invitation_gives_no_more_than_it_says(engine: Engine, role: Role) -> None:
    """Who was invited as a member joins as nothing else."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_group(store, eve)
        await invite(store, chat, ann, eve)
        assert told(await outcome(store, acceptance(chat, ann, role))) == "not_a_member"


async def test_an_invitation_is_for_one_person_and_one_chat(engine: Engine) -> None:
    """Nobody else gets in by it, and the person gets into no other chat."""
    async with engine.opened() as store:
        eve, ann, ben = await add_people(store, "eve", "ann", "ben")
        chat, other = await add_group(store, eve), await add_group(store, eve)
        await invite(store, chat, ann, eve)
        assert told(await outcome(store, acceptance(chat, ben))) == "not_a_member"
        assert told(await outcome(store, acceptance(other, ann))) == "not_a_member"
        assert told(await outcome(store, change(chat, ann, Action.JOINED, ben))) == "not_a_member"


async def test_an_invitation_that_ended_is_not_accepted(engine: Engine) -> None:
    """Declined or withdrawn, it opens nothing, and ending it twice does nothing."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_group(store, eve)
        await invite(store, chat, ann, eve)
        assert await store.invitations.end(ann, chat)
        assert not await store.invitations.end(ann, chat)
        assert told(await outcome(store, acceptance(chat, ann))) == "not_a_member"
        assert await store.invitations.of_chat(chat, "", 10) == []


async def test_an_invitation_is_accepted_or_withdrawn(engine: Engine) -> None:
    """Of both at once one happens: who is told that it ended is not in the chat."""
    async with engine.opened() as store:
        eve, *people = await add_people(store, "eve", *(f"p{n}" for n in range(4)))
        chat = await add_group(store, eve)
        for person in people:
            await invite(store, chat, person, eve)
            accepted, is_ended = await asyncio.gather(
                outcome(store, acceptance(chat, person)), store.invitations.end(person, chat)
            )
            assert (told(accepted) == "stored") is not is_ended
            assert (await store.directory.role(chat, person) is None) is is_ended


async def test_an_invitation_expires(engine: Engine) -> None:
    """After its days it is neither listed nor accepted, and a new one can be made."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_group(store, eve)
        await invite(store, chat, ann, eve, age_ms=INVITATION_DAYS * MS_PER_DAY)
        assert await store.invitations.invitation(ann, chat) is None
        assert await store.invitations.of_user(ann, "", 10) == []
        assert await store.invitations.of_chat(chat, "", 10) == []
        assert told(await outcome(store, acceptance(chat, ann))) == "not_a_member"
        assert not await store.invitations.end(ann, chat)
        assert await invite(store, chat, ann, eve) == "invited"
        assert told(await outcome(store, acceptance(chat, ann))) == "stored"


@pytest.mark.parametrize("how", ["added", "joined"])
async def test_joining_otherwise_ends_the_invitation(engine: Engine, how: str) -> None:
    """Who is in the chat is no longer invited to it, and a left chat needs a new invitation."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_group(store, eve, open_to_join=how == "joined")
        await invite(store, chat, ann, eve)
        await stored(store, change(chat, eve if how == "added" else ann, Action.JOINED, ann))
        assert await waiting_for(store, ann) == []
        assert await invite(store, chat, ann, eve) == "bad_request"


async def test_whom_nobody_can_invite(engine: Engine) -> None:
    """A person who does not exist, is a member, or has blocked the inviter."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chat = await add_group(store, eve)
        assert await invite(store, chat, "user_unknown", eve) == "not_found"
        assert await invite(store, chat, "", eve) == "not_found"
        assert await invite(store, chat, eve, eve) == "bad_request"
        await block(store, ann, eve)
        assert await invite(store, chat, ann, eve) == "blocked"
        assert await waiting_for(store, ann) == []


@pytest.mark.parametrize("turns_before", [0, 1, 5, 20])
async def test_nobody_is_invited_after_the_block(engine: Engine, turns_before: int) -> None:
    """Once the block is answered, no invitation of the blocked one follows."""
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chats = [await add_group(store, eve) for _ in range(4)]
        inviting = [asyncio.create_task(invite(store, chat, ann, eve)) for chat in chats]
        for _ in range(turns_before):
            await asyncio.sleep(0)
        await block(store, ann, eve)
        then = await waiting_for(store, ann)
        assert set(await asyncio.gather(*inviting)) <= {"invited", "blocked"}
        assert await waiting_for(store, ann) == then


async def test_inviting_again_renews(engine: Engine) -> None:
    """There is one invitation of a person to a chat: the last one counts."""
    async with engine.opened() as store:
        eve, ann, ben = await add_people(store, "eve", "ann", "ben")
        chat = await add_group(store, eve, ben)
        await invite(store, chat, ann, eve, Role.ADMIN, age_ms=1_000)
        await invite(store, chat, ann, ben)
        found = await store.invitations.invitation(ann, chat)
        assert found is not None
        assert (found.invited_by, found.role) == (ben, Role.MEMBER)
        assert len(await store.invitations.of_chat(chat, "", 10)) == 1


async def test_one_inviter_cannot_fill_the_list(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a few pending invitations of one person to another, more are refused; a renewal is not."""
    monkeypatch.setattr("parley.records.invitations.INVITATIONS_PER_INVITER_MAX", 2)
    async with engine.opened() as store:
        eve, ann, ben = await add_people(store, "eve", "ann", "ben")
        chats = [await add_group(store, eve, ben) for _ in range(3)]
        told_to = [await invite(store, chat, ann, eve) for chat in chats]
        assert told_to == ["invited", "invited", "bad_request"]
        assert await invite(store, chats[1], ann, eve) == "invited"
        assert await invite(store, chats[2], ann, ben) == "invited"


async def test_the_oldest_invitation_makes_room(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many wait for a person; one more ends the oldest, and says which."""
    monkeypatch.setattr("parley.records.invitations.INVITATIONS_MAX", 2)
    async with engine.opened() as store:
        eve, ann = await add_people(store, "eve", "ann")
        chats = [await add_group(store, eve) for _ in range(3)]
        for age_ms, chat in zip((3_000, 5_000), chats, strict=False):
            await invite(store, chat, ann, eve, age_ms=age_ms)
        ended = await store.invitations.invite(invitation(store, chats[2], ann, eve))
        assert ended == [chats[1]]
        assert await waiting_for(store, ann) == sorted([chats[0], chats[2]])
        assert await store.invitations.of_chat(chats[1], "", 10) == []


async def test_invitations_are_listed_in_pages(engine: Engine) -> None:
    """In the order of ids, after one, no more than asked for; expired ones leave no hole."""
    async with engine.opened() as store:
        eve, ann, *people = await add_people(store, "eve", "ann", *(f"p{n}" for n in range(5)))
        chats = sorted([await add_group(store, eve) for _ in range(5)])
        for chat in chats:
            is_old = chat == chats[1]
            await invite(store, chat, ann, eve, age_ms=INVITATION_DAYS * MS_PER_DAY if is_old else 0)
        for person in people:
            await invite(store, chats[0], person, eve)
        mine = [one.chat_id for one in await store.invitations.of_user(ann, chats[0], 2)]
        assert mine == [chats[2], chats[3]]
        invited = sorted([ann, *people])
        theirs = [one.user_id for one in await store.invitations.of_chat(chats[0], invited[1], 3)]
        assert theirs == invited[2:5]


async def test_odd_ids_find_nothing(engine: Engine) -> None:
    """What no person and no chat is called is answered like what does not exist."""
    async with engine.opened() as store:
        for odd in ("", "\0", "x" * 3000):
            assert await store.invitations.invitation(odd, odd) is None
            assert await store.invitations.of_user(odd, odd, 10) == []
            assert await store.invitations.of_chat(odd, odd, 10) == []
            assert not await store.invitations.end(odd, odd)
