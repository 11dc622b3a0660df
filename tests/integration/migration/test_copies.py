"""Copies between engines: equal at the end, continued after a crash, refused where they would do harm."""

import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from parley.app.archive import make_archiver, make_retention
from parley.app.cassandra import make_client
from parley.app.migration import copy_side
from parley.archive.tiers import TieredEngine
from parley.bodies.writer import Choice, EntryWriter
from parley.clock import wall_clock
from parley.config import Config
from parley.core import log_hash
from parley.errors import StoreBusy
from parley.ids import Ids
from parley.migration import copies
from parley.migration.copies import CopyDiffers, CopyRefused, CopyReport, StoreCopy
from parley.migration.fingerprints import Fingerprint, counts_as_content
from parley.migration.rows import StoreRows
from parley.migration.stores import CopySide, copy_store
from parley.model import Action, Appended, Kind, ReadReceipts, StoredEntry
from parley.records.listing import Listing
from parley.store.dynamodb.driver import to_item
from parley.store.folder import DATABASE_NAME, lock_folder
from parley.store.records import COPY_MARK, RECORDS, Record, is_unfinished
from parley.telemetry import Metrics
from tests.contracts.acting import change, decode_entry, message, posting, show_receipts
from tests.contracts.dynamodb_engine import other_program
from tests.contracts.engines import SqliteOpenStore
from tests.contracts.full_store import FullStore
from tests.integration.cli.running import parley
from tests.selection import thorough
from tests.services import cassandra_address, dynamodb_endpoint, fresh_prefix

WRITES_MAX = 100
MODES = ["atomic", "two_phase"]


def in_folder(folder: Path, sequencing: str = "atomic") -> Config:
    config = Config()
    config.server.data, config.store.sequencing = str(folder), sequencing  # type: ignore[assignment]
    return config


def on_dynamodb(sequencing: str) -> Config:
    config = Config()
    config.store.engine, config.store.sequencing = "dynamodb", sequencing  # type: ignore[assignment]
    config.dynamodb.endpoint, config.dynamodb.region = dynamodb_endpoint(), "local"
    config.dynamodb.prefix = fresh_prefix()
    return config


@contextmanager
def on_cassandra(sequencing: str) -> Iterator[Config]:
    """A keyspace that is dropped at the end."""
    config = Config()
    host, config.cassandra.port = cassandra_address()
    config.store.engine, config.store.sequencing = "cassandra", sequencing  # type: ignore[assignment]
    config.cassandra.contact_points, config.cassandra.replicas = [host], 1
    config.cassandra.keyspace = fresh_prefix().rstrip("-")
    try:
        yield config
    finally:
        connection = make_client(config).connection
        connection.connect()
        connection.execute(f"DROP KEYSPACE IF EXISTS {config.cassandra.keyspace}")
        connection.shutdown()


def side(config: Config) -> CopySide:
    return copy_side(config, wall_clock, Ids(random.SystemRandom().getrandbits), os.environ)


async def copied(source: Config, target: Config, *, checks: bool = True) -> CopyReport:
    return await copy_store(side(source), side(target), wall_clock, lambda _: None, checks=checks)


async def filled(folder: Path, sequencing: str = "atomic") -> FullStore:
    """A closed store in a folder, with everything in it, and a void in two_phase."""
    store = SqliteOpenStore(folder, sequencing, {})
    store.clock.advance(wall_clock() - store.clock())
    await store.open()
    full = await FullStore(store).fill()
    if sequencing == "two_phase":
        store.abandon(full.direct, 4, store.clock() - 60_000)
        await store.reopen()
        await store.log.append([message(full.direct, full.people["ann"], "after the void")])
    await store.close()
    return full


async def records(config: Config) -> list[str]:
    engine = side(config).engine
    transfer = StoreRows(engine)
    try:
        return sorted(
            [
                repr(one)
                for kind in RECORDS
                async for page in transfer.records(kind)
                for one in page
                if counts_as_content(one, 0)
            ]
        )
    finally:
        await engine.close()


@pytest.mark.parametrize("mode", MODES)
async def test_sqlite_to_dynamodb_and_back_is_an_equal_store(tmp_path: Path, mode: str) -> None:
    """Every kind of entry and record arrives, both checks are clean, and both fingerprints are equal."""
    await filled(tmp_path / "one", mode)
    one, two, three = (
        in_folder(tmp_path / "one", mode),
        on_dynamodb(mode),
        in_folder(tmp_path / "three", mode),
    )
    there = await copied(one, two)
    back = await copied(two, three)
    assert there == back
    assert there.voids == (1 if mode == "two_phase" else 0)
    assert await records(one) == await records(two) == await records(three)


