"""What is promised of the embedded store alone about people: other programs, a bad disk, bounded work."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from math import ceil
from pathlib import Path
from typing import Any

import apsw
import pytest
import structlog

from parley.errors import OutcomeUnknown, StoreError
from parley.model import PersonConsent, Privacy, ReceiptKind, Relation
from parley.store.folder import DATABASE_NAME
from parley.store.sqlite import cursors, overview, schema
from parley.store.sqlite.directory import PEOPLE_PER_SLICE
from parley.store.sqlite.records import KEYS_PER_SLICE
from parley.store.tables import API_TOKENS, AUDIT, CONSENTS
from parley.testing import faults
from tests.contracts.acting import (
    add_contact,
    add_direct,
    add_group,
    add_people,
    block,
    code_of,
    hearing,
    mark_of,
    message,
    outcome,
    position_of,
    rises,
    said,
    told,
)
from tests.contracts.engines import SqliteEngine, SqliteOpenStore
from tests.waiting import eventually

DELIVERED, READ = ReceiptKind.DELIVERED, ReceiptKind.READ


async def test_a_block_by_another_program_counts(sqlite: SqliteEngine) -> None:
    """What somebody writes into the table beside the server decides about the next message."""
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await said(store, chat, ben, "before")
        said_by_ann = CONSENTS.encode(PersonConsent(user_id=ann, blocks={ben: "now"})).decode()
        store.foreign("INSERT INTO records VALUES ('consents', ?, '-', ?, 0, NULL)", (ann, said_by_ann))
        assert await code_of(store, message(chat, ben)) == "blocked"
        store.foreign("DELETE FROM records WHERE kind = 'consents'")
        assert told(await outcome(store, message(chat, ben))) == "stored"


async def test_a_relation_that_ended_leaves_no_row(sqlite: SqliteEngine) -> None:
    """The table holds what holds, and nothing else."""
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        await add_contact(store, ann, ben)
        await block(store, ann, ben)
        for relation in Relation:
            await store.relations.set_relation(ann, ben, relation, None)
        assert store.foreign("SELECT * FROM records WHERE kind NOT IN ('people', 'usernames')") == []


async def test_a_block_beside_a_failing_job_counts(sqlite: SqliteEngine) -> None:
    """A transaction that is run again, with every job apart, forgets what the first run remembered."""
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_direct(store, ann, ben)
        await said(store, chat, ben, "before")

        def fail(_: object) -> None:
            raise ValueError("a job that fails")

        failing = store.store.writer.run(fail)
        results = await gathered(block(store, ann, ben), outcome(store, message(chat, ben)), failing)
        assert isinstance(results[2], ValueError)
        assert await code_of(store, message(chat, ben)) == "blocked"


async def gathered(*work: Awaitable[object]) -> list[object]:
    return await asyncio.gather(*work, return_exceptions=True)


@pytest.mark.parametrize("label", ["before_write", "after_write_before_commit"])
async def test_a_device_says_nothing_while_it_is_forgotten(sqlite: SqliteEngine, label: str) -> None:
    """A position that comes in the midst of forgetting does not bring the device back."""
    speaking: list[Callable[[], None]] = []

    def speak(reached: str) -> None:
        if reached == label and speaking:
            speaking.pop()()

    async with sqlite.opened(fault_point=speak) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "1", "2")
        speaking.append(lambda: store.cursors.note_acked(ann, "phone", chat, 2, store.clock()))
        await store.cursors.forget_device(ann, "phone")
        assert speaking == []
        await store.reopen()
        assert await store.cursors.position(ann, "phone", chat) == 0


# A bad disk


@pytest.mark.parametrize("fault", ["full", "sync", "io"])
async def test_a_rise_is_told_once_although_the_disk_failed(
    sqlite: SqliteEngine, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing can be written nothing is told; afterwards every rise is, once."""
    monkeypatch.setattr(cursors, "FLUSH_AFTER_SECONDS", 0.0)  # before the store can have been reopened
    disk = tmp_path / "disk"
    vfs = faults.vfs_from({faults.DISK: str(disk)})
    with structlog.testing.capture_logs():
        async with sqlite.opened(vfs=vfs) as store:
            ann, ben = await add_people(store, "ann", "ben")
            chat = await add_group(store, ann, ben)
            await store.log.append([message(chat, ann) for _ in range(5)])
            heard = hearing(store)
            disk.write_text(fault)
            store.cursors.note_read(ben, chat, 3, store.clock())
            with pytest.raises(StoreError):
                await store.cursors.flush()
            assert heard == []
            disk.write_text("")
            await eventually(lambda: rises(heard) == [(ben, DELIVERED, 3), (ben, READ, 3)])
            assert (await mark_of(store, ben, chat)).read_up_to == 3
            await store.cursors.flush()
            assert len(heard) == 2


