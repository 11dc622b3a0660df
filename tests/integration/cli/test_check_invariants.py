"""Each invariant, by its name: a whole store keeps it, and a store that breaks it is caught."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from parley.store.checks import INVARIANTS, Progress
from parley.store.sqlite import check_log
from parley.store.sqlite.check import check_folder
from tests.integration.cli.stores import change, one
from tests.integration.small_world import GROUP_ENTRIES, VOID_AT

GROUP = "WHERE chat_id = 'chat_group'"
AT_2 = "WHERE chat_no = 1 AND sequence = 2"
LATE_MS = 2_000_000_000_000
"""A time long after anything in the store."""


def say_instead(old: str, new: str) -> str:
    """Change a word in the body of message 2."""
    return f"UPDATE entries SET wire = CAST(replace(CAST(wire AS TEXT), '{old}', '{new}') AS BLOB) {AT_2}"


BREAKING = {
    "counter_must_exist": [f"DELETE FROM chat_counters {GROUP}"],
    "sequence_uniqueness": [
        "DROP INDEX entry_at",
        f"INSERT INTO entries (chat_no, sequence, kind, wire) SELECT 1, 2, kind, wire FROM entries {AT_2}",
    ],
    "allocation_monotonicity": [
        "DELETE FROM messages WHERE chat_id = 'chat_group' AND sequence = 2",
        f"INSERT INTO open_allocations VALUES (1, 2, {LATE_MS})",
    ],
    "counter_is_last_allocated": [f"UPDATE chat_counters SET sequence_counter = 9 {GROUP}"],
    "sequence_monotonicity": [f"UPDATE chat_counters SET sequence_counter = 5 {GROUP}"],
    "counter_lower_bound": [f"UPDATE chat_counters SET sequence_counter = 4 {GROUP}"],
    "idempotency_sequence_consistency": [f"UPDATE entries SET client_id = randomblob(16) {AT_2}"],
    "ack_implies_persistence": ["DELETE FROM messages WHERE chat_id = 'chat_group' AND sequence = 3"],
    "no_zero_sequence": [
        "PRAGMA ignore_check_constraints = ON",
        "UPDATE entries SET sequence = 0 WHERE chat_no = 1 AND sequence = 1",
    ],
    "gap_is_allocation_without_persistence": [
        "DELETE FROM messages WHERE chat_id = 'chat_group' AND sequence = 2"
    ],
    "add_operation_atomicity": ["INSERT INTO open_allocations VALUES (1, 2, 0)"],
    "sequence_monotonic": [
        f"UPDATE entries SET position = 100 {AT_2}",
        say_instead("2026-01-01", "2026-01-02"),
    ],
    "idempotency_guarantee": [
        "DROP INDEX entry_by_client_id",
        "UPDATE entries SET client_id = (SELECT client_id FROM entries WHERE chat_no = 1 AND sequence = 1) "
        + AT_2,
    ],
    "sync_completeness": [f"UPDATE entries SET wire = NULL {AT_2}"],
    "delivery_state_consistency": [f"UPDATE delivery_state SET read_up_to = 99 {GROUP}"],
    "log_density": ["DELETE FROM voids WHERE chat_id = 'chat_group'"],
    "wire_agreement": [
        say_instead('"sequence":2', '"sequence":3'),
    ],
    "membership": [f"UPDATE chat_memberships SET role = 'member' {GROUP}"],
    "direct_uniqueness": ["UPDATE chats SET direct_key = 'user_ann|user_cas' WHERE chat_type = 'direct'"],
    "change_order": ["UPDATE changes SET last = 0"],
    "references": ["DELETE FROM chats WHERE chat_type = 'direct'"],
    "schema": ["DROP INDEX entry_by_message_id"],
}


MORE_BREAKING = [
    (
        "delivery_state_consistency",
        "has read up to 5, and only 3 was delivered",
        f"UPDATE delivery_state SET read_up_to = 5 {GROUP} AND user_id = 'user_ben'",
    ),
    *(
        (
            "wire_agreement",
            "the void at 4 carries a message",
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
        "relations: user_gone belongs to nothing",
        "INSERT INTO relations (user_id, other_id, contact_since) VALUES ('user_gone', 'user_ann', 'now')",
    ),
    (
        "references",
        "relations: user_gone belongs to nothing",
        "INSERT INTO relations (user_id, other_id, blocked_since) VALUES ('user_ann', 'user_gone', 'now')",
    ),
    (
        "references",
        "chat_gone belongs to nothing",
        "INSERT INTO chat_memberships VALUES ('chat_gone', 'user_ann', 'member', 'now', 0)",
    ),
]
"""Other ways to break what is broken above."""


def test_a_whole_store_keeps_every_invariant(data: Path) -> None:
    """Nothing is found in a store that only its own rooms have written."""
    findings = check_folder(data)
    assert findings.breaches == []
    assert (findings.chats, findings.entries, findings.voids) == (2, GROUP_ENTRIES, 1)


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
    """No name is promised without a store here that breaks it."""
    assert {*BREAKING, "file_integrity"} == set(INVARIANTS)


@pytest.mark.parametrize(
    "breaking",
    [
        lambda sequence: f"DELETE FROM entries WHERE chat_no = 1 AND sequence = {sequence}",
        lambda sequence: f"UPDATE entries SET wire = NULL WHERE chat_no = 1 AND sequence = {sequence}",
    ],
)
@pytest.mark.parametrize("sequence", range(1, GROUP_ENTRIES + 1))
def test_a_breach_is_found_wherever_a_chunk_ends(
    breaking: Callable[[int], str], sequence: int, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With chunks of two entries, a lost or emptied entry is found at every place, and nothing else."""
    monkeypatch.setattr(check_log, "ENTRIES_PER_CHUNK", 2)
    monkeypatch.setattr(check_log, "KEYS_PER_CHUNK", 2)
    assert check_folder(data).is_clean
    if sequence != 4:  # the void has no body to lose
        change(data, breaking(sequence))
        found = {breach.sequence for breach in check_folder(data).breaches if breach.sequence}
        assert sequence in found


