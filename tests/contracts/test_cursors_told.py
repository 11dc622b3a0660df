"""`Cursors.subscribe` and `forget_device`: who hears that a position rose, and what is left of a device."""

import asyncio

import structlog

from parley.clock import iso
from parley.model import CursorMove, ReceiptKind
from tests.contracts.acting import (
    add_group,
    add_people,
    hearing,
    listed,
    mark_of,
    message,
    position_of,
    rises,
    said,
)
from tests.contracts.engines import Engine, OpenStore
from tests.waiting import eventually

DELIVERED, READ = ReceiptKind.DELIVERED, ReceiptKind.READ


async def two_in_a_group(store: OpenStore, messages: int) -> tuple[str, str, str]:
    ann, ben = await add_people(store, "ann", "ben")
    chat = await add_group(store, ann, ben)
    await store.log.append([message(chat, ann) for _ in range(messages)])
    return ann, ben, chat


async def test_a_rise_is_told_once(engine: Engine) -> None:
    """A position that rose is told with its chat and time; what comes after tells nothing of it again."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        heard = hearing(store)
        store.cursors.note_acked(ben, "phone", chat, 3, store.clock())
        await store.cursors.flush()
        assert heard == [CursorMove(ben, chat, DELIVERED, 3, iso(store.clock()))]
        await said(store, chat, ben, "something else")
        await store.cursors.flush()
        assert len(heard) == 1


async def test_what_is_told_is_durable(engine: Engine) -> None:
    """Whoever hears of a rise finds it in the store, on a connection of their own."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        found: list[tuple[int, int]] = []

        def look(moved: list[CursorMove]) -> None:
            found.extend(store.durable_positions(one.user_id, one.chat_id) for one in moved)

        store.cursors.subscribe(look)
        store.cursors.note_acked(ben, "phone", chat, 4, store.clock())
        store.cursors.note_read(ben, chat, 2, store.clock())
        await store.cursors.flush()
        assert found == [(4, 2)] * 2
        await store.reopen()
        assert store.durable_positions(ben, chat) == (4, 2)


async def test_a_rise_is_told_without_a_flush(engine: Engine) -> None:
    """Nobody has to ask: it is told when it became durable by itself."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        heard = hearing(store)
        store.cursors.note_read(ben, chat, 5, store.clock())
        await eventually(lambda: rises(heard) == [(ben, DELIVERED, 5), (ben, READ, 5)])


async def test_reading_tells_both(engine: Engine) -> None:
    """What is read and was not delivered tells of both, delivered first; else of the reading alone."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        heard = hearing(store)
        for sequence in (2, 4):
            store.cursors.note_read(ben, chat, sequence, store.clock())
            await store.cursors.flush()
        store.cursors.note_acked(ben, "phone", chat, 5, store.clock())
        await store.cursors.flush()
        store.cursors.note_read(ben, chat, 5, store.clock())
        await store.cursors.flush()
        assert rises(heard) == [
            (ben, DELIVERED, 2),
            (ben, READ, 2),
            (ben, DELIVERED, 4),
            (ben, READ, 4),
            (ben, DELIVERED, 5),
            (ben, READ, 5),
        ]


async def test_what_does_not_rise_is_not_told(engine: Engine) -> None:
    """Lower positions, repeated ones, those of a device behind another, and unknown chats tell nothing."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        store.cursors.note_read(ben, chat, 4, store.clock())
        await store.cursors.flush()
        heard = hearing(store)
        for sequence in (4, 3, 0):
            store.cursors.note_acked(ben, "tablet", chat, sequence, store.clock())
            store.cursors.note_read(ben, chat, sequence, store.clock())
            await store.cursors.flush()
        store.cursors.note_read(ben, "chat_unknown", 3, store.clock())
        store.cursors.note_acked("user_unknown", "phone", chat, 3, store.clock())
        store.sessions.note_used(b"unknown", store.clock())
        store.accounts.note_seen(ben, store.clock())
        await store.cursors.flush()
        await store.reopen()
        assert heard == []


async def test_a_devices_own_rise_below_another_is_kept_and_not_told(engine: Engine) -> None:
    """The second device catches up silently: the person was there already."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        store.cursors.note_acked(ben, "phone", chat, 5, store.clock())
        await store.cursors.flush()
        heard = hearing(store)
        store.cursors.note_acked(ben, "tablet", chat, 4, store.clock())
        await store.cursors.flush()
        assert heard == []
        assert await store.cursors.position(ben, "tablet", chat) == 4


async def test_of_many_notes_the_last_is_told(engine: Engine) -> None:
    """What was noted before one commit is told as one rise for each person and chat."""
    async with engine.opened() as store:
        ann, ben, chat = await two_in_a_group(store, 9)
        other = await add_group(store, ann, ben)
        await said(store, other, ann, "1")
        heard = hearing(store)
        for sequence in (1, 5, 3, 7):
            store.cursors.note_acked(ben, "phone", chat, sequence, store.clock())
            store.cursors.note_acked(ben, "tablet", chat, sequence - 1, store.clock())
        store.cursors.note_acked(ann, "phone", chat, 2, store.clock())
        store.cursors.note_acked(ben, "phone", other, 1, store.clock())
        await store.cursors.flush()
        assert sorted((moved.user_id, moved.chat_id, moved.up_to) for moved in heard) == sorted(
            [(ann, chat, 2), (ben, chat, 7), (ben, other, 1)]
        )


