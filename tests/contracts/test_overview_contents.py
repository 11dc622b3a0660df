"""What an overview tells of each chat: title, peer, last entry and unread messages."""

import pytest

from parley.model import Action, ChatSummary, ChatType, ReadReceipts, ReceiptKind
from parley.store import compared_overviews
from parley.store.sqlite import overview
from parley.wire.limits import MESSAGE_BYTES_MAX, PAGE_BYTES_MAX
from tests.contracts.acting import (
    add_direct,
    add_group,
    add_people,
    change,
    decode_entry,
    head_of,
    hearing,
    listed,
    message,
    position_of,
    rename,
    rises,
    said,
    show_receipts,
    stored,
)
from tests.contracts.engines import Engine, OpenStore
from tests.memory import cursors


def last_content(at: ChatSummary) -> str | None:
    return decode_entry(at.last_entry).content if at.last_entry is not None else None


async def test_a_group_has_a_title_and_no_peer(engine: Engine) -> None:
    """The title is the one of this moment."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        at = await position_of(store, ben, chat)
        assert (at.chat_type, at.title, at.peer_id) == (ChatType.GROUP, "group", None)
        await stored(store, rename(chat, ann, "nul \0 👩"))
        await store.reopen()
        assert (await position_of(store, ben, chat)).title == "nul \0 👩"


async def test_a_direct_chat_has_a_peer_and_no_title(engine: Engine) -> None:
    """Each of the two finds the other."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ben, ann)
        for one, other in ((ann, ben), (ben, ann)):
            at = await position_of(store, one, chat)
            assert (at.chat_type, at.title, at.peer_id) == (ChatType.DIRECT, None, other)


async def test_a_brief_overview_reads_no_entries(engine: Engine) -> None:
    """It tells the same positions and counts without last entries; either token goes on with the other."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chats = [await add_group(store, ann, ben) for _ in range(3)]
        for chat in chats:
            await stored(store, message(chat, ann, "x" * MESSAGE_BYTES_MAX))
        full = await store.overviews.changed(ben, "phone", None, 2)
        brief = await store.overviews.changed(ben, "phone", None, 2, brief=True)
        assert [at.last_entry for at in brief.positions] == [None, None]
        assert [numbers_of(at) for at in brief.positions] == [numbers_of(at) for at in full.positions]
        rest = await store.overviews.changed(ben, "phone", brief.token, 2)
        assert (len(rest.positions), rest.complete) == (1, True)
        rest = await store.overviews.changed(ben, "phone", full.token, 2, brief=True)
        assert (len(rest.positions), rest.complete) == (1, True)
        await stored(store, message(chats[0], ann, "news"))
        (at,) = (await store.overviews.changed(ben, "phone", rest.token, 2, brief=True)).positions
        assert (at.chat_id, at.unread) == (chats[0], 2)


def numbers_of(at: ChatSummary) -> tuple[object, ...]:
    return at.chat_id, at.epoch, at.head, at.last_acked_sequence, at.read_up_to, at.unread, at.left


async def test_the_last_entry_is_told_as_it_travels(engine: Engine) -> None:
    """An empty chat has none; then it is what the log has at its end, of whatever kind, letter by letter."""
    async with engine.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chat = await add_group(store, ann, ben)
        assert (await position_of(store, ben, chat)).last_entry is None
        drafts = [
            message(chat, ann, "nul \0 👩"),
            change(chat, ann, Action.JOINED, cem),
            rename(chat, ann, "new"),
            show_receipts(chat, ann, ReadReceipts.NONE),
            message(chat, cem, "last"),
        ]
        for draft in drafts:
            await stored(store, draft)
            page = await store.log.read_before(chat, 1_000, 1)
            for person in (ann, ben):
                assert [(await position_of(store, person, chat)).last_entry] == page.entries


async def test_the_last_entry_is_never_a_void(engine: Engine) -> None:
    """Behind positions that were abandoned, the newest entry before them is told, with the head as it is."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat, empty = await add_group(store, ann), await add_group(store, ann)
        await said(store, chat, ann, "first", "last")
        for sequence in (3, 4):
            store.abandon(chat, sequence, 0)
        store.abandon(empty, 1, 0)
        store.clock.advance(60_000)
        await store.reopen()
        await store.log.seal()
        at, nothing = await position_of(store, ann, chat), await position_of(store, ann, empty)
        assert (last_content(at), nothing.last_entry) == ("last", None)
        assert at.head == await head_of(store, chat)


