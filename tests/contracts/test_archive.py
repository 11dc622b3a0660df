"""Archiving and reading across the border, on every engine: what was written is what is read."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from parley.archive.steps import ARCHIVE_LABELS
from parley.clock import MS_PER_DAY
from parley.errors import StoreDamaged, StoreUnavailable
from parley.model import Action
from parley.store.dynamodb import scans
from parley.store.rows import EVERYTHING
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    contents,
    decode_entry,
    entries_of,
    message,
    new_id,
    outcome,
    position_of,
    resolved,
    said,
    stored,
)
from tests.contracts.cold_world import ColdWorld, synced
from tests.contracts.engines import Engine, OpenStore, SqliteEngine
from tests.contracts.object_stores import OBJECT_STORES

Rows = list[tuple[int, bytes | None]]
MESSAGES = 20


@pytest.fixture(autouse=True)
def _look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks broken on DynamoDB is broken: nobody writes meanwhile."""
    monkeypatch.setattr(scans, "READ_AGAIN_SECONDS", 0.0)


async def written(store: OpenStore, messages: int = MESSAGES) -> tuple[str, str, str, Rows]:
    """Ann and Ben's group with messages, a change and a void; and its rows, as the engine has them."""
    ann, ben, eve = await add_people(store, "ann", "ben", "eve")
    chat = await add_group(store, ann, ben)
    half = messages // 2
    await store.log.append([message(chat, ann, f"message {number}") for number in range(half)])
    await stored(store, change(chat, ann, Action.JOINED, eve))
    store.abandon(chat, half + 2, store.clock())
    await store.log.append([message(chat, ben, f"message {number}") for number in range(half, messages)])
    return ann, ben, chat, await rows_in(store, chat)


async def rows_in(store: OpenStore, chat_id: str) -> Rows:
    page = await store.log.read(chat_id, 0, 1000)
    entries = {decode_entry(wire).sequence: wire for wire in page.entries}
    return [(sequence, entries.get(sequence)) for sequence in resolved(page)]


async def test_what_was_archived_reads_as_before(engine: Engine, tmp_path: Path) -> None:
    """A sync from 0 over both tiers is byte for byte what it was, in pages of any size."""
    async with engine.opened() as store:
        _, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path)
        progress = await cold.run()
        assert (progress.entries, progress.trimmed, progress.failed) == (len(rows) - 1, len(rows) - 1, {})
        assert (await cold.mark(chat)).trimmed_through == len(rows) - 1
        for limit in (1, 3, 1000):
            assert await synced(cold.log, chat, limit) == rows
        assert store.breaches() == []


async def test_archiving_again_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    """A second run finds nothing to do; after new messages it goes on where it was."""
    async with engine.opened() as store:
        ann, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        assert (await cold.run()).entries == 0
        for text in ("a", "b", "c"):
            await said(store, chat, ann, text)
            assert (await cold.run()).entries == 1
        found = await synced(cold.log, chat)
        assert (found[: len(rows)], len(found)) == (rows, len(rows) + 3)
        assert (await cold.verify()).faults == []


async def test_young_entries_stay(engine: Engine, tmp_path: Path) -> None:
    """Only what is older than `after_days` is archived, and only up to the first that is not."""
    async with engine.opened() as store:
        ann, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path, after_days=30)
        assert (await cold.run()).entries == 0
        store.clock.advance(30 * MS_PER_DAY)
        await said(store, chat, ann, "young")
        assert (await cold.run()).entries == len(rows)
        assert contents(entries_of(await store.log.read(chat, len(rows), 10))) == ["young"]


async def test_history_crosses_the_border(engine: Engine, tmp_path: Path) -> None:
    """Pages that go back are full on both sides of the border, and across it."""
    async with engine.opened() as store:
        ann, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        await said(store, chat, ann, "x", "y")
        head = len(rows) + 2
        assert resolved(await cold.log.read_before(chat, head + 1, 5)) == [*range(head - 4, head + 1)]
        assert resolved(await cold.log.read_before(chat, 6, 3)) == [3, 4, 5]
        assert resolved(await cold.log.read_before(chat, 3, 10)) == [1, 2]
        assert resolved(await cold.log.read_before(chat, 1, 10)) == []


