"""`Log.read`, `read_before`, `heads`: contiguous, resolved, bounded."""

import asyncio

import pytest

from parley.model import Head
from parley.wire.limits import PAGE_BYTES_MAX
from tests.contracts.acting import (
    add_group,
    add_people,
    contents,
    entries_of,
    head_of,
    message,
    read_all,
    resolved,
    said,
    sequences,
    stored,
)
from tests.contracts.engines import Engine, OpenStore

LARGE = 60_000


async def test_a_page_starts_after_a_position(engine: Engine) -> None:
    """Reading after n gives n + 1 and on, says where it ends and where the log does."""
    async with engine.opened() as store:
        chat = await filled(store, 5)
        page = await store.log.read(chat, 2, 2)
        assert sequences(entries_of(page)) == [3, 4]
        assert (page.from_sequence, page.to_sequence, page.head, page.complete) == (3, 4, 5, False)


async def test_pages_follow_each_other_to_the_end(engine: Engine) -> None:
    """Starting each page where the last one ended visits every position once, then says complete."""
    async with engine.opened() as store:
        chat = await filled(store, 7)
        after, seen = 0, []
        while True:
            page = await store.log.read(chat, after, 3)
            seen += sequences(entries_of(page))
            after = page.to_sequence
            if page.complete:
                break
        assert seen == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("after", [3, 4, 10**15])
async def test_reading_at_or_beyond_the_head_gives_nothing(engine: Engine, after: int) -> None:
    """A page after the head is empty and complete."""
    async with engine.opened() as store:
        chat = await filled(store, 3)
        page = await store.log.read(chat, after, 10)
        assert (page.entries, page.voids, page.to_sequence, page.head) == ([], [], after, 3)
        assert page.complete


async def test_an_empty_chat_reads_as_empty(engine: Engine) -> None:
    """A chat without messages has head 0 and a complete, empty page in both directions."""
    async with engine.opened() as store:
        chat = await filled(store, 0)
        for page in (await store.log.read(chat, 0, 10), await store.log.read_before(chat, 10, 10)):
            assert (page.entries, page.from_sequence, page.to_sequence, page.head) == ([], 1, 0, 0)
            assert page.complete


async def test_a_page_is_bounded_in_bytes(engine: Engine) -> None:
    """Large entries make a page shorter, never empty, and nothing is left out."""
    async with engine.opened() as store:
        chat = await filled(store, 40, "x" * LARGE)
        after, seen, pages = 0, [], 0
        while after < 40:
            page = await store.log.read(chat, after, 1000)
            assert 0 < sum(map(len, page.entries)) <= PAGE_BYTES_MAX
            assert resolved(page) == list(range(page.from_sequence, page.to_sequence + 1))
            seen += sequences(entries_of(page))
            after, pages = page.to_sequence, pages + 1
        assert (seen, pages > 1) == (list(range(1, 41)), True)


async def test_one_entry_larger_than_a_page_is_still_given(engine: Engine) -> None:
    """There is at least one entry in a page if there is one in the log."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "\0" * (PAGE_BYTES_MAX // 6), "small")
        page = await store.log.read(chat, 0, 1000)
        assert len(page.entries[0]) > PAGE_BYTES_MAX
        assert (sequences(entries_of(page)), page.complete) == ([1], False)


async def test_history_goes_back_from_a_position(engine: Engine) -> None:
    """Reading before n gives the last positions below it, ascending."""
    async with engine.opened() as store:
        chat = await filled(store, 9)
        page = await store.log.read_before(chat, 6, 3)
        assert sequences(entries_of(page)) == [3, 4, 5]
        assert (page.from_sequence, page.to_sequence, page.head) == (3, 5, 9)


async def test_history_is_contiguous_to_the_beginning(engine: Engine) -> None:
    """Starting each page before the last one visits every position once."""
    async with engine.opened() as store:
        chat = await filled(store, 8)
        before, seen = 10**12, list[int]()
        while before > 1:
            page = await store.log.read_before(chat, before, 3)
            seen = sequences(entries_of(page)) + seen
            before = page.from_sequence
        assert seen == list(range(1, 9))


async def test_history_of_large_entries_leaves_nothing_out(engine: Engine) -> None:
    """A page that is cut by its bytes still ends right below the position that was asked for."""
    async with engine.opened() as store:
        chat = await filled(store, 40, "x" * LARGE)
        before, seen = 41, list[int]()
        while before > 1:
            page = await store.log.read_before(chat, before, 1000)
            assert page.to_sequence == before - 1
            seen = sequences(entries_of(page)) + seen
            before = page.from_sequence
        assert seen == list(range(1, 41))


@pytest.mark.parametrize("before", [0, 1])
async def test_nothing_is_before_the_beginning(engine: Engine, before: int) -> None:
    """History before the first position is an empty page whose range is empty too."""
    async with engine.opened() as store:
        chat = await filled(store, 3)
        page = await store.log.read_before(chat, before, 10)
        assert (page.entries, page.voids, page.from_sequence, page.to_sequence) == ([], [], 1, 0)


async def test_heads_are_those_of_the_chats_that_exist(engine: Engine) -> None:
    """Many heads come at once; chats that do not exist are left out."""
    async with engine.opened() as store:
        one, two = await filled(store, 2), await filled(store, 0, person="ben")
        heads = await store.log.heads([one, "chat_unknown", two])
        assert heads == {one: Head(1, 2), two: Head(1, 0)}


async def test_an_acknowledged_message_is_visible_to_every_reader(engine: Engine) -> None:
    """After an append has returned, page, head, key and message id all show it, also under concurrency."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)

        async def send_and_look(number: int) -> None:
            draft = message(chat, ann, f"{number}")
            place = await stored(store, draft)
            assert await head_of(store, chat) >= place.sequence or engine.sequencing == "two_phase"
            assert await store.log.find_message(place.message_id, [chat]) == (chat, place.sequence)
            assert await store.log.find_key(chat, draft.client_key or b"")

        await asyncio.gather(*map(send_and_look, range(50)))
        assert sorted(contents(await read_all(store, chat))) == sorted(f"{n}" for n in range(50))


async def test_reads_during_writes_see_only_whole_prefixes(engine: Engine) -> None:
    """While batches commit, each page is contiguous from its start to its end and never beyond the head."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        done = asyncio.Event()

        async def write() -> None:
            for _ in range(30):
                await store.log.append([message(chat, ann) for _ in range(5)])
            done.set()

        async def read() -> None:
            after = 0
            while not (done.is_set() and after >= 150):
                page = await store.log.read(chat, after, 7)
                assert resolved(page) == list(range(after + 1, page.to_sequence + 1))
                assert page.to_sequence <= page.head
                after = page.to_sequence
                await asyncio.sleep(0)

        await asyncio.gather(write(), read(), read())


async def filled(store: OpenStore, messages: int, content: str = "hi", person: str = "ann") -> str:
    """A chat with so many messages."""
    (sender,) = await add_people(store, person)
    chat = await add_group(store, sender)
    if messages:
        await store.log.append([message(chat, sender, content) for _ in range(messages)])
    return chat