async def test_rises_are_told_in_their_order(engine: Engine) -> None:
    """Of each person, chat and kind what is told only rises, however the commits fall."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 30)
        heard = hearing(store)
        flushes = []
        for sequence in range(1, 31):
            store.cursors.note_read(ben, chat, sequence, store.clock())
            if sequence % 3 == 0:
                flushes.append(asyncio.create_task(store.cursors.flush()))
                await asyncio.sleep(0)
        await asyncio.gather(*flushes)
        await store.cursors.flush()
        for kind in ReceiptKind:
            told = [moved.up_to for moved in heard if moved.kind is kind]
            assert told == sorted(set(told))
            assert told[-1] == 30


async def test_who_fails_to_listen_harms_nobody(engine: Engine) -> None:
    """An error of the listener is logged; the position is kept and the next one is told."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)

        def fail(_: list[CursorMove]) -> None:
            raise ValueError("nobody expects this")

        store.cursors.subscribe(fail)
        with structlog.testing.capture_logs() as logs:
            store.cursors.note_read(ben, chat, 2, store.clock())
            await store.cursors.flush()
        assert any(entry["log_level"] == "error" for entry in logs)
        heard = hearing(store)
        store.cursors.note_read(ben, chat, 3, store.clock())
        await store.cursors.flush()
        assert rises(heard) == [(ben, DELIVERED, 3), (ben, READ, 3)]
        assert (await mark_of(store, ben, chat)).read_up_to == 3


# Devices that are no more


async def test_a_device_is_forgotten(engine: Engine) -> None:
    """Its positions in every chat are gone, also after a restart; other devices and people keep theirs."""
    async with engine.opened() as store:
        ann, ben, chat = await two_in_a_group(store, 5)
        other = await add_group(store, ben)
        await said(store, other, ben, "1")
        for person, device, where, sequence in (
            (ben, "phone", chat, 5),
            (ben, "phone", other, 1),
            (ben, "tablet", chat, 2),
            (ann, "phone", chat, 3),
        ):
            store.cursors.note_acked(person, device, where, sequence, store.clock())
        await store.cursors.flush()
        await store.cursors.forget_device(ben, "phone")
        for _ in range(2):
            found = [await store.cursors.position(ben, "phone", where) for where in (chat, other)]
            assert (found, await store.cursors.position(ben, "tablet", chat)) == ([0, 0], 2)
            assert await store.cursors.position(ann, "phone", chat) == 3
            assert (await position_of(store, ben, chat, "phone")).last_acked_sequence == 0
            await store.reopen()


async def test_the_person_stays_where_they_are(engine: Engine) -> None:
    """What was delivered to a device that is gone was delivered, and what was read stays read."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        store.cursors.note_acked(ben, "phone", chat, 5, store.clock())
        store.cursors.note_read(ben, chat, 3, store.clock())
        before = await mark_of(store, ben, chat)
        await store.cursors.forget_device(ben, "phone")
        assert await mark_of(store, ben, chat) == before
        assert (await position_of(store, ben, chat)).unread == 2


async def test_what_was_noted_of_a_device_goes_with_it(engine: Engine) -> None:
    """A position that was not yet durable does not come back after the device; the person's is kept."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        store.cursors.note_acked(ben, "phone", chat, 4, store.clock())
        await store.cursors.forget_device(ben, "phone")
        assert await store.cursors.position(ben, "phone", chat) == 0
        await store.cursors.flush()
        assert await store.cursors.position(ben, "phone", chat) == 0
        assert (await mark_of(store, ben, chat)).delivered_up_to == 4


async def test_a_device_that_is_being_written_is_forgotten(engine: Engine) -> None:
    """What is on its way to the disk while the device is forgotten does not outlive it."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        store.cursors.note_acked(ben, "phone", chat, 4, store.clock())
        writing = asyncio.create_task(store.cursors.flush())
        await asyncio.sleep(0)
        await store.cursors.forget_device(ben, "phone")
        await writing
        await store.cursors.flush()
        assert await store.cursors.position(ben, "phone", chat) == 0


async def test_a_device_may_come_again(engine: Engine) -> None:
    """Under the same name it starts over and moves as any other."""
    async with engine.opened() as store:
        _, ben, chat = await two_in_a_group(store, 5)
        store.cursors.note_acked(ben, "phone", chat, 5, store.clock())
        await store.cursors.forget_device(ben, "phone")
        store.cursors.note_acked(ben, "phone", chat, 2, store.clock())
        assert await store.cursors.position(ben, "phone", chat) == 2
        await store.reopen()
        assert await store.cursors.position(ben, "phone", chat) == 2


async def test_forgetting_an_unknown_device_does_nothing(engine: Engine) -> None:
    """Neither a device nor a person has to exist."""
    async with engine.opened() as store:
        _, ben, _ = await two_in_a_group(store, 1)
        _, token = await listed(store, ben, None)
        await store.cursors.forget_device(ben, "watch")
        await store.cursors.forget_device("user_unknown", "phone")
        assert (await listed(store, ben, token))[0] == []