def test_an_expired_key_is_no_breach(data: Path) -> None:
    """A key that was let go after its days leaves its message whole."""
    change(data, "DELETE FROM idempotency_keys WHERE chat_id = 'chat_group'")
    assert check_folder(data).is_clean


def test_an_open_allocation_is_no_breach(data: Path) -> None:
    """A number that was just taken and not yet written is neither a hole nor lost."""
    change(
        data,
        f"UPDATE chat_counters SET sequence_counter = {GROUP_ENTRIES + 1} {GROUP}",
        f"INSERT INTO open_allocations VALUES (1, {GROUP_ENTRIES + 1}, {LATE_MS})",
    )
    findings = check_folder(data)
    assert (findings.breaches, findings.open_allocations) == ([], 1)


def test_only_the_named_chats_are_checked(data: Path) -> None:
    """A breach in one chat is not told when another was asked for."""
    change(data, f"DELETE FROM chat_counters {GROUP}")
    assert check_folder(data, ["chat_direct"]).is_clean
    assert not check_folder(data, ["chat_group"]).is_clean


def test_a_check_tells_how_far_it_is(data: Path) -> None:
    """Progress rises to all chats and all entries."""
    told: list[Progress] = []
    findings = check_folder(data, tell=told.append)
    assert told == sorted(told, key=lambda progress: (progress.chats, progress.entries))
    assert told[-1] == Progress(2, 2, findings.entries)


def test_a_check_changes_nothing(data: Path) -> None:
    """The files of a store are byte for byte the same after a check."""
    with closing(sqlite3.connect(data / "parley.db")) as writer:
        writer.execute("UPDATE users SET about = 'here'")
        writer.commit()
        before = {
            file.name: file.read_bytes() for file in data.glob("parley.db*") if file.suffix != ".db-shm"
        }
        check_folder(data)
        after = {file.name: file.read_bytes() for file in data.glob("parley.db*") if file.suffix != ".db-shm"}
    assert before == after
