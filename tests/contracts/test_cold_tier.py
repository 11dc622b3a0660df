"""The `Entries` port: what is archived is let go, and its numbers are never used again."""

import asyncio
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from parley.checks.recovery import recover
from parley.errors import EntriesTrimmed
from parley.model import Appended
from parley.store.dynamodb import scans
from parley.store.ports import Entries, Replaced
from parley.store.rows import EVERYTHING, ArchiveMark, ChatRetention
from tests.contracts.acting import (
    add_group,
    add_people,
    contents,
    decode_entry,
    entries_of,
    head_of,
    message,
    new_id,
    outcome,
    position_of,
    resolved,
    said,
    stored,
)
from tests.contracts.engines import Engine, OpenStore, SqliteEngine

ENTRIES = 6


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


def tier_of(store: OpenStore) -> Entries:
    tier = store.engine.entries
    assert tier is not None
    return tier


async def archived(store: OpenStore, chat_id: str, through: int, version: int = 1) -> None:
    """Say that entries are archived, as an archiver does when they are."""
    mark = ArchiveMark(archived_through=through, version=version, manifest=f"digest {version}")
    assert await tier_of(store).record(chat_id, mark)


async def trimmed(store: OpenStore, through: int, entries: int = ENTRIES) -> tuple[str, str, str]:
    """Ann and Ben, and their group, of whose entries the first ones were trimmed."""
    ann, ben = await add_people(store, "ann", "ben")
    chat = await add_group(store, ann, ben)
    await said(store, chat, ann, *(f"{number}" for number in range(1, entries + 1)))
    await archived(store, chat, through)
    await tier_of(store).trim(chat, through)
    return ann, ben, chat


async def test_a_new_chat_is_not_archived(engine: Engine) -> None:
    """Its mark is empty; a chat that does not exist has none."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        assert await tier_of(store).marks([chat, "chat_nowhere"]) == {chat: ArchiveMark()}


async def test_a_mark_survives_a_restart(engine: Engine) -> None:
    """Durable, with the number and the digest of its manifest."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await archived(store, chat, 4)
        await store.reopen()
        mark = ArchiveMark(archived_through=4, version=1, manifest="digest 1")
        assert await tier_of(store).marks([chat]) == {chat: mark}


async def test_of_two_archivers_one_records(engine: Engine) -> None:
    """A mark is replaced only by the version that follows it."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await archived(store, chat, 4)
        for version in (1, 3):
            late = ArchiveMark(archived_through=9, version=version, manifest="another")
            assert not await tier_of(store).record(chat, late)
        assert (await tier_of(store).marks([chat]))[chat].manifest == "digest 1"
        await archived(store, chat, 5, 2)


async def test_what_is_trimmed_is_not_read(engine: Engine) -> None:
    """A page below the border is refused, never empty or short; above it everything is as before."""
    async with engine.opened() as store:
        _, _, chat = await trimmed(store, 4)
        for after in (0, 3):
            with pytest.raises(EntriesTrimmed) as refused:
                await store.log.read(chat, after, 10)
            assert refused.value.places == ((chat, after + 1),)
        for before in (2, 5):
            with pytest.raises(EntriesTrimmed) as refused:
                await store.log.read_before(chat, before, 10)
            assert refused.value.places == ((chat, before - 1),)
        assert contents(entries_of(await store.log.read(chat, 4, 10))) == ["5", "6"]
        assert resolved(await store.log.read_before(chat, 7, 2)) == [5, 6]
        assert await head_of(store, chat) == ENTRIES


async def test_nothing_is_trimmed_that_is_not_archived(engine: Engine) -> None:
    """The engine does not let go of what the mark does not name."""
    async with engine.opened() as store:
        _, _, chat = await trimmed(store, 3)
        await tier_of(store).trim(chat, 5)
        assert (await tier_of(store).marks([chat]))[chat].trimmed_through == 3
        assert contents(entries_of(await store.log.read(chat, 3, 10))) == ["4", "5", "6"]


async def test_a_trim_may_be_repeated(engine: Engine) -> None:
    """The same again, or less, changes nothing."""
    async with engine.opened() as store:
        _, _, chat = await trimmed(store, 4)
        before = (await tier_of(store).marks([chat]))[chat]
        for through in (4, 2):
            await tier_of(store).trim(chat, through)
        assert (await tier_of(store).marks([chat]))[chat] == before
        assert not before.is_trimming


async def test_a_chat_goes_on_after_it_was_trimmed(engine: Engine) -> None:
    """Also when all of it was, and after a restart: numbers go on, and none is given again."""
    async with engine.opened() as store:
        ann, _, chat = await trimmed(store, ENTRIES)
        assert await head_of(store, chat) == ENTRIES
        assert (await stored(store, message(chat, ann, "next"))).sequence == ENTRIES + 1
        await store.reopen()
        assert (await stored(store, message(chat, ann, "after"))).sequence == ENTRIES + 2
        assert contents(entries_of(await store.log.read(chat, ENTRIES, 10))) == ["next", "after"]
        assert store.breaches() == []


async def test_a_lost_counter_of_a_trimmed_chat_is_recovered(engine: Engine) -> None:
    """The trim mark counts: a chat whose entries are all archived gets its true head back."""
    async with engine.opened() as store:
        ann, _, chat = await trimmed(store, ENTRIES)
        store.set_counter(chat, None)
        async with store.operator() as operator:
            found = await recover(operator, chat, apply=True, seal_holes=True)
        assert (found.counter, found.voids) == (ENTRIES, [])
        assert (await stored(store, message(chat, ann, "next"))).sequence == ENTRIES + 1


async def test_a_retry_is_answered_after_its_entry_was_trimmed(engine: Engine) -> None:
    """The same position and id, whatever was archived: nothing is stored twice."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        key = new_id()
        first = await stored(store, message(chat, ann, "once", key))
        await said(store, chat, ann, "2", "3")
        await archived(store, chat, 2)
        await tier_of(store).trim(chat, 2)
        await store.reopen()
        assert await outcome(store, message(chat, ann, "once", key)) == replace(first, deduplicated=True)
        assert await head_of(store, chat) == 3
        other = await outcome(store, message(chat, ben, "once", key))
        assert not isinstance(other, Appended)


