"""The hashes of a log, on every engine: what is stored, what a page gets, and what a check finds.

Every hash is compared with a replay of the log by a second implementation (tests/harness/log_replay.py).
"""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from parley.chats.log_hasher import HASHED_PER_PAGE_MAX, SLICE_ENTRIES, STORED_EVERY, LogHasher
from parley.checks.check import check, stored_hashes
from parley.core import log_hash
from parley.core.log_hash import LogHash
from parley.model import Action, Persisted, StoredEntry
from parley.records.log_hashes import LogHashes
from parley.store.dynamodb import scans
from parley.store.dynamodb.bundles import put_entries, unbundled
from parley.store.dynamodb.entries import entry_in
from parley.wire.frames import Entry
from tests.contracts.acting import add_group, add_people, change, message, read_all, rename, said, stored
from tests.contracts.engines import Engine, OpenStore
from tests.harness.log_replay import replayed_log
from tests.wire_vectors.examples import ENTRY


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


def at_once(store: OpenStore) -> LogHashes:
    """The hashes of a store; the end of a log is stored without a rest."""
    hashes = store.kinds.log_hashes
    hashes.tail_seconds = 0.0
    return hashes


def make_hasher(store: OpenStore) -> LogHasher:
    return LogHasher(store.log, at_once(store), store.metrics)


async def followed(store: OpenStore, chat_id: str) -> LogHasher:
    """A hasher whose job has followed this chat to its end."""
    hasher = make_hasher(store)
    await follow(hasher, store, chat_id)
    return hasher


async def follow(hasher: LogHasher, store: OpenStore, chat_id: str) -> None:
    head = (await store.log.heads([chat_id]))[chat_id]
    hasher.persisted([Persisted(chat_id, head.epoch, [StoredEntry(head.sequence, None)])])
    await hasher.follow_news()


async def hashes_of_pages(hasher: LogHasher, store: OpenStore, chat_id: str, limit: int) -> dict[int, bytes]:
    """The hash of each page of a log, read from its start, by where the page ends."""
    found, after = {}, 0
    while True:
        page = await store.log.read(chat_id, after, limit)
        value = await hasher.hash_of(page)
        if value is not None:
            found[page.to_sequence] = value
        if page.complete:
            return found
        after = page.to_sequence


async def full_group(store: OpenStore, entries: int) -> tuple[str, str]:
    """A person and their group with so many messages, in few batches."""
    (ann,) = await add_people(store, "ann")
    chat = await add_group(store, ann)
    left = entries
    while left:
        size = min(left, 40)
        await store.log.append([message(chat, ann, f"{left - n}") for n in range(size)])
        left -= size
    return ann, chat


async def invariants_broken(store: OpenStore) -> list[tuple[str, int | None]]:
    async with store.operator() as operator:
        findings = await check(operator)
    return [(breach.invariant, breach.sequence) for breach in findings.breaches]


# The port


def at(sequence: int, epoch: int = 1) -> LogHash:
    return LogHash(epoch, sequence, sequence.to_bytes(32, "big"))


async def test_the_nearest_stored_hash_is_found(engine: Engine) -> None:
    """That at the position, or the last one before it; none if there is none."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat, other = await add_group(store, ann), await add_group(store, ann)
        await store.kinds.log_hashes.write(chat, [at(32), at(64), at(70)])
        await store.kinds.log_hashes.write(other, [at(50)])
        found = [
            await store.kinds.log_hashes.last(chat, 1, up_to) for up_to in (31, 32, 63, 64, 69, 2**53 - 1)
        ]
        assert found == [None, at(32), at(32), at(64), at(64), at(70)]
        assert await store.kinds.log_hashes.last("chat_nowhere", 1, 100) is None


async def test_epochs_are_apart(engine: Engine) -> None:
    """A log that was restored is hashed anew: what was stored of the lost one is not its own."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await store.kinds.log_hashes.write(chat, [at(32), at(64)])
        await store.kinds.log_hashes.write(chat, [at(32, epoch=2)])
        assert await store.kinds.log_hashes.last(chat, 2, 100) == at(32, epoch=2)
        assert await store.kinds.log_hashes.last(chat, 1, 100) == at(64)
        assert await store.kinds.log_hashes.last(chat, 3, 100) is None