async def filled_with_every_kind(folder: Path) -> FullStore:
    """Also people who come and go, settings of a chat, a void, and messages whose bodies were removed."""
    full = await filled(folder, "two_phase")
    store = SqliteOpenStore(folder, "two_phase", {})
    store.clock.advance(wall_clock() - store.clock())
    await store.open()
    ann, bob = full.people["ann"], full.people["bob"]
    for draft in (
        change(full.group, ann, Action.JOINED, bob),
        message(full.group, bob, "to be removed"),
        show_receipts(full.group, ann, ReadReceipts.SIMPLE),
        posting(full.group, ann, announcement_only=True, slow_mode_seconds=30),
        change(full.group, ann, Action.REMOVED, bob),
    ):
        (appended,) = (await store.log.append([draft])).outcomes
        assert isinstance(appended, Appended), appended
    tier = store.engine.entries
    assert tier is not None
    assert (await EntryWriter(store.log, tier, None).erase(full.group, Choice(sender_id=bob))).bodies == 1
    await store.close()
    return full


async def logs_of(config: Config) -> dict[str, tuple[list[bytes], list[int], bytes]]:
    """The log of each chat as a server reads it: its entries, its voids, and its hash."""
    engine = side(config).engine
    await engine.open()
    try:
        found = {}
        for chat in await Listing(engine, wall_clock).chats():
            page = await engine.log.read(chat.chat_id, 0, 1_000)
            assert page.complete
            hashed = log_hash.following(log_hash.empty_log(chat.chat_id), 0, page.entries, page.voids)
            found[chat.chat_id] = (page.entries, list(page.voids), hashed[-1])
        return found
    finally:
        await engine.close()


@pytest.mark.timeout(240)
async def test_sqlite_to_dynamodb_to_cassandra_to_sqlite_is_an_equal_store(tmp_path: Path) -> None:
    """With every kind of entry in it: entries, hashes of logs and records are equal at each step."""
    full = await filled_with_every_kind(tmp_path / "one")
    one, two = in_folder(tmp_path / "one", "two_phase"), on_dynamodb("two_phase")
    four = in_folder(tmp_path / "four", "two_phase")
    with on_cassandra("two_phase") as three:
        reports = [await copied(*pair) for pair in ((one, two), (two, three), (three, four))]
        stores = (one, two, three, four)
        logs = [await logs_of(store) for store in stores]
        kept = [await records(store) for store in stores]
    assert reports[0] == reports[1] == reports[2]
    assert logs[0] == logs[1] == logs[2] == logs[3]
    assert kept[0] == kept[1] == kept[2] == kept[3]
    entries = [decode_entry(wire) for wires, _, _ in logs[0].values() for wire in wires]
    changes = [entry for entry in entries if entry.kind in (Kind.MEMBER.value, Kind.CHAT.value)]
    assert {json.loads(entry.content)["action"] for entry in changes} == {action.value for action in Action}
    assert {entry.kind for entry in entries} == {kind.value for kind in Kind}
    assert [entry.content for entry in entries if entry.deleted is True] == ["", ""]
    assert (reports[0].rules, reports[0].holds, reports[0].records["MessageMark"]) == (1, 1, 4)
    assert (reports[0].voids, len(entries)) == (1, reports[0].entries)
    hashes = Fingerprint()
    for _, _, value in logs[0].values():
        hashes.add(value)
    assert reports[0].log_hashes == hashes.text
    assert full.group in logs[3]


class Cut(Exception):
    """The process died."""