async def test_a_batch_of_new_messages_and_a_retry_of_a_trimmed_one(engine: Engine) -> None:
    """A retry among new messages is answered, and the others are stored in their order."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        key = new_id()
        first = await stored(store, message(chat, ann, "once", key))
        await said(store, chat, ann, "2")
        await archived(store, chat, 1)
        await tier_of(store).trim(chat, 1)
        drafts = [message(chat, ann, "3"), message(chat, ann, "once", key), message(chat, ann, "4")]
        outcomes = (await store.log.append(drafts)).outcomes
        assert outcomes[1] == replace(first, deduplicated=True)
        assert contents(entries_of(await store.log.read(chat, 1, 10))) == ["2", "3", "4"]


async def test_a_predecessor_that_was_trimmed_counts(engine: Engine) -> None:
    """A message that names an archived one as its predecessor is in turn."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        key = new_id()
        await stored(store, message(chat, ann, "first", key))
        await said(store, chat, ann, "2")
        await archived(store, chat, 1)
        await tier_of(store).trim(chat, 1)
        await store.reopen()
        assert (await stored(store, message(chat, ann, "3", after=key))).sequence == 3


async def test_what_became_of_a_trimmed_message_is_known(engine: Engine) -> None:
    """Its id leads to its position, or says where to look in the cold tier."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        key = new_id()
        draft = message(chat, ann, "once", key)
        first = await stored(store, draft)
        await said(store, chat, ann, "2")
        await archived(store, chat, 1)
        await tier_of(store).trim(chat, 1)
        assert draft.client_key is not None
        with pytest.raises(EntriesTrimmed) as refused:
            await store.log.find_key(chat, draft.client_key)
        assert refused.value.places == ((chat, 1),)
        for named in ([chat], None):
            assert await found_at(store, first.message_id, named) == (chat, 1)
        assert await store.log.find_message(first.message_id, ["chat_nowhere"]) is None


async def found_at(store: OpenStore, message_id: str, chat_ids: list[str] | None) -> object:
    """Where a message is, by the engine, or where the engine says to look."""
    try:
        return await store.log.find_message(message_id, chat_ids)
    except EntriesTrimmed as trimmed_there:
        return trimmed_there.places[0]


async def test_a_check_finds_nothing_wrong_with_a_trimmed_log(engine: Engine) -> None:
    """Positions, keys and counters of a trimmed chat are sound."""
    async with engine.opened() as store:
        _, ben, chat = await trimmed(store, 4)
        store.cursors.note_acked(ben, "phone", chat, 3, store.clock())
        store.cursors.note_read(ben, chat, 2, store.clock())
        await store.cursors.flush()
        assert store.breaches() == []
        assert (await position_of(store, ben, chat)).head == ENTRIES


async def test_a_queue_holds_its_chat(engine: Engine) -> None:
    """What a recipient is still owed is needed; a finished queue needs nothing."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1", "2", "3")
        assert await tier_of(store).needed_from(chat) == EVERYTHING
        (queue,) = await store.deliveries.queues.extend(chat, ["webhook_1"], 2, 3)
        await store.deliveries.queues.extend("chat_other", ["webhook_1"], 1, 3)
        assert await tier_of(store).needed_from(chat) == 2
        assert await store.deliveries.queues.finish(replace(queue, target=3))
        assert await tier_of(store).needed_from(chat) == EVERYTHING