async def test_stored_hashes_are_durable_and_may_be_written_again(engine: Engine) -> None:
    """Two nodes that follow a chat write the same."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await asyncio.gather(*[store.kinds.log_hashes.write(chat, [at(32), at(33)]) for _ in range(2)])
        await store.reopen()
        assert await store.kinds.log_hashes.last(chat, 1, 100) == at(33)


async def test_an_operator_reads_those_of_the_chats_epoch(engine: Engine) -> None:
    """In the order of their positions, over as many pages as there are."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await store.kinds.log_hashes.write(chat, [at(7), at(5), at(6, epoch=2), *map(at, range(100, 140))])
        async with store.operator() as operator:
            (row,) = [row async for page in operator.inspection.chats([chat]) for row in page]
            found = [one async for page in stored_hashes(operator.records, row) for one in page]
        assert found == [at(5), at(7), *map(at, range(100, 140))]


# What a page gets


@pytest.mark.parametrize("limit", [1, 7, 32, 1000])
async def test_every_page_has_the_hash_of_a_replay(engine: Engine, limit: int) -> None:
    """Messages, changes and voids; wherever a page ends; before the job has run, and after."""
    async with engine.opened() as store:
        ann, chat = await full_group(store, STORED_EVERY + 5)
        store.abandon(chat, STORED_EVERY + 6, store.clock())
        (ben,) = await add_people(store, "ben")
        await stored(store, change(chat, ann, Action.JOINED, ben))
        await stored(store, rename(chat, ann, "tea"))
        await said(store, chat, ben, "é 👋", "")
        expected = await replayed_log(store.log, chat)
        for hasher in (make_hasher(store), await followed(store, chat), make_hasher(store)):
            found = await hashes_of_pages(hasher, store, chat, limit)
            assert found == {end: expected[end] for end in found}
            assert len(expected) - 1 in found
            assert len(found) == -(-(len(expected) - 1) // limit)


async def test_an_empty_log_has_a_hash(engine: Engine) -> None:
    """A client that holds nothing can compare, too."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        page = await store.log.read(chat, 0, 10)
        assert await make_hasher(store).hash_of(page) == log_hash.empty_log(chat)


async def test_a_page_from_within_the_log_has_it(engine: Engine) -> None:
    """Wherever a reader starts: what lies between the nearest hash and the page is read."""
    async with engine.opened() as store:
        _, chat = await full_group(store, 2 * STORED_EVERY + 9)
        await followed(store, chat)
        expected = await replayed_log(store.log, chat)
        for after in range(0, 2 * STORED_EVERY + 10, 5):
            page = await store.log.read(chat, after, 3)
            assert await make_hasher(store).hash_of(page) == expected[page.to_sequence], after


async def test_a_page_after_a_long_unknown_stretch_does_without(engine: Engine) -> None:
    """An answer hashes a bounded number of positions; the job is told, and the next page has it."""
    async with engine.opened() as store:
        _, chat = await full_group(store, HASHED_PER_PAGE_MAX + 1)
        hasher = make_hasher(store)
        page = await store.log.read(chat, HASHED_PER_PAGE_MAX, 10)
        assert await hasher.hash_of(page) is None
        await hasher.follow_news()
        assert await hasher.hash_of(page) == (await replayed_log(store.log, chat))[page.to_sequence]


# The job


async def test_the_job_stores_every_span_and_the_end(engine: Engine) -> None:
    """Whatever is stored is what a replay gives; nothing is stored twice at the end."""
    async with engine.opened() as store:
        _, chat = await full_group(store, SLICE_ENTRIES + STORED_EVERY + 3)
        await followed(store, chat)
        expected = await replayed_log(store.log, chat)
        spans = [*range(STORED_EVERY, len(expected), STORED_EVERY), len(expected) - 1]
        async with store.operator() as operator:
            (row,) = [row async for page in operator.inspection.chats([chat]) for row in page]
            found = [one async for page in stored_hashes(operator.records, row) for one in page]
        assert [(one.sequence, one.value) for one in found] == [(end, expected[end]) for end in spans]


async def test_two_jobs_while_writers_race(engine: Engine) -> None:
    """Appends, a reader and two nodes' jobs at once: no hash is of anything but the log."""
    async with engine.opened() as store:
        ann, chat = await full_group(store, 20)
        (ben,) = await add_people(store, "ben")
        await stored(store, change(chat, ann, Action.JOINED, ben))
        hashers = [make_hasher(store), make_hasher(store)]

        async def write(sender: str) -> None:
            for n in range(12):
                await store.log.append([message(chat, sender, f"{n}.{m}") for m in range(4)])

        async def read(hasher: LogHasher) -> dict[int, bytes]:
            found: dict[int, bytes] = {}
            for _ in range(6):
                await follow(hasher, store, chat)
                found |= await hashes_of_pages(hasher, store, chat, 9)
            return found

        _, _, first, second = await asyncio.gather(write(ann), write(ben), *map(read, hashers))
        expected = await replayed_log(store.log, chat)
        assert len(expected) - 1 == 21 + 96
        for found in (first, second):
            assert found
            assert found == {end: expected[end] for end in found}
        assert await invariants_broken(store) == []


async def test_a_hash_ends_before_an_open_number(engine: Engine) -> None:
    """What is behind a number that may still be written is in no hash; once it is sealed, it is."""
    async with engine.opened() as store:
        ann, chat = await full_group(store, 3)
        store.abandon(chat, 4, store.clock())
        hasher = await followed(store, chat)
        assert await store.kinds.log_hashes.last(chat, 1, 2**53 - 1) is not None
        store.clock.advance(60_000)
        await store.reopen()
        await said(store, chat, ann, "five")
        hasher = make_hasher(store)
        await follow(hasher, store, chat)
        expected = await replayed_log(store.log, chat)
        page = await store.log.read(chat, 0, 10)
        assert page.voids == [4]
        assert await hasher.hash_of(page) == expected[5]
        last = await store.kinds.log_hashes.last(chat, 1, 2**53 - 1)
        assert last == LogHash(1, 5, expected[5])


async def test_what_a_crash_left_unhashed_follows(engine: Engine) -> None:
    """A node that dies before its job ran leaves nothing wrong: the next one goes on from what is stored."""
    async with engine.opened() as store:
        ann, chat = await full_group(store, STORED_EVERY + 1)
        await followed(store, chat)
        await said(store, chat, ann, "after the job")
        await store.reopen()
        hasher = await followed(store, chat)
        expected = await replayed_log(store.log, chat)
        page = await store.log.read(chat, STORED_EVERY + 1, 10)
        assert await hasher.hash_of(page) == expected[STORED_EVERY + 2]
        assert await store.kinds.log_hashes.last(chat, 1, 100) == LogHash(1, STORED_EVERY + 2, expected[-1])


# What a check finds


def altered(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, content="another text")


def backdated(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, display_time="2001-01-01T00:00:00.000Z")


@pytest.mark.parametrize("edit", [altered, backdated])
@pytest.mark.parametrize("sequence", [1, STORED_EVERY, STORED_EVERY + 3])
async def test_a_check_names_a_changed_entry(
    engine: Engine, edit: Callable[[Entry], Entry], sequence: int
) -> None:
    """Once, by the first stored hash at it or after it: in a span, at its end, and in the last one."""
    async with engine.opened() as store:
        _, chat = await full_group(store, STORED_EVERY + 4)
        await followed(store, chat)
        assert await invariants_broken(store) == []
        entries = await read_all(store, chat)
        store.rows.replace_entry(edit(entries[sequence - 1]))
        named = STORED_EVERY if sequence <= STORED_EVERY else STORED_EVERY + 4
        assert await invariants_broken(store) == [("log_hash_agreement", named)]


async def test_a_check_names_two_entries_whose_texts_were_swapped(engine: Engine) -> None:
    """Every row is sound by itself: only the hash tells."""
    async with engine.opened() as store:
        _, chat = await full_group(store, 6)
        await followed(store, chat)
        entries = await read_all(store, chat)
        for own, other in ((1, 3), (3, 1)):
            store.rows.replace_entry(msgspec.structs.replace(entries[own], content=entries[other].content))
        assert await invariants_broken(store) == [("log_hash_agreement", 6)]


async def test_a_check_accepts_a_removed_body(engine: Engine) -> None:
    """A body that was removed for good leaves its digest: hash and check stay as they were."""
    async with engine.opened() as store:
        _, chat = await full_group(store, 6)
        hasher = await followed(store, chat)
        page = await store.log.read(chat, 0, 10)
        before = await hasher.hash_of(page)
        entries = await read_all(store, chat)
        store.rows.replace_entry(log_hash.without_body(entries[3]))
        await store.reopen()
        again = await store.log.read(chat, 0, 10)
        assert b"body_digest" in again.entries[3]
        assert await make_hasher(store).hash_of(again) == before == (await replayed_log(store.log, chat))[6]
        assert await invariants_broken(store) == []


def test_a_removed_body_in_a_bundle_keeps_its_digest() -> None:
    """Whoever removes a body on DynamoDB may leave its entry among the others of its item."""
    at_one = msgspec.structs.replace(ENTRY, sequence=1, display_time=None)
    at_two = log_hash.without_body(msgspec.structs.replace(at_one, sequence=2))
    assert [entry_in(item) for item in unbundled(put_entries([at_one, at_two]).item)] == [at_one, at_two]