class DyingRows(StoreRows):
    """A target whose process dies before or after its n-th write."""

    def __init__(self, folder: Path, at: int, *, is_after: bool) -> None:
        super().__init__(side(in_folder(folder)).engine)
        rows = rows_in(folder)
        self.rows, self._left, self._is_after = rows, at, is_after
        self.put_positions = self._put_positions
        self.settle = lambda groups, now_ms: self._write(rows.settle(groups, now_ms))

    async def _put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        await self._write(self.rows.put_positions(chat_id, positions))

    async def put(self, records: Sequence[Record]) -> None:
        await self._write(self.rows.put(records))

    async def _write(self, write: Any) -> None:
        self._left -= 1
        if self._left or self._is_after:
            await write
        else:
            write.close()
        if not self._left:
            raise Cut


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_after", [False, thorough(True, "the same writes, one moment later")])
async def test_a_copy_goes_on_after_a_crash_at_any_write(
    tmp_path: Path, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is killed: the copy that comes to its end is equal, with every entry once."""
    monkeypatch.setattr(copies, "POSITIONS_PER_PUT", 2)
    await filled(tmp_path / "one")
    source = rows_in(tmp_path / "one")
    whole = await StoreCopy(source, await empty(tmp_path / "whole"), "one", [], wall_clock).run()
    expected = await records(in_folder(tmp_path / "one"))
    crashes = 0
    for at in range(1, WRITES_MAX):
        target = await empty(tmp_path / f"two{at}")
        try:
            await StoreCopy(
                source, DyingRows(tmp_path / f"two{at}", at, is_after=is_after), "one", [], wall_clock
            ).run()
        except Cut:
            crashes += 1
        else:
            break
        if not is_finished(tmp_path / f"two{at}"):
            assert await StoreCopy(source, target, "one", [], wall_clock).run() == whole
        assert await records(in_folder(tmp_path / f"two{at}")) == expected
    assert crashes > 20


def is_finished(folder: Path) -> bool:
    """Whether the process died right after its last write."""
    with closing(apsw.Connection(str(folder / DATABASE_NAME))) as file:
        sql = "SELECT record ->> 'value' FROM records WHERE kind = 'server_keys' AND place = ?"
        mark = file.execute(sql, (COPY_MARK,)).get
        return mark is not None and not is_unfinished(str(mark))


def rows_in(folder: Path) -> StoreRows:
    return StoreRows(side(in_folder(folder)).engine)


async def empty(folder: Path) -> StoreRows:
    engine = side(in_folder(folder)).engine
    await engine.create(lambda _: None)
    await engine.close()
    return rows_in(folder)


async def test_another_source_does_not_continue_a_copy(tmp_path: Path) -> None:
    """Half of one store and half of another would be neither."""
    await filled(tmp_path / "one")
    source, target = rows_in(tmp_path / "one"), await empty(tmp_path / "two")
    with pytest.raises(Cut):
        await StoreCopy(source, DyingRows(tmp_path / "two", 5, is_after=True), "one", [], wall_clock).run()
    with pytest.raises(CopyRefused, match="unfinished copy of one"):
        await StoreCopy(source, target, "another", [], wall_clock).run()


async def test_a_copy_onto_itself_is_refused(tmp_path: Path) -> None:
    """The same folder by another path is the same store."""
    await filled(tmp_path / "one")
    with pytest.raises(CopyRefused, match="same store"):
        await copied(in_folder(tmp_path / "one"), in_folder(tmp_path / "one"))


async def test_a_server_must_not_run(tmp_path: Path) -> None:
    """Neither on the source nor on the target."""
    await filled(tmp_path / "one")
    for name in ("one", "two"):
        lock = lock_folder(tmp_path / name)
        with pytest.raises(StoreBusy, match="another server"):
            await copied(in_folder(tmp_path / "one"), in_folder(tmp_path / "two"))
        lock.close()


async def test_a_store_that_is_not_sound_is_not_copied(tmp_path: Path) -> None:
    """A lost entry would become a void in the copy, and nobody would notice any more."""
    full = await filled(tmp_path / "one")
    with closing(apsw.Connection(str(tmp_path / "one" / DATABASE_NAME))) as file:
        file.execute("DELETE FROM messages WHERE chat_id = ? AND sequence = 2", (full.direct,))
    with pytest.raises(CopyRefused, match="log_density"):
        await copied(in_folder(tmp_path / "one"), in_folder(tmp_path / "two"))


async def test_a_log_that_was_trimmed_is_not_copied(tmp_path: Path) -> None:
    """Its archived entries are not in the store: as holes they would become voids."""
    full = await filled(tmp_path / "one")
    two = on_dynamodb("atomic")
    await copied(in_folder(tmp_path / "one"), two, checks=False)
    key = to_item({"chat_id": full.direct})
    other_program().update_item(
        TableName=f"{two.dynamodb.prefix}chats",
        Key=key,
        UpdateExpression="SET trimmed_through = :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    other_program().delete_item(
        TableName=f"{two.dynamodb.prefix}messages", Key=key | to_item({"sequence": 1})
    )
    with pytest.raises(CopyRefused, match="archived entries"):
        await copied(two, in_folder(tmp_path / "three"), checks=False)


async def archived(config: Config, erase: str = "") -> None:
    """Archive everything but the newest entries, as `parley archive run` does, and erase a person."""
    metrics = Metrics(wall_clock)
    engine = side(config).engine
    assert isinstance(engine, TieredEngine)
    await engine.open()
    try:
        config.archive.after_days = 0
        archiver = make_archiver(engine, config, wall_clock, metrics, {})
        done = await archiver.run()
        assert done.failed == {}
        assert done.trimmed > 0
        if erase:
            report = await make_retention(engine, config, wall_clock, metrics, {}).erase(erase)
            assert report.cold > 0
    finally:
        await engine.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.timeout(240)
async def test_archived_entries_are_copied(tmp_path: Path, mode: str) -> None:
    """SQLite to DynamoDB and back, both archived before: as an equal store, tombstones and voids included."""
    full = await filled(tmp_path / "one", mode)
    plain = await copied(in_folder(tmp_path / "one", mode), in_folder(tmp_path / "plain", mode))
    one, two, three = (
        in_folder(tmp_path / "one", mode),
        on_dynamodb(mode),
        in_folder(tmp_path / "three", mode),
    )
    for number, config in enumerate((one, two)):
        config.archive.target = str(tmp_path / f"cold{number}")
    await archived(one)
    assert await copied(one, two) == plain
    await archived(two, erase=full.people["ann"])
    back = await copied(two, three)
    assert (back.entries, back.voids, back.records) == (plain.entries, plain.voids, plain.records)
    assert back.fingerprint != plain.fingerprint, "what was erased is not what was said"
    assert await records(two) == await records(three)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DELETE FROM entries WHERE sequence = 2", "#2: the target has another entry, at 3"),
        (
            "UPDATE entries SET wire = CAST(replace(wire, 'three', '3') AS BLOB) WHERE instr(wire, 'three')",
            "#3: the target has another entry",
        ),
        ("DELETE FROM entries WHERE sequence = 3", "#3: the target has nothing|#3: the target has another"),
        (
            "INSERT INTO entries (chat_no, sequence, kind) SELECT chat_no, 9, 0 FROM chats",
            "the source has nothing there",
        ),
        (
            "UPDATE records SET record = json_set(record, '$.user.about', 'x') WHERE kind = 'people'",
            "PersonRecord",
        ),
        ("DELETE FROM lanes WHERE chat_id IN (SELECT chat_id FROM lanes LIMIT 1)", "DeliveryQueue"),
    ],
)
async def test_any_difference_is_named(tmp_path: Path, sql: str, says: str) -> None:
    """A copy is called equal only if it is."""
    await filled(tmp_path / "one")
    source, target = rows_in(tmp_path / "one"), await empty(tmp_path / "two")
    copy = StoreCopy(source, target, "one", [], wall_clock)
    await copy.run()
    with closing(apsw.Connection(str(tmp_path / "two" / DATABASE_NAME))) as file:
        file.execute(sql)
    with pytest.raises(CopyDiffers, match=says):
        await copy.compare()


def test_the_command_copies_between_engines(tmp_path: Path) -> None:
    """`parley copy --from --to`, as an operator types it, in one line that can be trusted."""
    endpoint, prefix = dynamodb_endpoint(), fresh_prefix()
    first, second, third = (tmp_path / name for name in ("first.toml", "second.toml", "third.toml"))
    first.write_text(f'[server]\ndata = "{tmp_path / "data"}"\n')
    second.write_text(
        '[store]\nengine = "dynamodb"\n'
        f'[dynamodb]\nendpoint = "{endpoint}"\nregion = "local"\nprefix = "{prefix}"\n'
    )
    third.write_text(f'[server]\ndata = "{tmp_path / "back"}"\n')
    assert parley("store", "init", data=tmp_path / "data").status == 0
    for name in ("ann", "bob"):
        assert (
            parley(
                "user", "add", name, "--password-stdin", data=tmp_path / "data", given="secret pass"
            ).status
            == 0
        )
    assert (
        parley("chat", "create", "bob", "--as", "ann", "--title", "Tea", data=tmp_path / "data").status == 0
    )
    there = parley("copy", "--from", str(first), "--to", str(second))
    assert there.status == 0, there.stderr
    back = parley("copy", "--from", str(second), "--to", str(third))
    assert back.stdout == there.stdout
    assert there.stdout.startswith("Equal: 1 chats, 0 entries, 0 voids, ")
    assert "; 1 log hashes; fingerprint " in there.stdout
    again = parley("copy", "--from", str(first), "--to", str(second), "--json")
    assert (again.status, again.stdout) == (1, "")
    assert "not empty" in again.stderr
    assert parley("check", data=tmp_path / "back").status == 0
    epochs = parley("store", "raise-epochs", "--json", "--apply", data=tmp_path / "back")
    assert json.loads(epochs.stdout) == {"chats": 1, "raised": True}
