"""What is promised of the embedded store alone: one file, other programs beside it, one loop."""

import asyncio
import contextlib
import shutil
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from parley.errors import Refused, StoreBusy, StoreDamaged, StoreUnavailable
from parley.model import Action
from parley.store.folder import DATABASE_NAME, lock_folder
from parley.store.sqlite import chat_state
from parley.store.sqlite.command_connection import command_connection
from parley.store.sqlite.database import Database
from parley.store.sqlite.schema import MIGRATIONS
from parley.store.sqlite.writer import Transaction
from tests.contracts.acting import (
    add_group,
    add_people,
    change,
    contents,
    head_of,
    message,
    outcome,
    read_all,
    said,
    stored,
    told,
)
from tests.contracts.engines import SqliteEngine, SqliteOpenStore

SYNCHRONOUS_FULL = 2
"""What SQLite answers for `synchronous=FULL`."""


def finished(question: Coroutine[Any, Any, Any]) -> Any:
    """The answer of a coroutine that never has to wait, between two statements of somebody else."""
    with contextlib.closing(question):
        try:
            question.send(None)
        except StopIteration as answered:
            return answered.value
    raise AssertionError("it had to wait")


async def test_a_read_during_a_commit_does_not_hide_it(sqlite: SqliteEngine) -> None:
    """What is read between the last statement and the COMMIT is old, and forgotten with the COMMIT."""
    chats: list[str] = []

    def read_meanwhile(label: str) -> None:
        if label == "after_write_before_commit" and chats:
            finished(store.log.heads(chats))

    async with sqlite.opened(fault_point=read_meanwhile) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "first")
        chats.append(chat)
        places = await asyncio.gather(
            *(stored(store, message(chat, ann)) for _ in range(5)), failing_job(store), return_exceptions=True
        )
        head = max(place.sequence for place in places if not isinstance(place, BaseException | None))
        assert await head_of(store, chat) == head == 6
        assert len(await read_all(store, chat)) == 6


async def failing_job(store: SqliteOpenStore) -> None:
    """A piece of a transaction that writes something and then raises."""

    def work(transaction: Transaction) -> None:
        transaction.execute("UPDATE chat_counters SET sequence_counter = 99")
        raise ValueError("on purpose")

    await store.store.writer.run(work)


async def test_a_refused_chat_makes_nobody_forget(sqlite: SqliteEngine) -> None:
    """A refusal inside a transaction is no reason to look at every chat again."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        await add_group(store, ann)
        forgotten: list[bool] = []
        store.store.writer.on_foreign_write(lambda: forgotten.append(True))
        with pytest.raises(Refused):
            await add_group(store, ann, "user_unknown")
        assert forgotten == []


async def test_a_failing_job_is_undone_alone(sqlite: SqliteEngine) -> None:
    """Who shares a transaction with a failing job is stored; the failing one leaves nothing."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        results = await asyncio.gather(
            stored(store, message(chat, ann, "a")),
            failing_job(store),
            stored(store, message(chat, ann, "b")),
            return_exceptions=True,
        )
        assert isinstance(results[1], ValueError)
        assert sorted(contents(await read_all(store, chat))) == ["a", "b"]
        assert store.counter(chat) == 2


async def test_one_transaction_takes_all_that_waits(sqlite: SqliteEngine) -> None:
    """Writes that arrive during a commit make one transaction, not one each."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        before = commit_count(store)
        await asyncio.gather(*(stored(store, message(chat, ann)) for _ in range(100)))
        assert commit_count(store) - before <= 6


def commit_count(store: SqliteOpenStore) -> float:
    value = store.metrics.registry.get_sample_value("parley_commit_seconds_count")
    assert value is not None
    return value


async def test_memory_of_many_chats_is_bounded(sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """More chats than are remembered go on to work."""
    monkeypatch.setattr(chat_state, "CHATS_REMEMBERED_MAX", 3)
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chats = [await add_group(store, ann) for _ in range(10)]
        for _ in range(3):
            await store.log.append([message(chat, ann) for chat in chats])
        assert {head.sequence for head in (await store.log.heads(chats)).values()} == {3}


async def test_memory_of_many_people_is_bounded(
    sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More members than are remembered go on to write."""
    monkeypatch.setattr(chat_state, "SENDERS_REMEMBERED_MAX", 2)
    async with sqlite.opened() as store:
        people = await add_people(store, *(f"p{n}" for n in range(6)))
        chat = await add_group(store, *people)
        for _ in range(2):
            await store.log.append([message(chat, person) for person in people])
        assert len(await read_all(store, chat)) == 12


