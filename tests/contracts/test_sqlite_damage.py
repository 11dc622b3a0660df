"""A damaged file: what it refuses, and whom it does not."""

import contextlib
import itertools
from pathlib import Path

import apsw
import pytest

from parley.errors import STORE_DAMAGED, StoreDamaged
from parley.model import Appended
from parley.store.folder import DATABASE_NAME
from parley.store.sqlite import schema
from parley.store.sqlite.damage import check_roots
from parley.store.sqlite.diagnosis import LOOK_SECONDS_MAX, find_damage
from tests.contracts.acting import add_group, add_people, contents, message, read_all, said
from tests.contracts.engines import SqliteEngine, SqliteOpenStore
from tests.harness.damage import JUNK, overwrite, pages_of, root_of

MANY_KEYS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    " INSERT INTO records SELECT 'server_keys', 'all', 'name ' || i, 'value ' || i, 0, NULL FROM n"
)
LONG = "long enough for a page of its own " * 150


@pytest.fixture
def embedded(tmp_path: Path) -> SqliteEngine:
    """In one mode: what is tested is below both."""
    return SqliteEngine("atomic", tmp_path)


async def test_a_batch_is_stored_without_what_met_damage(sqlite: SqliteEngine) -> None:
    """A retry whose original is damaged is refused for good; what came with it is stored."""
    async with sqlite.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat, other = await add_group(store, ann), await add_group(store, ann)
        retried = message(chat, ann, LONG)
        await store.log.append([retried])
        await said(store, chat, ann, *[f"{number} {LONG}" for number in range(3)])
        overwrite(store.store.database.path.parent, overflowing(store))
        drafts = [retried, message(other, ann, "new"), message(chat, ann, "after it")]
        result = await store.log.append(drafts)
        refused, *stored = result.outcomes
        assert refused == STORE_DAMAGED
        assert all(isinstance(outcome, Appended) for outcome in stored)
        assert contents(await read_all(store, other)) == ["new"]
        assert store.metrics.damage.stops_writes(store.metrics.now())


def overflowing(store: SqliteOpenStore) -> int:
    """The page that the body of the first message goes on at."""
    with contextlib.closing(apsw.Connection(str(store.store.database.path))) as connection:
        sql = "SELECT pageno FROM dbstat WHERE name = 'entries' AND pagetype = 'overflow' ORDER BY path"
        first, *_ = connection.execute(sql)
        return int(str(first[0]))


async def test_positions_that_cannot_be_stored_stop_no_message(embedded: SqliteEngine) -> None:
    """Where cursors meet damage, messages are stored without them, and `flush` does not claim more."""
    async with embedded.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "one")
        folder = store.store.database.path.parent
        overwrite(folder, root_of(folder, "user_device_cursors"))
        store.cursors.note_acked(ann, "phone", chat, 1, store.clock())
        await said(store, chat, ann, "two")
        with pytest.raises(StoreDamaged, match="user_device_cursors"):
            await store.cursors.flush(ann)
        assert contents(await read_all(store, chat)) == ["one", "two"]


async def test_what_does_not_decode_is_damage(embedded: SqliteEngine) -> None:
    """A page ends before it; a request that begins at it is refused, by position and without a word of it."""
    async with embedded.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "one", "secret", "three")
        store.foreign("UPDATE entries SET wire = CAST('{\"secret' AS BLOB) WHERE sequence = 2")
        assert (await store.log.read(chat, 0, 10)).to_sequence == 1
        with pytest.raises(StoreDamaged, match="position 2 does not decode") as told:
            await store.log.read(chat, 1, 10)
        assert "secret" not in str(told.value)
        assert (await store.log.read_before(chat, 4, 10)).from_sequence == 3
        with pytest.raises(StoreDamaged):
            await store.log.read_before(chat, 3, 10)


async def test_a_hole_in_a_log_is_damage(embedded: SqliteEngine) -> None:
    """A request that begins at a position where nothing is gets no empty page without end."""
    async with embedded.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "one", "two", "three")
        store.rows.delete_entry(chat, 2)
        assert (await store.log.read(chat, 0, 10)).to_sequence == 1
        with pytest.raises(StoreDamaged, match="position 2: nothing is there"):
            await store.log.read(chat, 1, 10)
        assert store.metrics.damage.count == 1


async def test_a_file_that_is_no_database_any_more_is_damage(embedded: SqliteEngine) -> None:
    """While the server runs: what is refused is refused as damage, also while the file is being reopened."""
    async with embedded.opened() as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        await said(store, chat, ann, "one")
        folder = store.store.database.path.parent
        overwrite(folder, root_of(folder, "entries"))
        store.store.writer._give_up(apsw.CorruptError("on purpose"))  # as a transaction that cannot begin
        for _ in range(2):
            with pytest.raises(StoreDamaged):
                await store.log.append([message(chat, ann, "two")])
            with pytest.raises(StoreDamaged):
                await store.log.read(chat, 0, 10)


def test_every_root_page_is_read_at_the_start() -> None:
    """Whichever table or index it is of, and with the name of its table."""
    source = apsw.Connection(":memory:")
    schema.migrate(source)
    sound = source.serialize("main")
    trees = source.execute("SELECT name, tbl_name, rootpage FROM sqlite_schema WHERE rootpage > 1").fetchall()
    size = source.pragma("page_size")
    assert isinstance(size, int)
    check_roots(source)
    for name, table, root in trees:
        assert isinstance(root, int)
        broken = apsw.Connection(":memory:")
        broken.deserialize("main", sound[: (root - 1) * size] + JUNK * size + sound[root * size :])
        with pytest.raises(StoreDamaged) as told:
            check_roots(broken)
        assert told.value.place == f"table {table}", name


async def test_a_server_with_a_damaged_root_page_does_not_start(embedded: SqliteEngine) -> None:
    """The sentence names the table, the file, and what to do."""
    async with embedded.opened() as store:
        folder = store.store.database.path.parent
        overwrite(folder, root_of(folder, "chats"))
        with pytest.raises(StoreDamaged, match=r"table chats: .*parley\.db; stop the server.*backup"):
            await store.reopen()
        assert pages_of(folder, "records")


def test_a_short_look_finds_a_damaged_leaf(tmp_path: Path) -> None:
    """A page that no root leads past at the start is named with its table; a sound file is told as such."""
    path = tmp_path / DATABASE_NAME
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", "wal")
        schema.migrate(connection)
        connection.execute(MANY_KEYS)
        assert [finding.state for finding in find_damage(connection, lambda: 0.0)] == ["ok"]
    overwrite(tmp_path, pages_of(tmp_path, "records")[2])
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        (found,) = find_damage(connection, lambda: 0.0)
    assert found.state == "wrong"
    assert "table records" in found.says


def test_a_short_look_ends_in_time() -> None:
    """Of a large file it says how much it has seen, and who reads all of it."""
    connection = apsw.Connection(":memory:")
    schema.migrate(connection)
    connection.execute(MANY_KEYS)
    times = itertools.count(step=LOOK_SECONDS_MAX)
    (found,) = find_damage(connection, lambda: next(times))
    assert found.state == "ok"
    assert "parley check reads all" in found.says
