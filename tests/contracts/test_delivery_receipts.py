"""What a receipt for one message makes of a device's position, on every engine."""

import pytest

from parley.chats import reader
from parley.chats.log_hasher import LogHasher
from parley.chats.reader import ChatReader
from parley.model import Action
from tests.contracts.acting import add_group, add_people, change, decode_entry, message, said, stored
from tests.contracts.engines import Engine, OpenStore


async def received(store: OpenStore, user_id: str, chat_id: str, sequence: int) -> int:
    """A phone's position once it has sent a receipt for this message."""
    hasher = LogHasher(store.log, store.kinds.log_hashes, store.metrics)
    receipts = ChatReader(store.log, store.directory, store.cursors, hasher, store.clock)
    (wire,) = (await store.log.read(chat_id, sequence - 1, 1)).entries
    await receipts.acknowledge_message(user_id, "phone", chat_id, decode_entry(wire).message_id)
    return await store.cursors.position(user_id, "phone", chat_id)


async def test_only_a_message_of_another_person_stands_between(engine: Engine) -> None:
    """The person's own messages, other kinds of entries and voids do not."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ann, "1")
        await said(store, chat, ben, "2")
        await stored(store, change(chat, ann, Action.JOINED, cem))
        store.abandon(chat, 4, 0)
        store.clock.advance(60_000)
        await store.reopen()
        await store.log.seal()
        await said(store, chat, ann, "5", "6")
        assert await received(store, ben, chat, 5) == 0, "1 is somebody else's"
        assert await received(store, ben, chat, 1) == 1
        assert await received(store, ben, chat, 6) == 1, "5 is somebody else's"
        assert await received(store, ben, chat, 5) == 5


async def test_own_messages_between_may_fill_many_pages(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that is far behind is not held up by what its person wrote meanwhile."""
    monkeypatch.setattr(reader, "PAGE_ENTRIES_MAX", 3)
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append([message(chat, who) for who in [ben] * 14 + [ann]])
        assert await received(store, ben, chat, 15) == 15


async def test_a_receipt_looks_at_so_many_pages_and_the_next_goes_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond that the device moves over what was looked at, so that no distance makes it stall."""
    monkeypatch.setattr(reader, "RECEIPT_PAGES_MAX", 2)
    monkeypatch.setattr(reader, "PAGE_ENTRIES_MAX", 3)
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append([message(chat, ben) for _ in range(9)])
        await said(store, chat, ann, "10")
        assert await received(store, ben, chat, 10) == 6
        assert await received(store, ben, chat, 10) == 10


async def test_what_stands_behind_the_first_page_is_found(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's message on a later page stands between as well, and nothing moves."""
    monkeypatch.setattr(reader, "PAGE_ENTRIES_MAX", 3)
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append([message(chat, who) for who in [ben] * 5 + [ann] * 2])
        assert await received(store, ben, chat, 7) == 0