async def test_a_rise_is_told_although_its_commit_was_taken_for_lost(
    sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position that turns out to be there already is told, for nobody was told before."""
    with structlog.testing.capture_logs():
        async with sqlite.opened() as store:
            (ann,) = await add_people(store, "ann")
            chat = await add_group(store, ann)
            await said(store, chat, ann, "1", "2")
            heard, writer = hearing(store), store.store.writer
            committed = writer._committed

            def fail_afterwards(_: Exception | None, seconds: float) -> None:
                committed(apsw.IOError("so it seemed"), seconds)

            with monkeypatch.context() as once:
                once.setattr(writer, "_committed", fail_afterwards)
                store.cursors.note_read(ann, chat, 1, store.clock())
                with pytest.raises(OutcomeUnknown):
                    await store.cursors.flush()
            assert (heard, store.durable_positions(ann, chat)) == ([], (1, 1))
            store.cursors.note_acked(ann, "phone", chat, 2, store.clock())
            await eventually(lambda: rises(heard) == [(ann, READ, 1), (ann, DELIVERED, 2)])


# Bounded work


async def steps_of(store: SqliteOpenStore, work: Callable[[], Awaitable[object]]) -> int:
    """How many steps SQLite takes for what is read."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    reader = store.store.database.reader
    reader.set_progress_handler(count, 1)
    try:
        await work()
    finally:
        reader.set_progress_handler(None)
    return steps


async def test_an_overview_costs_the_same_however_long_the_log(sqlite: SqliteEngine) -> None:
    """Neither the last entry nor the unread messages are found by reading what was read."""
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        steps = []
        for messages in (50, 5_000):
            await store.log.append([message(chat, ann) for _ in range(messages)])
            store.cursors.note_read(ben, chat, messages, store.clock())
            await store.cursors.flush()
            steps.append(await steps_of(store, lambda: store.overviews.changed(ben, "phone", None, 10)))
        assert (await position_of(store, ben, chat)).unread == 50
        assert steps[1] < steps[0] + 50 * 20


async def test_who_only_writes_does_not_make_overviews_slow(
    sqlite: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread messages are looked for among the last positions only, and it is said that there may be more."""
    monkeypatch.setattr(overview, "UNREAD_LOOKED_AT_MAX", 100)
    async with sqlite.opened() as store:
        ann, ben = await add_people(store, "ann", "ben")
        chat = await add_group(store, ann, ben)
        await said(store, chat, ben, "long ago")
        steps = []
        for messages in (200, 2_000):
            await store.log.append([message(chat, ann) for _ in range(messages)])
            steps.append(await steps_of(store, lambda: store.overviews.changed(ann, "phone", None, 10)))
        assert steps[1] < 1.1 * steps[0]
        await said(store, chat, ben, "news")
        at = await position_of(store, ann, chat)
        assert (at.unread, at.unread_more) == (1, True)


async def test_many_people_are_regarded_in_few_statements(sqlite: SqliteEngine) -> None:
    """Each slice of people is one statement, what they say is one, and one more looks for shared chats."""
    async with sqlite.opened() as store:
        ann, *others = await add_people(store, "ann", *(f"p{n}" for n in range(500)))
        await add_group(store, ann, *others[:250])
        statements: list[str] = []

        def trace(_: object, statement: str, __: object) -> bool:
            statements.append(statement)
            return True

        reader = store.store.database.reader
        reader.exec_trace = trace
        for acquainted in (False, True):
            found = await store.relations.relationships(ann, others, acquainted)
            assert len(found) == 500
        reader.exec_trace = None
        people, said = ceil(500 / KEYS_PER_SLICE), ceil(501 / KEYS_PER_SLICE)
        assert len(statements) == 2 * (people + said) + ceil(500 / PEOPLE_PER_SLICE)


async def test_strangers_cost_the_same_however_many_chats_one_has(sqlite: SqliteEngine) -> None:
    """Nobody makes the server slow by being in many chats and asking for people they do not know."""
    async with sqlite.opened() as store:
        ann, *others = await add_people(store, "ann", *(f"p{n}" for n in range(50)))
        await add_group(store, *others)
        steps = []
        await store.relations.relationships(ann, others)
        for chats in (1, 300):
            for _ in range(chats):
                await add_group(store, ann)
            steps.append(await steps_of(store, lambda: store.relations.relationships(ann, others)))
        assert steps[0] == steps[1]


# Older files


def test_a_file_of_version_15_keeps_its_tokens_and_records(tmp_path: Path) -> None:
    """Nobody knows who made them, or by which token an operator acted."""
    with contextlib.closing(apsw.Connection(str(tmp_path / DATABASE_NAME))) as connection:
        schema.advance(connection, 15)
        connection.execute(
            "CREATE TABLE api_tokens (token_id, token_hash, user_id, name, scopes, created_at_ms, chat_id,"
            " last_used_at_ms, expires_at_ms);"
            "CREATE TABLE audit (audit_id, at, actor, action, target_id, request_id, detail, outcome);"
            "INSERT INTO api_tokens VALUES ('tok_1', x'00', 'user_ann', 'alerts', '[\"read\"]', 1, '', 2, 3);"
            "INSERT INTO audit VALUES ('aud_1', 'then', 'cli:ann', 'x', 'y', 'req_1', 'detail', 'done')"
        )
        schema.migrate(connection)
        rows: list[Any] = connection.execute("SELECT kind, record FROM records").fetchall()
    stored = dict(rows)
    token, record = API_TOKENS.decode(stored["api_tokens"]), AUDIT.decode(stored["audit"])
    assert (token.name, token.makers) == ("alerts", ())
    assert (record.outcome, record.token_id, record.token_name) == ("done", "", "")


def test_a_file_of_version_2_keeps_what_it_has(tmp_path: Path) -> None:
    """People, chats and positions of an older file are there with the new columns at their defaults."""
    with contextlib.closing(apsw.Connection(str(tmp_path / DATABASE_NAME))) as connection:
        schema.advance(connection, 2)
        connection.execute(
            "INSERT INTO users (user_id, username, password_hash, display_name, created_at)"
            " VALUES ('user_ann', 'ann', 'hash', 'Ann', 'then');"
            "INSERT INTO delivery_state (user_id, chat_id, read_up_to) VALUES ('user_ann', 'chat', 7)"
        )
        schema.migrate(connection)
        assert schema.version_of(connection) == len(schema.MIGRATIONS)
        assert connection.execute("SELECT read_up_to, muted_until FROM delivery_state").fetchall() == [
            (7, None)
        ]
        kinds = connection.execute("SELECT kind FROM records ORDER BY kind").fetchall()
        assert kinds == [("people",), ("usernames",)]
        found = connection.execute("SELECT last_seen_privacy, send_read_receipts FROM users").fetchall()
        assert found == [(Privacy.EVERYONE.value, 1)]
