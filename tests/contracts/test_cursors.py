"""The `Cursors` port: positions only rise, ride in the next commit, and survive."""

import asyncio

import pytest

from parley.model import Action
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    listed,
    message,
    position_of,
    said,
    stored,
)
from tests.contracts.engines import Engine, OpenStore
from tests.waiting import eventually


async def test_an_acknowledged_position_survives(engine: Engine) -> None:
    """After a flush a device's position is in its own answer, in the overview, and there after a restart."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 3, store.clock())
        await store.cursors.flush()
        await store.reopen()
        assert await store.cursors.position(ann, "phone", chat) == 3
        assert (await position_of(store, ann, chat)).last_acked_sequence == 3


async def test_closing_keeps_what_was_noted(engine: Engine) -> None:
    """What was noted before a proper end is kept without a flush."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 4, store.clock())
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.reopen()
        at = await position_of(store, ann, chat)
        assert (at.last_acked_sequence, at.read_up_to) == (4, 2)


async def test_a_note_becomes_durable_by_itself(engine: Engine) -> None:
    """Without any other write and without a flush, a note is visible to readers before long."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 2, store.clock())

        async def is_visible() -> bool:
            return (await position_of(store, ann, chat)).last_acked_sequence == 2

        await eventually(is_visible)


async def test_a_note_rides_with_the_next_commit(engine: Engine) -> None:
    """A note made before an append is durable when that append is."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 2, store.clock())
        await stored(store, message(chat, ann))
        assert (await position_of(store, ann, chat)).last_acked_sequence == 2


@pytest.mark.parametrize("flush_between", [True, False])
async def test_positions_only_rise(engine: Engine, flush_between: bool) -> None:
    """A lower position changes nothing, whether the higher one was already durable or not."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        for acked, read in ((4, 3), (2, 1), (0, 0)):
            store.cursors.note_acked(ann, "phone", chat, acked, store.clock())
            store.cursors.note_read(ann, chat, read, store.clock())
            if flush_between:
                await store.cursors.flush()
        await store.cursors.flush()
        at = await position_of(store, ann, chat)
        assert (at.last_acked_sequence, at.read_up_to) == (4, 3)
        assert await store.cursors.position(ann, "phone", chat) == 4


async def test_each_device_has_its_own_position(engine: Engine) -> None:
    """Devices of one person, and people of one chat, do not move each other."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ann, "1", "2", "3")
        store.cursors.note_acked(ann, "phone", chat, 3, store.clock())
        store.cursors.note_acked(ann, "tablet", chat, 1, store.clock())
        await store.cursors.flush()
        found = [await store.cursors.position(ann, device, chat) for device in ("phone", "tablet", "watch")]
        assert (found, await store.cursors.position(ben, "phone", chat)) == ([3, 1, 0], 0)


async def test_a_position_is_known_while_it_is_being_written(engine: Engine) -> None:
    """From the moment it is noted, a device's position never looks lower than it is."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 3, store.clock())
        writing = asyncio.create_task(store.cursors.flush())
        seen = [await store.cursors.position(ann, "phone", chat)]
        while not writing.done():
            seen.append(await store.cursors.position(ann, "phone", chat))
            await asyncio.sleep(0)
        seen.append(await store.cursors.position(ann, "phone", chat))
        assert set(seen) == {3}


async def test_reading_moves_no_device(engine: Engine) -> None:
    """What a person has read is shared by the devices and raises no device's position."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_read(ann, chat, 4, store.clock())
        await store.cursors.flush()
        for device in ("phone", "tablet"):
            at = await position_of(store, ann, chat, device)
            assert (at.read_up_to, at.last_acked_sequence) == (4, 0)
        assert await store.cursors.position(ann, "phone", chat) == 0


async def test_an_unknown_device_is_at_the_beginning(engine: Engine) -> None:
    """Nothing was acknowledged by who never spoke."""
    async with engine.opened() as store:
        assert await store.cursors.position("user_unknown", "phone", "chat_unknown") == 0