async def test_a_page_crosses_the_border(engine: Engine, tmp_path: Path) -> None:
    """One request gets what is archived and what is not."""
    async with engine.opened() as store:
        ann, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        await said(store, chat, ann, "x")
        page = await cold.log.read(chat, len(rows) - 4, 10)
        assert resolved(page) == [*range(len(rows) - 3, len(rows) + 2)]
        assert (page.head, page.complete) == (len(rows) + 1, True)


async def test_messages_and_sends_are_found_across_the_border(engine: Engine, tmp_path: Path) -> None:
    """By their message id, by the id that the client made; and a retry is answered."""
    async with engine.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        draft = message(chat, ann, "early", new_id())
        first = await stored(store, draft)
        await said(store, chat, ann, "2", "3")
        wire = (await store.log.read(chat, 0, 1)).entries[0]
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        assert draft.client_key is not None
        assert await cold.log.find_key(chat, draft.client_key) == wire
        assert await cold.log.find_message(first.message_id, [chat]) == (chat, 1)
        assert await cold.log.find_message(first.message_id, None) == (chat, 1)
        assert await cold.log.find_message(first.message_id[:-1] + "0", [chat]) in (None, (chat, 1))
        assert await outcome(store, draft) == replace(first, deduplicated=True)


async def test_unread_messages_count_across_the_border(engine: Engine, tmp_path: Path) -> None:
    """The overview says what it said before anything was archived, last entry included."""
    async with engine.opened() as store:
        _, ben, chat, _ = await written(store)
        store.cursors.note_read(ben, chat, 2, store.clock())
        await store.cursors.flush()
        before = await position_of(store, ben, chat)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        page = await cold.overviews.changed(ben, "phone", None, 100)
        assert page.positions == [before]


async def test_a_cold_store_that_is_away(engine: Engine, tmp_path: Path) -> None:
    """What is hot is served, what is cold is refused as temporary, and nothing is silently short."""
    async with engine.opened() as store:
        ann, ben, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        await said(store, chat, ann, "hot")
        cold.objects.is_away = True
        for request in (cold.log.read(chat, 0, 10), cold.log.read_before(chat, 5, 3)):
            with pytest.raises(StoreUnavailable):
                await request
        with pytest.raises(StoreUnavailable):
            await cold.log.read(chat, len(rows) - 3, 10)
        assert resolved(await cold.log.read(chat, len(rows) - 1, 10)) == [len(rows), len(rows) + 1]
        hot = resolved(await cold.log.read_before(chat, len(rows) + 2, 10))
        assert hot[-2:] == [len(rows), len(rows) + 1]
        (shown,) = (await cold.overviews.changed(ben, "phone", None, 100)).positions
        assert (shown.unread, shown.unread_more) == (1, True)
        cold.objects.is_away = False
        assert len(await synced(cold.log, chat)) == len(rows) + 1


async def test_two_archivers_at_once(engine: Engine, tmp_path: Path) -> None:
    """Both may run: one archives each part, nothing is lost or doubled, and the archive is sound."""
    async with engine.opened() as store:
        ann, _, chat, rows = await written(store)
        worlds = [ColdWorld(store, tmp_path) for _ in range(3)]
        for text in ("a", "b"):
            await asyncio.gather(*(world.run() for world in worlds))
            await said(store, chat, ann, text)
        await asyncio.gather(*(world.run() for world in worlds))
        found = await synced(worlds[0].log, chat)
        assert (found[: len(rows)], len(found)) == (rows, len(rows) + 2)
        assert (await worlds[0].verify()).faults == []
        assert (await worlds[0].mark(chat)).trimmed_through == len(found) - 1


async def test_trimming_waits_for_consumers(engine: Engine, tmp_path: Path) -> None:
    """What a recipient is still owed stays in the engine, although it is archived."""
    async with engine.opened() as store:
        _, _, chat, rows = await written(store)
        (queue,) = await store.deliveries.queues.extend(chat, ["webhook_1"], 5, 6)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        mark = await cold.mark(chat)
        assert (mark.archived_through, mark.trimmed_through) == (len(rows) - 1, 4)
        assert (await cold.verify()).faults == []
        assert await synced(cold.log, chat) == rows
        await store.deliveries.queues.finish(queue)
        await cold.run()
        assert (await cold.mark(chat)).trimmed_through == len(rows) - 1


