"""What is promised of the feed on SQLite alone: the order of two_phase, and offsets that survive a crash."""

import asyncio
import shutil
from pathlib import Path

from parley.model import Action, Persisted, StoredEntry
from parley.store.ports import Feed
from tests.contracts.acting import add_group, add_people, add_person, change, message, said, stored
from tests.contracts.engines import SqliteEngine, SqliteOpenStore
from tests.contracts.feeds import Worker, done, working
from tests.waiting import eventually


class Holding:
    """Keeps the first batch waiting between its two phases, until told to go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waits = asyncio.Event()

    def __call__(self, label: str) -> asyncio.Future[None] | None:
        if label != "after_allocate" or self.waits.is_set():
            return None
        self.waits.set()
        return asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        await self.go.wait()


async def test_what_was_overtaken_comes_first(tmp_path: Path) -> None:
    """With two_phase a lower number that is written later is still handed out before the higher one, once."""
    holding = Holding()
    async with SqliteEngine("two_phase", tmp_path).opened(fault_point=holding) as store:
        ann = await add_person(store, "ann")
        chat_id = await add_group(store, ann)
        worker, later = Worker(), Worker()
        overtaken = asyncio.create_task(stored(store, message(chat_id, ann, "first")))
        await holding.waits.wait()
        other = await add_group(store, ann)
        await said(store, chat_id, ann, "second", "third")
        async with working(store.store.feed, worker):
            holding.go.set()
            assert (await overtaken).sequence == 1
            await said(store, other, ann, "elsewhere")
            await done(worker, 4)
        assert worker.of(chat_id) == [1, 2, 3]
        async with working(store.store.feed, later):
            await said(store, chat_id, ann, "fourth")
            await done(later, 1)
        assert later.handled == [(chat_id, 4)]


async def test_nothing_is_handed_out_above_an_open_number(tmp_path: Path) -> None:
    """Until a number is written or sealed nobody knows what comes before the next one."""
    async with SqliteEngine("two_phase", tmp_path).opened() as store:
        ann = await add_person(store, "ann")
        chat_id = await add_group(store, ann)
        await said(store, chat_id, ann, "first")
        store.abandon(chat_id, 2, store.clock())
        assert sequences(first_chunk(store)) == [1]
        await said(store, chat_id, ann, "third")
        assert sequences(first_chunk(store)) == [1, 2, 3]


def first_chunk(store: SqliteOpenStore) -> list[StoredEntry]:
    """What the feed would hand a new group first."""
    news, _ = store.store.feed._rows.after(0)
    return [position for item in news for position in item.positions]


def sequences(positions: list[StoredEntry]) -> list[int]:
    return [position.sequence for position in positions]


async def test_an_offset_is_durable_soon(tmp_path: Path) -> None:
    """A copy of the file, taken a moment after the handling as a crash would leave it, knows of it."""
    folder, crashed = tmp_path / "store", tmp_path / "crashed"
    folder.mkdir()
    async with SqliteEngine("atomic", folder).opened() as store:
        ann = await add_person(store, "ann")
        chat_id = await add_group(store, ann)
        worker, after = Worker(), Worker()
        await said(store, chat_id, ann, "a", "b")
        async with working(store.store.feed, worker):
            await done(worker, 2)
            await eventually(lambda: store.foreign("SELECT position FROM consumer_offsets") == [(2,)])
            shutil.copytree(folder, crashed)
    async with SqliteEngine("atomic", crashed).opened() as store:
        await said(store, chat_id, ann, "c")
        async with working(store.store.feed, after):
            await done(after, 1)
        assert after.of(chat_id) == [3]


async def test_a_crash_before_the_offset_is_durable_hands_out_again(tmp_path: Path) -> None:
    """What was handled when nothing was written down yet comes a second time, and nothing is skipped."""
    folder, crashed = tmp_path / "store", tmp_path / "crashed"
    folder.mkdir()
    async with SqliteEngine("atomic", folder).opened() as store:
        ann = await add_person(store, "ann")
        chat_id = await add_group(store, ann)
        worker, after = Worker(), Worker()
        await said(store, chat_id, ann, "a", "b")
        shutil.copytree(folder, crashed)
        async with working(store.store.feed, worker):
            await done(worker, 2)
    async with SqliteEngine("atomic", crashed).opened() as store, working(store.store.feed, after):
        await done(after, 2)
    assert worker.of(chat_id) == after.of(chat_id) == [1, 2]


async def test_changes_of_members_say_what_they_change(tmp_path: Path) -> None:
    """A worker need not read an entry's words to know who has joined."""
    heard: list[Persisted] = []

    async def hear(news: Persisted) -> None:
        heard.append(news)

    async with SqliteEngine("atomic", tmp_path).opened() as store:
        ann, bob = await add_people(store, "ann", "bob")
        chat_id = await add_group(store, ann)
        joins = change(chat_id, ann, Action.JOINED, bob)
        await stored(store, joins)
        feed: Feed = store.store.feed
        task = asyncio.create_task(feed.consume("workers", hear))
        await eventually(lambda: bool(heard))
        task.cancel()
        await asyncio.wait([task])
    (position,) = heard[0].positions
    assert position.change == joins.change


async def test_a_long_past_is_handed_out_in_pieces(tmp_path: Path) -> None:
    """However much there is, only so much of it is in memory at once, and all of it comes."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        ann = await add_person(store, "ann")
        chats = [await add_group(store, ann) for _ in range(3)]
        drafts = [message(chats[n % 3], ann, "x" * 50_000) for n in range(600)]
        for start in range(0, 600, 100):
            await store.log.append(drafts[start : start + 100])
        worker = Worker()
        async with working(store.store.feed, worker):
            await done(worker, 600)
        assert {chat_id: worker.of(chat_id) for chat_id in chats} == {
            chat_id: list(range(1, 201)) for chat_id in chats
        }
        assert sum(len(position.wire or b"") for position in first_chunk(store)) < 5_000_000
