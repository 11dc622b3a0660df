"""`Log.append`: order, density, and one bad draft that never fails its neighbours."""

import asyncio

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from parley.model import Action, Appended, Role
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    code_of,
    contents,
    entries_of,
    head_of,
    message,
    new_id,
    outcome,
    place,
    places,
    position_of,
    read_all,
    resolved,
    said,
    sequences,
    stored,
    told,
)
from tests.contracts.engines import Engine

ODD_TEXTS = [
    "",
    "\0",
    "before\0after",
    "\0" * 100,
    "\x01\x02\x1f\x7f",
    "\ud7ff\ue000\uffff\U00010000\U0010ffff",
    "line\r\nbreaks\u2028\u2029",
    "\"quotes\" 'and' \\backslashes\\ \\u0000",
    "👩‍👩‍👧‍👦 e\u0301 \u202eright to left",
    "{}[]null",
    "%s %(x)s ? ?1 :a ; -- DROP TABLE entries",
]


async def test_a_batch_is_in_the_log_in_its_own_order(engine: Engine) -> None:
    """Drafts of one batch take successive positions in the order they came."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        result = await store.log.append([message(chat, ann, f"{n}") for n in range(10)])
        assert [one.sequence for one in result.outcomes if isinstance(one, Appended)] == list(range(1, 11))
        assert contents(await read_all(store, chat)) == [f"{n}" for n in range(10)]


async def test_mentions_come_back_in_the_entry(engine: Engine) -> None:
    """Whom a message mentions is stored with it, alone and among others; who mentions nobody has none."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        both = replace(message(chat, ann, "both"), mentions=(ben, ann))
        await store.log.append([both])
        await store.log.append([message(chat, ann, "none"), replace(message(chat, ann), mentions=(ben,))])
        assert [entry.mentions for entry in await read_all(store, chat)] == [[ben, ann], UNSET, [ben]]


async def test_each_chat_counts_for_itself(engine: Engine) -> None:
    """A batch over several chats gives each of them its own dense positions."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        one, two = await add_group(store, ann), await add_group(store, ann)
        await store.log.append([message(chat, ann) for chat in (one, two, one, two, two)])
        assert sequences(await read_all(store, one)) == [1, 2]
        assert sequences(await read_all(store, two)) == [1, 2, 3]


async def test_concurrent_batches_get_distinct_dense_positions(engine: Engine) -> None:
    """A hundred writers at once get a hundred different positions without a hole."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        places = await asyncio.gather(*(stored(store, message(chat, ann)) for _ in range(100)))
        page = await store.log.read(chat, 0, 1000)
        assert resolved(page) == list(range(1, page.head + 1))
        assert sorted(place.sequence for place in places) == sequences(entries_of(page))
        assert len(page.entries) == 100


async def test_what_is_returned_is_what_is_read(engine: Engine) -> None:
    """The answer to an append names exactly the entry that readers find."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "hello")
        draft.display_time, draft.content_type = "2026-01-01T10:00:00Z", "text/markdown"
        place = await stored(store, draft)
        (entry,) = await read_all(store, chat)
        assert (entry.sequence, entry.epoch, entry.message_id) == (
            place.sequence,
            place.epoch,
            place.message_id,
        )
        assert entry.created_at == entry.server_timestamp == place.created_at
        assert (entry.kind, entry.sender_id, entry.content) == ("message", ann, "hello")
        assert (entry.client_message_id, entry.content_type) == (draft.client_message_id, "text/markdown")
        assert entry.display_time == "2026-01-01T10:00:00Z"


async def test_the_news_is_what_the_commit_added(engine: Engine) -> None:
    """`persisted` holds the new positions of each chat, ascending, as they travel."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        one, two = await add_group(store, ann), await add_group(store, ann)
        await said(store, one, ann, "before")
        result = await store.log.append([message(one, ann), message(two, ann), message(one, ann)])
        news = {item.chat_id: item for item in result.persisted}
        assert [at.sequence for at in news[one].positions] == [2, 3]
        assert [at.wire for at in news[two].positions] == (await store.log.read(two, 0, 10)).entries


async def test_a_retry_is_no_news(engine: Engine) -> None:
    """A batch that adds nothing publishes nothing."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann)
        await stored(store, draft)
        assert (await store.log.append([draft])).persisted == []


async def test_message_ids_ascend_even_when_the_clock_steps_back(engine: Engine) -> None:
    """A later message never has a smaller id, whatever the clock does."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        first = await stored(store, message(chat, ann))
        store.clock.set(store.clock() - 3_600_000)
        second = await stored(store, message(chat, ann))
        assert second.message_id > first.message_id


async def test_one_bad_draft_never_fails_its_neighbours(engine: Engine) -> None:
    """Strangers, retries, taken ids and unmet predecessors each get their own outcome in one batch."""
    async with engine.opened() as store:
        ann, ben, eve = await add_people(store, "ann", "ben", "eve")
        chat = await add_group(store, ann, ben)
        old = message(chat, ann, "old")
        await stored(store, old)
        taken = message(chat, ben, "taken", old.client_message_id or "")
        batch = [
            message(chat, ann, "first"),
            message(chat, eve, "stranger"),
            old,
            taken,
            message("chat_unknown", ann, "nowhere"),
            message(chat, ann, "too early", after=new_id()),
            change(chat, ben, Action.REMOVED, ann),
            message(chat, ben, "last"),
        ]
        result = await store.log.append(batch)
        assert [told(one) for one in result.outcomes] == [
            "stored",
            "not_a_member",
            "deduplicated",
            "duplicate_id",
            "not_a_member",
            "out_of_turn",
            "forbidden",
            "stored",
        ]
        assert contents(await read_all(store, chat)) == ["old", "first", "last"]
        found = await places(store, chat)
        told_places = [place(one) for one in result.outcomes if isinstance(one, Appended)]
        assert told_places == [found["first"], found["old"], found["last"]]