async def test_a_late_writer_does_not_write_below_the_mark(tmp_path: Path) -> None:
    """A number that was sealed, archived and trimmed while its writer slept is not written by it."""
    holding, released = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        holding.set()
        await released.wait()

    held = False

    def hold(label: str) -> object:
        nonlocal held
        if label != "after_allocate" or held:
            return None
        held = True
        return wait()

    async with SqliteEngine("two_phase", tmp_path).opened(fault_point=hold) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        late = asyncio.create_task(stored(store, message(chat, ann, "late")))
        await holding.wait()
        store.clock.advance(10_000)
        await store.log.seal()
        assert (await stored(store, message(chat, ann, "2"))).sequence == 2
        assert (await stored(store, message(chat, ann, "3"))).sequence == 3
        await archived(store, chat, 2)
        await tier_of(store).trim(chat, 2)
        released.set()
        assert (await late).sequence == 4
        assert contents(entries_of(await store.log.read(chat, 2, 10))) == ["3", "late"]
        assert store.breaches() == []


async def test_a_late_sealer_does_not_seal_below_the_mark(tmp_path: Path) -> None:
    """An open number below the mark is closed, and no void is written there."""
    async with SqliteEngine("two_phase", tmp_path).opened() as store:
        await trimmed(store, 4)
        store.foreign(
            "INSERT INTO open_allocations (chat_no, sequence, allocated_at_ms)"
            " SELECT chat_no, 2, 0 FROM chats"
        )
        store.clock.advance(10_000)
        await store.log.seal()
        assert store.foreign("SELECT count(*) FROM entries WHERE sequence <= 4") == [(0,)]
        assert store.foreign("SELECT count(*) FROM open_allocations") == [(0,)]


async def test_the_slowest_consumer_of_the_feed_holds_its_chat(tmp_path: Path) -> None:
    """A group that has not done an entry still needs it."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1", "2", "3")
        store.foreign("INSERT INTO consumer_offsets VALUES ('fast', 3), ('slow', 1)")
        assert await tier_of(store).needed_from(chat) == 2


async def test_a_body_is_replaced(engine: Engine) -> None:
    """A replaced entry reads as what it was replaced by; its neighbours and its number stay."""
    async with engine.opened() as store:
        ann, ben, chat = await trimmed(store, 2)
        drafts = [message(chat, ann, f"secret {number}") for number in range(3)]
        await store.log.append(drafts)
        page = await store.log.read(chat, ENTRIES, 10)
        old = decode_entry(page.entries[1])
        new = replace(old, content="", deleted=True)

        unread = (await position_of(store, ben, chat)).unread
        wanted = {at: Replaced(after=json.encode(new)) for at in (1, old.sequence)}
        for _ in range(2):
            assert await tier_of(store).replace(chat, wanted) == [old.sequence]
        found = entries_of(await store.log.read(chat, ENTRIES, 10))
        assert contents(found) == ["secret 0", "", "secret 2"]
        assert found[1] == new
        assert (await position_of(store, ben, chat)).unread == unread - 1
        assert store.breaches() == []


async def test_what_was_removed_is_in_no_file(tmp_path: Path) -> None:
    """After a scrub neither the database nor its write-ahead log holds a removed body."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        ann, _, chat = await trimmed(store, 2)
        filler = "x" * 900
        await said(store, chat, ann, *(f"hidden-{number:04} {filler}" for number in range(200)))

        entries = [
            decode_entry(wire)
            for after in (ENTRIES, ENTRIES + 100)
            for wire in (await store.log.read(chat, after, 100)).entries
        ]
        gone = {
            one.sequence: Replaced(after=json.encode(replace(one, content="", deleted=True)))
            for one in entries[:150]
        }
        await tier_of(store).replace(chat, gone)
        await tier_of(store).scrub()
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("parley.db"))
        assert [number for number in range(200) if f"hidden-{number:04}".encode() in raw] == [
            *range(150, 200)
        ]
        assert (await stored(store, message(chat, ann, "next"))).sequence == ENTRIES + 201


async def test_retention_of_a_chat(engine: Engine) -> None:
    """What an operator decides for a chat is kept; a chat without a decision has none."""
    async with engine.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        assert await store.kinds.retentions.of([chat]) == {chat: ChatRetention()}
        for retention in (ChatRetention(days=90, is_held=True), ChatRetention(days=0), ChatRetention()):
            await store.kinds.retentions.decide(chat, retention)
            await store.reopen()
            assert await store.kinds.retentions.of([chat]) == {chat: retention}
