"""The `MemberStates` port: how far each member is, and what a person does not want to hear of."""

import pytest
from msgspec.structs import replace

from parley.clock import iso
from parley.model import Action, MemberCursor, MemberSettings, Notify, QuietHours
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    listed,
    mark_of,
    message,
    position_of,
    said,
    stored,
)
from tests.contracts.engines import Engine, OpenStore

LATER_MS = 5_000


async def group_of_two(store: OpenStore, messages: int) -> tuple[str, str, str]:
    """Two people and their group with so many messages of the first."""
    ann, ben = await add_people(store, "ann", "ben")
    chat = await add_group(store, ann, ben)
    await store.log.append([message(chat, ann) for _ in range(messages)])
    return ann, ben, chat


async def muted_until(store: OpenStore, user_id: str, chat_id: str) -> str | None:
    return (await store.member_states.settings(chat_id, [user_id]))[user_id].muted_until


async def test_who_has_received_nothing_is_at_the_beginning(engine: Engine) -> None:
    """Every member has a mark from the start, in the order of their ids, and nobody else has."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 3)
        await add_people(store, "stranger")
        expected = [MemberCursor(user_id, 0, 0, None, 0, None) for user_id in sorted((ann, ben))]
        assert await store.member_states.cursors(chat) == expected
        assert await store.member_states.cursors("chat_unknown") == []


async def test_a_mark_is_the_furthest_of_the_devices(engine: Engine) -> None:
    """Delivered is the maximum over a person's devices, with the time when it last rose."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 5)
        for device, sequence, later_ms in (("phone", 2, 0), ("tablet", 4, LATER_MS), ("phone", 3, 9_000)):
            store.cursors.note_acked(ben, device, chat, sequence, store.clock() + later_ms)
            await store.cursors.flush()
        expected = MemberCursor(ben, 0, 4, iso(store.clock() + LATER_MS), 0, None)
        assert await mark_of(store, ben, chat) == expected
        assert (await mark_of(store, ann, chat)).delivered_up_to == 0
        await store.reopen()
        assert await mark_of(store, ben, chat) == expected


async def test_what_is_read_is_delivered(engine: Engine) -> None:
    """Reading raises delivered to the same place at the same time, and never lowers it."""
    async with engine.opened() as store:
        _, ben, chat = await group_of_two(store, 5)
        now, later = iso(store.clock()), iso(store.clock() + LATER_MS)
        store.cursors.note_read(ben, chat, 2, store.clock())
        assert await mark_of(store, ben, chat) == MemberCursor(ben, 0, 2, now, 2, now)
        store.cursors.note_acked(ben, "phone", chat, 5, store.clock())
        await store.cursors.flush()
        store.cursors.note_read(ben, chat, 4, store.clock() + LATER_MS)
        assert await mark_of(store, ben, chat) == MemberCursor(ben, 0, 5, now, 4, later)


async def test_a_read_and_an_ack_that_ride_together_both_count(engine: Engine) -> None:
    """Noted before the same commit, the further of the two is delivered, whichever was noted first."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 5, store.clock())
        store.cursors.note_read(ann, chat, 3, store.clock())
        store.cursors.note_read(ben, chat, 4, store.clock())
        store.cursors.note_acked(ben, "phone", chat, 1, store.clock())
        at = [await mark_of(store, who, chat) for who in (ann, ben)]
        assert [(mark.delivered_up_to, mark.read_up_to) for mark in at] == [(5, 3), (4, 4)]


async def test_times_say_when_a_position_rose(engine: Engine) -> None:
    """A lower position, or the same one again, leaves the times as they are."""
    async with engine.opened() as store:
        _, ben, chat = await group_of_two(store, 5)
        store.cursors.note_read(ben, chat, 4, store.clock())
        before = await mark_of(store, ben, chat)
        for sequence in (4, 3, 0):
            store.cursors.note_acked(ben, "phone", chat, sequence, store.clock() + LATER_MS)
            store.cursors.note_read(ben, chat, sequence, store.clock() + LATER_MS)
            assert await mark_of(store, ben, chat) == before


async def test_what_is_only_noted_does_not_count(engine: Engine) -> None:
    """A mark is of what is durable."""
    async with engine.opened() as store:
        _, ben, chat = await group_of_two(store, 5)
        store.cursors.note_read(ben, chat, 4, store.clock())
        marks = await store.member_states.cursors(chat)
        assert [(mark.delivered_up_to, mark.read_up_to) for mark in marks] == [(0, 0)] * 2
        assert (await mark_of(store, ben, chat)).read_up_to == 4


async def test_marks_follow_the_members(engine: Engine) -> None:
    """Who joins has a mark from there on, and who leaves has none."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 2)
        (cem,) = await add_people(store, "cem")
        joined = await stored(store, change(chat, ann, Action.JOINED, cem))
        assert await mark_of(store, cem, chat) == MemberCursor(cem, joined.sequence, 0, None, 0, None)
        await stored(store, change(chat, ben, Action.LEFT, ben))
        assert {mark.user_id for mark in await store.member_states.cursors(chat)} == {ann, cem}