async def test_the_log_is_dense_whatever_was_refused(engine: Engine) -> None:
    """Every number up to the head is an entry or a void, and the counter is the head."""
    async with engine.opened() as store:
        ann, eve = await add_people(store, "ann", "eve")
        chat = await add_group(store, ann)
        for _ in range(3):
            await store.log.append(
                [message(chat, eve), message(chat, ann, after=new_id()), message(chat, ann)]
            )
        page = await store.log.read(chat, 0, 1000)
        assert resolved(page) == list(range(1, page.head + 1))
        assert page.head == await head_of(store, chat) == store.counter(chat)
        assert len(page.entries) == 3


async def test_atomic_sequencing_leaves_no_voids(engine: Engine) -> None:
    """Where head and entries move in one transaction, refused drafts take no number."""
    async with engine.opened() as store:
        if engine.sequencing != "atomic":
            pytest.skip("two_phase takes a number first, and voids it")
        ann, eve = await add_people(store, "ann", "eve")
        chat = await add_group(store, ann)
        await store.log.append([message(chat, eve), message(chat, ann, after=new_id()), message(chat, ann)])
        assert ((await store.log.read(chat, 0, 10)).voids, await head_of(store, chat)) == ([], 1)


async def test_a_predecessor_may_be_earlier_in_the_same_batch(engine: Engine) -> None:
    """A pipelined pair in one batch is stored in its order."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        first = message(chat, ann, "first")
        second = message(chat, ann, "second", after=first.client_message_id or "")
        result = await store.log.append([first, second])
        assert [told(one) for one in result.outcomes] == ["stored", "stored"]


async def test_a_predecessor_may_be_stored_long_before(engine: Engine) -> None:
    """A predecessor counts once it is stored, also after a restart and behind other messages."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        first = message(chat, ann, "first")
        await stored(store, first)
        await said(store, chat, ann, "between")
        await store.reopen()
        assert (
            await stored(store, message(chat, ann, "second", after=first.client_message_id or ""))
        ).sequence == 3


async def test_a_later_draft_is_out_of_turn_before_its_predecessor(engine: Engine) -> None:
    """A draft that overtook its predecessor is refused as temporary, and stored when sent again in order."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        first = message(chat, ann, "first")
        second = message(chat, ann, "second", after=first.client_message_id or "")
        refused = await outcome(store, second)
        assert (told(refused), getattr(refused, "temporary", None)) == ("out_of_turn", True)
        await stored(store, first)
        await stored(store, second)
        assert contents(await read_all(store, chat)) == ["first", "second"]


async def test_another_persons_message_is_no_predecessor(engine: Engine) -> None:
    """Only an own message counts as the predecessor, stored or in the same batch."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        first = message(chat, ben, "his")
        second = message(chat, ann, "hers", after=first.client_message_id or "")
        result = await store.log.append([first, second])
        assert [told(one) for one in result.outcomes] == ["stored", "out_of_turn"]
        assert await code_of(store, second) == "out_of_turn"


async def test_a_message_of_another_chat_is_no_predecessor(engine: Engine) -> None:
    """A predecessor is looked for in the same chat alone."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        one, two = await add_group(store, ann), await add_group(store, ann)
        first = message(one, ann)
        await stored(store, first)
        assert await code_of(store, message(two, ann, after=first.client_message_id or "")) == "out_of_turn"


async def test_the_successor_of_a_refused_draft_is_out_of_turn(engine: Engine) -> None:
    """A chain breaks where its first link was refused, all in one batch."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        first = message(chat, ann, after=new_id())
        second = message(chat, ann, after=first.client_message_id or "")
        third = message(chat, ann, after=second.client_message_id or "")
        result = await store.log.append([first, second, third])
        assert [told(one) for one in result.outcomes] == ["out_of_turn"] * 3


@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
async def test_every_text_survives(engine: Engine, text: str) -> None:
    """Content is stored and found again letter by letter, whatever the letters are."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann, text)
        await stored(store, draft)
        await store.reopen()
        assert contents(await read_all(store, chat)) == [text]
        retried = await stored(store, draft)
        assert (retried.deduplicated, retried.conflict) == (True, False)


@pytest.mark.parametrize("text", ["x" * 65_536, "\0" * 65_536, "€" * 21_845, "\U0001f600" * 16_384])
async def test_the_largest_message_survives(engine: Engine, text: str) -> None:
    """64 KiB of content are stored and read whole."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await stored(store, message(chat, ann, text))
        await store.reopen()
        assert contents(await read_all(store, chat)) == [text]


async def test_what_was_appended_survives_a_reopening(engine: Engine) -> None:
    """Entries, keys, heads and members are the same after the store was closed and opened."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann)
        draft = message(chat, ann, "kept")
        await store.log.append([draft, change(chat, ann, Action.JOINED, ben, Role.ADMIN)])
        before = await store.log.read(chat, 0, 10)
        await store.reopen()
        assert await store.log.read(chat, 0, 10) == before
        assert await store.directory.role(chat, ben) is Role.ADMIN
        assert told(await outcome(store, draft)) == "deduplicated"
        assert (await position_of(store, ben, chat)).head == before.head
