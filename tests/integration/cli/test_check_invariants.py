"""What a check finds on SQLite alone; on every engine: tests/contracts/test_inspection.py."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from parley.store.invariants import INVARIANTS
from tests.contracts import test_inspection
from tests.integration.cli.stores import change, check_folder, one
from tests.integration.small_world import VOID_AT

GROUP = "WHERE chat_id = 'chat_group'"
AT_2 = "WHERE chat_no = 1 AND sequence = 2"
LATE_MS = 2_000_000_000_000
"""A time long after anything in the store."""


def say_instead(old: str, new: str) -> str:
    """Change a word in the body of message 2."""
    return f"UPDATE entries SET wire = CAST(replace(CAST(wire AS TEXT), '{old}', '{new}') AS BLOB) {AT_2}"


BREAKING = {
    "sequence_uniqueness": [
        "DROP INDEX entry_at",
        f"INSERT INTO entries (chat_no, sequence, kind, wire) SELECT 1, 2, kind, wire FROM entries {AT_2}",
    ],
    "allocation_monotonicity": [
        "DELETE FROM messages WHERE chat_id = 'chat_group' AND sequence = 2",
        f"INSERT INTO open_allocations VALUES (1, 2, {LATE_MS})",
    ],
    "counter_is_last_allocated": [f"UPDATE chat_counters SET sequence_counter = 9 {GROUP}"],
    "idempotency_sequence_consistency": [f"UPDATE entries SET client_id = randomblob(16) {AT_2}"],
    "no_zero_sequence": [
        "PRAGMA ignore_check_constraints = ON",
        "UPDATE entries SET sequence = 0 WHERE chat_no = 1 AND sequence = 1",
    ],
    "add_operation_atomicity": ["INSERT INTO open_allocations VALUES (1, 2, 0)"],
    "stored_in_order": [
        f"UPDATE entries SET position = 100 {AT_2}",
        say_instead("2026-01-01", "2026-01-02"),
    ],
    "idempotency_guarantee": [
        "DROP INDEX entry_by_client_id",
        "UPDATE entries SET client_id = (SELECT client_id FROM entries WHERE chat_no = 1 AND sequence = 1) "
        + AT_2,
    ],
    "wire_agreement": [
        say_instead('"sequence":2', '"sequence":3'),
    ],
    "change_order": ["UPDATE changes SET last = 0"],
    "references": ["DELETE FROM chats WHERE chat_type = 'direct'"],
    "schema": ["DROP INDEX entry_by_message_id"],
}


MORE_BREAKING = [
    *(
        (
            "wire_agreement",
            "the void at 4 has parts of a message",
            f"UPDATE entries SET {column} = {value} WHERE chat_no = 1 AND sequence = {VOID_AT}",
        )
        for column, value in (
            ("wire", f"(SELECT wire FROM entries {AT_2})"),
            ("client_id", "randomblob(16)"),
            ("message_id", "randomblob(16)"),
        )
    ),
    (
        "references",
        "chat_gone refers to a row that does not exist",
        "INSERT INTO chat_memberships VALUES ('chat_gone', 'user_ann', 'member', 'now', 0, 0)",
    ),
]
"""Other ways to break what is broken above."""


@pytest.mark.parametrize("invariant", BREAKING)
def test_a_broken_invariant_is_named(invariant: str, data: Path) -> None:
    """What somebody breaks with sqlite3 is found under the invariant's own name, with what to do."""
    change(data, *BREAKING[invariant])
    found = [breach for breach in check_folder(data).breaches if breach.invariant == invariant]
    assert found
    assert all(breach.says and breach.remedy for breach in found)


@pytest.mark.parametrize(("invariant", "says", "statement"), MORE_BREAKING)
def test_each_way_to_break_an_invariant_is_found(
    invariant: str, says: str, statement: str, data: Path
) -> None:
    """A breach is told in its own words, under the name of what it breaks."""
    change(data, statement)
    found = [(breach.invariant, breach.says) for breach in check_folder(data).breaches]
    assert [name for name, words in found if says in words] == [invariant], found


def test_a_damaged_page_is_named(data: Path) -> None:
    """A page of the file that holds something else is found as file_integrity."""
    root = one(data, "SELECT rootpage FROM sqlite_schema WHERE name = 'entry_by_message_id'")
    assert isinstance(root, int)
    size = one(data, "PRAGMA page_size")
    assert isinstance(size, int)
    with open(data / "parley.db", "r+b") as file:
        file.seek((root - 1) * size + 8)
        file.write(b"\xff" * 64)
    assert check_folder(data).counts["file_integrity"] > 0


def test_every_invariant_is_shown_to_be_checked() -> None:
    """No name is promised without a store that breaks it, here or on every engine."""
    on_every_engine = {invariant for invariant, _ in test_inspection.BREAKING.values()}
    assert {*BREAKING, *on_every_engine, "file_integrity"} == set(INVARIANTS)


def test_a_check_changes_nothing(data: Path) -> None:
    """The files of a store are byte for byte the same after a check."""
    with closing(sqlite3.connect(data / "parley.db")) as writer:
        writer.execute("UPDATE records SET number = number + 1 WHERE kind = 'people'")
        writer.commit()
        before = {
            file.name: file.read_bytes() for file in data.glob("parley.db*") if file.suffix != ".db-shm"
        }
        check_folder(data)
        after = {file.name: file.read_bytes() for file in data.glob("parley.db*") if file.suffix != ".db-shm"}
    assert before == after