async def test_who_comes_back_is_where_they_were(engine: Engine) -> None:
    """Leaving and joining again keeps the positions; the mark says where they joined last."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 4)
        store.cursors.note_read(ben, chat, 3, store.clock())
        await store.cursors.flush()
        await stored(store, change(chat, ben, Action.LEFT, ben))
        await said(store, chat, ann, "meanwhile")
        joined = await stored(store, change(chat, ann, Action.JOINED, ben))
        at = await mark_of(store, ben, chat)
        assert (at.joined_sequence, at.delivered_up_to, at.read_up_to) == (joined.sequence, 3, 3)
        assert (await position_of(store, ben, chat)).unread == 2


async def test_many_members_have_marks(engine: Engine) -> None:
    """None is left out of a chat with very many members."""
    async with engine.opened() as store:
        people = await add_people(store, *(f"p{n}" for n in range(130)))
        chat = await add_group(store, *people)
        await said(store, chat, people[0], "hello")
        for person in people[::2]:
            store.cursors.note_acked(person, "phone", chat, 1, store.clock())
        await store.cursors.flush()
        marks = await store.member_states.cursors(chat)
        assert [mark.user_id for mark in marks] == sorted(people)
        assert {mark.user_id for mark in marks if mark.delivered_up_to == 1} == set(people[::2])


# Muting


@pytest.mark.parametrize("until", ["2026-12-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
async def test_a_muted_chat_stays_so(engine: Engine, until: str) -> None:
    """Until when is told in the person's own overview, on every device, also after a restart."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 1)
        await store.member_states.mute(ann, chat, until)
        for _ in range(2):
            for device in ("phone", "tablet"):
                assert (await position_of(store, ann, chat, device)).muted_until == until
            assert (await position_of(store, ben, chat)).muted_until is None
            found = [await muted_until(store, person, chat) for person in (ann, ben)]
            assert found == [until, None]
            await store.reopen()


async def test_muting_ends(engine: Engine) -> None:
    """The last word counts, and no time at all means not muted."""
    async with engine.opened() as store:
        ann, _, chat = await group_of_two(store, 1)
        later = "2027-01-01T00:00:00.000Z"
        for until in ("2026-12-01T00:00:00.000Z", later, later, None, None):
            await store.member_states.mute(ann, chat, until)
            assert (await position_of(store, ann, chat)).muted_until == until
            assert await muted_until(store, ann, chat) == until


async def test_muting_is_a_change_for_that_person_alone(engine: Engine) -> None:
    """The chat is listed after the token of whoever muted it, and of nobody else."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 1)
        _, mine = await listed(store, ann, None)
        _, theirs = await listed(store, ben, None)
        await store.member_states.mute(ann, chat, "2026-12-01T00:00:00.000Z")
        assert (await listed(store, ann, mine))[0] == [chat]
        assert (await listed(store, ben, theirs))[0] == []


async def test_muting_moves_nothing(engine: Engine) -> None:
    """Positions and unread messages are as before."""
    async with engine.opened() as store:
        _, ben, chat = await group_of_two(store, 4)
        store.cursors.note_read(ben, chat, 1, store.clock())
        before = await mark_of(store, ben, chat)
        await store.member_states.mute(ben, chat, "2026-12-01T00:00:00.000Z")
        assert await mark_of(store, ben, chat) == before
        at = await position_of(store, ben, chat)
        assert (at.unread, at.read_up_to, at.left) == (3, 1, False)


async def test_who_comes_back_finds_the_chat_muted(engine: Engine) -> None:
    """It is not muted for a person who is not in it, and is again once they are."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 1)
        until = "2030-01-01T00:00:00.000Z"
        await store.member_states.mute(ben, chat, until)
        _, before = await listed(store, ben, None)
        for done, shown in (
            (change(chat, ben, Action.LEFT, ben), None),
            (change(chat, ann, Action.JOINED, ben), until),
        ):
            await stored(store, done)
            assert await muted_until(store, ben, chat) == shown
            assert (await store.member_states.settings(chat, [ben]))[ben].muted_until == shown
            (position,) = (await store.overviews.changed(ben, "phone", before, 1)).positions
            assert (position.left, position.muted_until) == (shown is None, shown)


async def test_nobody_mutes_a_chat_they_are_not_in(engine: Engine) -> None:
    """For a stranger nothing is kept, and for who left nothing is listed again."""
    async with engine.opened() as store:
        ann, ben, chat = await group_of_two(store, 1)
        (cem,) = await add_people(store, "cem")
        await stored(store, change(chat, ben, Action.LEFT, ben))
        _, token = await listed(store, ben, None)
        for person in (ben, cem):
            await store.member_states.mute(person, chat, "2026-12-01T00:00:00.000Z")
        await store.member_states.mute(ann, "chat_unknown", "2026-12-01T00:00:00.000Z")
        assert (await listed(store, ben, token))[0] == []
        assert (await listed(store, cem, None))[0] == []
        for person, where in ((ben, chat), (cem, chat), (ann, "chat_unknown")):
            assert await muted_until(store, person, where) is None
        assert store.breaches() == []


async def test_settings_of_members(engine: Engine) -> None:
    """What they chose, and how far they are; a person who is not in the chat chooses nothing."""
    async with engine.opened() as store:
        ann, ben, eve = await add_people(store, "ann", "ben", "eve")
        chat = await add_group(store, ann, ben)
        states = store.member_states
        await states.set_notify(ann, chat, Notify.MENTIONS)
        await states.set_notify(eve, chat, Notify.NONE)
        await states.mute(ann, chat, "2030-01-01T00:00:00.000Z")
        await store.reopen()
        assert await store.member_states.settings(chat, [ann, ben, eve]) == {
            ann: MemberSettings(Notify.MENTIONS, "2030-01-01T00:00:00.000Z"),
            ben: MemberSettings(),
            eve: MemberSettings(),
        }


async def test_quiet_hours_are_kept(engine: Engine) -> None:
    """And taken back by null."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        user = await store.accounts.user(ann)
        assert user is not None
        assert user.do_not_disturb is None
        quiet = replace(user, do_not_disturb=QuietHours("22:00", "07:00", "Europe/Berlin"))
        await store.accounts.update_user(quiet)
        await store.reopen()
        assert await store.accounts.user(ann) == quiet
        await store.accounts.update_user(user)
        assert await store.accounts.user(ann) == user