async def test_a_left_chat_tells_neither_title_nor_entry(engine: Engine) -> None:
    """Who has left learns no more than that; who comes back finds everything again."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ann, "secret")
        _, token = await listed(store, ben, None)
        await stored(store, change(chat, ann, Action.REMOVED, ben))
        await stored(store, rename(chat, ann, "also secret"))
        (at,) = (await store.overviews.changed(ben, "phone", token, 10)).positions
        assert (at.left, at.title, at.last_entry, at.unread) == (True, None, None, 0)
        assert at.chat_type is ChatType.GROUP
        await stored(store, change(chat, ann, Action.JOINED, ben))
        back = await position_of(store, ben, chat)
        assert (back.left, back.title, back.unread) == (False, "also secret", 1)
        assert back.last_entry == (await store.log.read_before(chat, 1_000, 1)).entries[0]


async def test_a_page_ends_with_its_size(engine: Engine) -> None:
    """Long last entries make more pages; every chat is listed once, and only the last page is complete."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(40)]
        for chat in chats:
            await said(store, chat, ann, "x" * (MESSAGE_BYTES_MAX - 100))
        seen, pages, token = list[str](), 0, None
        while True:
            changed = await store.overviews.changed(ann, "phone", token, 1_000)
            size = sum(len(at.last_entry or b"") for at in changed.positions)
            assert size <= PAGE_BYTES_MAX
            seen += [at.chat_id for at in changed.positions]
            pages, token = pages + 1, changed.token
            if changed.complete:
                break
            assert size > PAGE_BYTES_MAX - 2 * MESSAGE_BYTES_MAX
        assert (sorted(seen), pages) == (sorted(chats), 3)
        assert (await listed(store, ann, token))[0] == []


async def test_a_small_limit_goes_before_the_size(engine: Engine) -> None:
    """A page never has more chats than asked for, however short their entries."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        for _ in range(3):
            await said(store, await add_group(store, ann), ann, "short")
        changed = await store.overviews.changed(ann, "phone", None, 2)
        assert (len(changed.positions), changed.complete) == (2, False)


# Unread


async def test_reading_on_one_device_clears_the_others(engine: Engine) -> None:
    """Unread is the person's: what one device has read is unread on none, and their cursors stay."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        heard = hearing(store)
        await said(store, chat, ann, "1", "2", "3")
        _, token = await listed(store, ben, None)
        store.cursors.note_acked(ben, "phone", chat, 3, store.clock())
        store.cursors.note_read(ben, chat, 2, store.clock())
        await store.cursors.flush()
        for device, acked in (("phone", 3), ("tablet", 0)):
            changed = await store.overviews.changed(ben, device, token, 10)
            assert [(at.unread, at.last_acked_sequence) for at in changed.positions] == [(1, acked)]
        assert (ben, ReceiptKind.READ, 2) in rises(heard)


async def test_voids_and_changes_are_not_unread(engine: Engine) -> None:
    """Only what others have said counts."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ann, "1")
        store.abandon(chat, 2, 0)
        store.clock.advance(60_000)
        await store.reopen()
        await store.log.seal()
        await stored(store, rename(chat, ann, "new"))
        await said(store, chat, ann, "2")
        assert (await position_of(store, ben, chat)).unread == 2


@pytest.mark.parametrize("read_up_to", [0, 3, 6])
async def test_unread_after_coming_back(engine: Engine, read_up_to: int) -> None:
    """Who left and joined again has read what they had read; the rest is unread, also what they missed."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ann, "1", "2", "3")
        await stored(store, change(chat, ben, Action.LEFT, ben))
        await said(store, chat, ann, "5")
        await stored(store, change(chat, ann, Action.JOINED, ben))
        await said(store, chat, ann, "7")
        store.cursors.note_read(ben, chat, read_up_to, store.clock())
        await store.cursors.flush()
        expected = sum(sequence > read_up_to for sequence in (1, 2, 3, 5, 7))
        assert (await position_of(store, ben, chat)).unread == expected


async def test_own_messages_are_never_unread(engine: Engine) -> None:
    """However many somebody writes without reading, only what others said counts."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ben, "unread")
        await store.log.append([message(chat, ann) for _ in range(1_100)])
        at = await position_of(store, ann, chat)
        assert (at.unread, at.unread_more) == (1, False)
        assert await unread_of(store, ben, chat) == (999, True)


async def test_unread_says_when_it_did_not_look_at_everything(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last positions are looked at: while older ones are unread it says so, else it is exact."""
    for module in (overview, compared_overviews, cursors):
        monkeypatch.setattr(module, "UNREAD_LOOKED_AT_MAX", 5)
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await store.log.append([message(chat, who) for who in [ben, ben, ben, ann, ann, ben, ann, ann]])
        told = {}
        for read_up_to in (0, 2, 3, 6):
            store.cursors.note_read(ann, chat, read_up_to, store.clock())
            await store.cursors.flush()
            told[read_up_to] = await unread_of(store, ann, chat)
        assert told == {0: (1, True), 2: (1, True), 3: (1, False), 6: (0, False)}


async def unread_of(store: OpenStore, user_id: str, chat: str) -> tuple[int, bool]:
    at = await position_of(store, user_id, chat)
    return at.unread, at.unread_more