async def test_flushing_nothing_changes_nothing(engine: Engine) -> None:
    """Flushes without notes, also many at once, return and neither move nor list anything."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 3, store.clock())
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        _, token = await listed(store, ann, None)
        await asyncio.gather(*(store.cursors.flush() for _ in range(10)))
        assert (await listed(store, ann, token))[0] == []
        assert store.durable_positions(ann, chat) == (3, 2)


async def test_a_flush_covers_notes_made_during_another(engine: Engine) -> None:
    """What is noted while a commit is under way is durable after the flush that follows it."""
    async with engine.opened() as store:
        ann, chat = await written(store, 5)
        store.cursors.note_acked(ann, "phone", chat, 1, store.clock())
        first = asyncio.create_task(store.cursors.flush())
        await asyncio.sleep(0)
        store.cursors.note_acked(ann, "phone", chat, 2, store.clock())
        await store.cursors.flush()
        assert (await position_of(store, ann, chat)).last_acked_sequence == 2
        await first


async def test_one_persons_flush_covers_all_of_theirs(engine: Engine) -> None:
    """A flush of one person makes every position of theirs durable, however many others note at once."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chats = [await add_group(store, ann, ben) for _ in range(3)]
        for chat in chats:
            await store.log.append([message(chat, ann) for _ in range(3)])
            for person in (ann, ben):
                store.cursors.note_acked(person, "phone", chat, 2, store.clock())
                store.cursors.note_read(person, chat, 1, store.clock())
        everybody = asyncio.create_task(store.cursors.flush())
        await store.cursors.flush(ann)
        for chat in chats:
            at = await position_of(store, ann, chat)
            assert (at.last_acked_sequence, at.read_up_to) == (2, 1)
        await everybody


async def test_many_notes_of_many_people_are_all_kept(engine: Engine) -> None:
    """A burst of notes loses none of them."""
    async with engine.opened() as store:
        people = await add_people(store, *(f"p{n}" for n in range(10)))
        chats = [await add_group(store, *people) for _ in range(3)]
        for chat in chats:
            await store.log.append([message(chat, people[0]) for _ in range(20)])
        for number, person in enumerate(people):
            for chat in chats:
                store.cursors.note_acked(person, "phone", chat, number + 1, store.clock())
                store.cursors.note_read(person, chat, number, store.clock())
        await store.cursors.flush()
        for number, person in enumerate(people):
            for chat in chats:
                at = await position_of(store, person, chat)
                assert (at.last_acked_sequence, at.read_up_to) == (number + 1, number)


async def test_unread_counts_what_others_said_after(engine: Engine) -> None:
    """Own messages, changes and what was read do not count as unread."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ben, "1", "2")
        await said(store, chat, ann, "mine")
        await stored(store, change(chat, ann, Action.JOINED, cem))
        await said(store, chat, cem, "5")
        assert (await position_of(store, ann, chat)).unread == 3
        store.cursors.note_read(ann, chat, 2, store.clock())
        await store.cursors.flush()
        assert (await position_of(store, ann, chat)).unread == 1
        store.cursors.note_read(ann, chat, 5, store.clock())
        await store.cursors.flush()
        assert (await position_of(store, ann, chat)).unread == 0
        assert (await position_of(store, ben, chat)).unread == 2


@pytest.mark.parametrize(
    ("messages", "unread", "more"), [(998, 998, False), (999, 999, False), (1000, 999, True)]
)
async def test_unread_stops_at_its_limit(engine: Engine, messages: int, unread: int, more: bool) -> None:
    """Up to 999 are counted, and beyond that it is only said that there are more."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append([message(chat, ben) for _ in range(messages)])
        at = await position_of(store, ann, chat)
        assert (at.unread, at.unread_more) == (unread, more)


async def written(store: OpenStore, messages: int) -> tuple[str, str]:
    """A person, and their chat with so many messages."""
    (ann,) = await add_people(store, "ann")
    chat = await add_group(store, ann)
    await store.log.append([message(chat, ann) for _ in range(messages)])
    return ann, chat