async def test_trimming_waits_for_consumers_elsewhere(engine: Engine, tmp_path: Path) -> None:
    """Offsets that the engine does not know count as its own do; without an answer nothing is trimmed."""
    needed: list[int | StoreUnavailable] = [StoreUnavailable("the bus is away")]

    async def needed_from(_: str) -> int:
        if isinstance(needed[-1], StoreUnavailable):
            raise needed[-1]
        return needed[-1]

    async with engine.opened() as store:
        _, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path, consumers=[needed_from])
        assert list((await cold.run()).failed) == [chat]
        trimmed = [(await cold.mark(chat)).trimmed_through]
        for lowest in (1, 5, 5, EVERYTHING):
            needed.append(lowest)
            assert (await cold.run()).failed == {}
            trimmed.append((await cold.mark(chat)).trimmed_through)
        assert trimmed == [0, 0, 4, 4, len(rows) - 1]
        assert await synced(cold.log, chat) == rows


async def test_a_counter_of_an_archived_chat_is_recovered(engine: Engine, tmp_path: Path) -> None:
    """Its true head, not that of the hot table."""
    async with engine.opened() as store:
        ann, _, chat, rows = await written(store)
        await ColdWorld(store, tmp_path).run()
        store.set_counter(chat, None)
        store.recover_counter(chat)
        assert store.counter(chat) == len(rows)
        assert (await stored(store, message(chat, ann, "next"))).sequence == len(rows) + 1


@pytest.mark.parametrize("kind", list(OBJECT_STORES))
async def test_an_archive_on_every_object_store(kind: str, tmp_path: Path) -> None:
    """Archived, merged with what was archived before, verified and read: in a folder and on S3."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        ann, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path, objects=OBJECT_STORES[kind](tmp_path))
        await cold.run()
        await said(store, chat, ann, *("more" for _ in range(MESSAGES)))
        await cold.run()
        found = await synced(cold.log, chat)
        assert (found[: len(rows)], len(found)) == (rows, len(rows) + MESSAGES)
        verified = await cold.verify()
        assert (verified.entries, verified.segments, verified.faults) == (len(found) - 1, 1, [])
        names = [stored.key for stored in await cold.objects.find("chats/")]
        assert len(names) == 2, "one segment and its manifest: what was replaced is gone"


async def test_only_the_needed_blocks_are_fetched(tmp_path: Path) -> None:
    """One message of a large archive costs its index and some blocks, and then nothing more."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        for start in range(0, 3_000, 500):
            texts = [Random(number).randbytes(200).hex() for number in range(start, start + 500)]
            await store.log.append([message(chat, ann, text) for text in texts])
        cold = ColdWorld(store, tmp_path, cache_bytes=64 * 1024 * 1024)
        await cold.run()
        size = sum(path.stat().st_size for path in cold.segments())
        await cold.log.read(chat, 10, 1)
        assert len(cold.objects.ranges) == 2
        assert sum(length for _, _, length in cold.objects.ranges) < size / 10
        await cold.log.read(chat, 11, 5)
        assert len(cold.objects.ranges) == 2