async def test_chats_and_people_have_limits(sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full chat takes nobody more, and a person in too many chats joins no other."""
    monkeypatch.setattr("parley.core.permissions.CHAT_MEMBERS_MAX", 2)
    monkeypatch.setattr("parley.core.permissions.USER_CHATS_MAX", 3)
    async with sqlite.opened() as store:
        ann, ben, cem = await add_people(store, "ann", "ben", "cem")
        chats = [await add_group(store, ann) for _ in range(3)]
        assert told(await outcome(store, change(chats[0], ann, Action.JOINED, ben))) == "stored"
        assert told(await outcome(store, change(chats[0], ann, Action.JOINED, cem))) == "bad_request"
        with pytest.raises(Refused):
            await add_group(store, ben, ann)
        other = await add_group(store, ben)
        assert told(await outcome(store, change(other, ben, Action.JOINED, ann))) == "bad_request"
        assert await store.directory.member_count(chats[0]) == 2


async def test_a_writer_beside_the_server_is_waited_for(sqlite: SqliteEngine) -> None:
    """While another program holds the write lock, sends wait; when it lets go they succeed."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        with held_lock(sqlite.path) as other:
            sending = asyncio.create_task(stored(store, message(chat, ann, "patient")))
            await asyncio.sleep(0)
            assert await head_of(store, chat) == 0
            assert not sending.done()
            other.execute("ROLLBACK")
            assert (await sending).sequence == 1


async def test_a_writer_that_keeps_the_lock_refuses_the_sends(
    sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its patience is over a send is refused as not written, and the next one works again."""
    monkeypatch.setattr("parley.store.sqlite.writer.BUSY_SECONDS_MAX", 0.05)
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        with held_lock(sqlite.path):
            with pytest.raises(StoreBusy):
                await stored(store, message(chat, ann, "refused"))
            assert store.store.available
        assert (await stored(store, message(chat, ann, "taken"))).sequence == 1
        assert contents(await read_all(store, chat)) == ["taken"]


@contextlib.contextmanager
def held_lock(path: Path) -> Any:
    """Another connection in a write transaction."""
    with contextlib.closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def test_a_foreign_write_is_told_to_whoever_asked(sqlite: SqliteEngine) -> None:
    """Another program's write is noticed by looking, once."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        store.store.writer.check_for_foreign_writes()
        told: list[bool] = []
        store.store.writer.on_foreign_write(lambda: told.append(True))
        store.store.writer.check_for_foreign_writes()
        await said(store, chat, ann, "own writes are no news")
        assert told == []
        store.set_counter(chat, 2)
        store.store.writer.check_for_foreign_writes()
        store.store.writer.check_for_foreign_writes()
        assert told == [True]


async def test_foreign_entries_are_seen_after_a_look(sqlite: SqliteEngine) -> None:
    """A log that another program has cut is read as it is now, not as it is remembered."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1", "2", "3")
        store.foreign("DELETE FROM messages WHERE chat_id = ? AND sequence = 3", (chat,))
        store.set_counter(chat, 2)
        store.store.writer.check_for_foreign_writes()
        assert (await head_of(store, chat), contents(await read_all(store, chat))) == (2, ["1", "2"])


async def test_a_hole_is_never_stepped_over(sqlite: SqliteEngine) -> None:
    """If an entry was destroyed, a page ends before the hole instead of hiding it."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1", "2", "3", "4")
        store.foreign("DELETE FROM messages WHERE chat_id = ? AND sequence = 2", (chat,))
        page = await store.log.read(chat, 0, 10)
        assert (len(page.entries), page.to_sequence, page.complete) == (1, 1, False)
        before = await store.log.read_before(chat, 5, 10)
        assert (before.from_sequence, before.to_sequence) == (3, 4)


async def test_the_tables_have_the_names_that_operators_know(sqlite: SqliteEngine) -> None:
    """The documented names exist with their documented fields, as tables or views."""
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        draft = message(chat, ann, "in\0side")
        place = await stored(store, draft)
        store.cursors.note_acked(ann, "phone", chat, 1, store.clock())
        await store.cursors.flush()
        assert store.foreign(
            "SELECT chat_id, sequence, message_id, sender_id, client_message_id, content, content_type,"
            " created_at, server_timestamp, display_time, kind, epoch FROM messages"
        ) == [
            (
                *(chat, 1, place.message_id, ann, draft.client_message_id, "in\0side", "text/plain"),
                *(place.created_at, place.created_at, None, "message", 1),
            )
        ]
        keys = (
            "SELECT chat_id, client_message_id, message_id, sequence, created_at, ttl FROM idempotency_keys"
        )
        ttl = store.clock() // 1000 + 604_800
        assert store.foreign(keys) == [
            (chat, draft.client_message_id, place.message_id, 1, place.created_at, ttl)
        ]
        assert store.foreign("SELECT user_id, role FROM chat_memberships ORDER BY user_id") == [
            (ann, "owner"),
            (ben, "member"),
        ]
        assert store.foreign("SELECT * FROM user_device_cursors") == [(ann, "phone", chat, 1)]
        assert store.foreign("SELECT last_acked_sequence FROM delivery_state WHERE user_id = ?", (ann,)) == [
            (1,)
        ]


async def test_a_deleted_key_frees_its_id(sqlite: SqliteEngine) -> None:
    """An operator may delete a key through its view: the entry stays, and the id may be used again."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        draft = message(chat, ann)
        await stored(store, draft)
        store.foreign("DELETE FROM idempotency_keys WHERE chat_id = ?", (chat,))
        again = await stored(store, draft)
        assert (again.sequence, again.deduplicated) == (2, False)


async def test_opening_makes_durable_what_a_crash_left(sqlite: SqliteEngine, tmp_path: Path) -> None:
    """Commits that a dead process left in the write-ahead log are in the main file once it is open."""
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        await said(store, await add_group(store, ann), ann, "acknowledged")
        for file in sqlite.path.parent.glob(f"{DATABASE_NAME}*"):
            shutil.copy(file, crashed / file.name)
    database = Database(crashed)
    assert (crashed / f"{DATABASE_NAME}-wal").stat().st_size > 0
    database.open()
    (tmp_path / "main").mkdir()
    shutil.copy(crashed / DATABASE_NAME, tmp_path / "main" / DATABASE_NAME)
    database.close()
    with contextlib.closing(apsw.Connection(str(tmp_path / "main" / DATABASE_NAME))) as main_file:
        assert main_file.execute("SELECT content FROM messages").fetchall() == [("acknowledged",)]


def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    """Opening an empty file migrates it, and opening it again changes nothing."""
    for _ in range(2):
        database = Database(tmp_path)
        database.open()
        assert database.writer.pragma("user_version") == len(MIGRATIONS)
        database.close()


@contextlib.contextmanager
def writer_of(who: str, folder: Path) -> Iterator[apsw.Connection]:
    """The connection that this one of a store's programs writes on."""
    database = Database(folder, beside=who == "a command with the ports of a server")
    database.open()
    try:
        if who == "a server after a fault":
            database.reopen()
        if who == "a repair":
            with command_connection(folder, read_only=False) as connection:
                yield connection
        else:
            yield database.writer
    finally:
        database.close()


@pytest.mark.parametrize(
    "who", ["a server", "a server after a fault", "a command with the ports of a server", "a repair"]
)
def test_every_commit_is_synced(who: str, tmp_path: Path) -> None:
    """Whoever writes the store writes ahead and syncs at each commit: a power cut takes nothing back."""
    with writer_of(who, tmp_path) as connection:
        connection.execute("UPDATE changes SET last = last + 1")
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == SYNCHRONOUS_FULL


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    """A file of a later version is not touched, and the message says what to do."""
    with contextlib.closing(apsw.Connection(str(tmp_path / DATABASE_NAME))) as connection:
        connection.pragma("user_version", len(MIGRATIONS) + 1)
    with pytest.raises(StoreUnavailable, match="newer Parley"):
        Database(tmp_path).open()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """Something else under the store's name is told in one sentence."""
    (tmp_path / DATABASE_NAME).write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreDamaged, match="file is not a database"):
        Database(tmp_path).open()


def test_a_folder_serves_one_server(tmp_path: Path) -> None:
    """The second lock on a folder is refused and names the first one's process; letting go frees it."""
    lock = lock_folder(tmp_path)
    with pytest.raises(StoreBusy, match="another server"):
        lock_folder(tmp_path)
    lock.close()
    lock_folder(tmp_path).close()