async def test_the_cache_is_bounded(tmp_path: Path) -> None:
    """However much is read, no more than its size is kept."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await store.log.append([message(chat, ann, "x" * 5_000) for _ in range(100)])
        cold = ColdWorld(store, tmp_path, cache_bytes=100_000)
        await cold.run()
        await synced(cold.log, chat, 3)
        assert 0 < cold.reader.cached_bytes <= 100_000


# Crashes


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("label", ARCHIVE_LABELS)
async def test_an_archiver_may_die_anywhere(engine: Engine, tmp_path: Path, label: str) -> None:
    """Whatever it had done, the next run ends in the same: nothing lost, doubled or reordered."""
    async with engine.opened() as store:
        ann, _, chat, rows = await written(store)
        await ColdWorld(store, tmp_path).run()
        await said(store, chat, ann, *(f"more {number}" for number in range(MESSAGES)))
        wanted = await synced(ColdWorld(store, tmp_path).log, chat)

        def die(reached: str) -> None:
            if reached == label:
                raise Died

        with pytest.raises(Died):
            await ColdWorld(store, tmp_path, fault_point=die).run()
        await store.reopen()
        cold = ColdWorld(store, tmp_path)
        assert await synced(cold.log, chat) == wanted
        assert (await cold.run()).failed == {}
        assert await synced(cold.log, chat) == wanted
        assert wanted[: len(rows)] == rows
        assert (await cold.verify()).faults == []
        assert store.breaches() == []
        assert (await cold.mark(chat)).trimmed_through == len(wanted) - 1
        assert (await stored(store, message(chat, ann, "next"))).sequence == len(wanted) + 1


# Shown faults


async def damaged(tmp_path: Path, store: OpenStore) -> tuple[ColdWorld, str]:
    """An archive of two chats in several segments."""
    ann, _, chat, _ = await written(store)
    cold = ColdWorld(store, tmp_path)
    await cold.run()
    await said(store, chat, ann, "a", "b")
    await cold.run()
    assert len(cold.segments()) == 2
    return cold, chat


async def fault_of(cold: ColdWorld) -> str:
    (fault,) = (await cold.verify()).faults
    return f"{fault.name}: {fault.says}"


async def test_a_swapped_segment_is_named(tmp_path: Path) -> None:
    """Its name says one thing, its content another; and no reader is served from it."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        cold, chat = await damaged(tmp_path, store)
        first, second = cold.segments()
        second.write_bytes(first.read_bytes())
        says = await fault_of(cold)
        assert second.name in says
        assert "swapped" in says or "another" in says or "cut off" in says
        fresh = ColdWorld(store, tmp_path)
        with pytest.raises(StoreDamaged, match=f"the archive of {chat}"):
            await synced(fresh.log, chat)


async def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    """And which numbers are lost with it."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        cold, _ = await damaged(tmp_path, store)
        cold.segments()[0].unlink()
        assert "it is missing: 1 to" in await fault_of(cold)


async def test_a_truncated_upload_is_named(tmp_path: Path) -> None:
    """A segment that ends too early."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        cold, _ = await damaged(tmp_path, store)
        path = cold.segments()[1]
        path.write_bytes(path.read_bytes()[:-20])
        assert "cut off" in await fault_of(cold)


async def test_an_old_manifest_is_named(tmp_path: Path) -> None:
    """An older state of the object store that was put back is not taken for the newest."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        ann, _, chat, _ = await written(store)
        cold = ColdWorld(store, tmp_path)
        await cold.run()
        old = {path: path.read_bytes() for path in cold.folder.glob("chats/*/*")}
        await said(store, chat, ann, "a", "b")
        await cold.run()
        for path in cold.folder.glob("chats/*/*"):
            path.unlink()
        for path, data in old.items():
            path.write_bytes(data)
        assert "manifest 2 is missing; the newest there is 1" in await fault_of(cold)
        with pytest.raises(StoreUnavailable):
            await synced(ColdWorld(store, tmp_path).log, chat)


async def test_nothing_is_trimmed_that_cannot_be_read_back(tmp_path: Path) -> None:
    """A segment that was damaged after it was recorded keeps its entries in the engine."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        _, _, chat, rows = await written(store)

        def damage(label: str) -> None:
            if label == "archive_after_record":
                for path in cold.segments():
                    path.write_bytes(path.read_bytes()[:-1])

        cold = ColdWorld(store, tmp_path, fault_point=damage)
        assert chat in (await cold.run()).failed
        assert (await cold.mark(chat)).trimmed_through == 0
        assert await rows_in(store, chat) == rows


async def test_an_upload_that_is_not_what_was_sent_is_never_recorded(tmp_path: Path) -> None:
    """A store that keeps something else is not trusted with anything."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        _, _, chat, rows = await written(store)
        cold = ColdWorld(store, tmp_path)
        create = cold.objects.create

        async def shortened(key: str, data: bytes) -> None:
            await create(key, data[:-1])

        cold.objects.create = shortened
        assert "cannot be trusted" in (await cold.run()).failed[chat]
        assert (await cold.mark(chat)).version == 0
        assert await rows_in(store, chat) == rows
