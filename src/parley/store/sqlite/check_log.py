"""One chat's log against its counter, its keys and its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec
from msgspec import Struct, field

from parley import ids
from parley.clock import from_iso
from parley.errors import InconsistentCounterError
from parley.store.checks import Breach, Findings
from parley.store.sqlite import schema
from parley.store.sqlite.beside import snapshot
from parley.wire.frames import Entry

ENTRIES_PER_CHUNK = 2_000
KEYS_PER_CHUNK = 20_000
PEOPLE_REMEMBERED_MAX = 10_000
LATE_WRITE_MS_MAX = 60_000
"""How much later than a higher number a lower one may be written: far more than sealing allows."""

ROWS = (
    "SELECT position, sequence, kind, sender_no, client_id, message_id, wire FROM entries"
    " WHERE chat_no = ? AND (sequence, position) > (?, ?) ORDER BY sequence, position LIMIT ?"
)
COUNTER = "SELECT sequence_counter, change, (SELECT last FROM changes) FROM chat_counters WHERE chat_id = ?"
OPEN = "SELECT sequence, allocated_at_ms FROM open_allocations WHERE chat_no = ? AND sequence > ?"
KEYS = (
    "SELECT client_id, count(*), min(sequence), max(sequence) FROM entries"
    " WHERE chat_no = ? AND client_id > ? GROUP BY client_id ORDER BY client_id LIMIT ?"
)

FROM_BACKUP = "restore a backup"
GIVE_UP = "restore the entries from a backup, or give them up: parley recover {chat} --seal-holes --apply"
SEAL_TAIL = "the next message makes them voids; to do it now: parley recover {chat} --seal-holes --apply"
RECOVER = "run: parley recover {chat}"

decode_entry = msgspec.json.Decoder(Entry).decode

Row = tuple[Any, ...]


class Chunk(Struct):
    """A stretch of one log at one moment. `is_last`: there is nothing behind it."""

    counter: int | None
    rows: list[Row]
    open: dict[int, int]
    change: int
    last_change: int
    is_last: bool


class Walk(Struct):
    """How far one log was walked, in constant memory."""

    chat_no: int
    chat_id: str
    epoch: int
    after: tuple[int, int] = (0, 2**62)
    """The sequence and the place in commit order of the last row that was seen."""
    expected: int = 1
    count: int = 0
    newest_position: int = 0
    newest_at: str = ""
    open: dict[int, int] = field(default_factory=dict)


class LogCheck:
    def __init__(self, connection: apsw.Connection, findings: Findings) -> None:
        self._connection = connection
        self._findings = findings
        self._people: dict[int, str | None] = {}

    def check(self, chat_no: int, chat_id: str, epoch: int, tell: Callable[[], None]) -> None:
        walk = Walk(chat_no, chat_id, epoch)
        self._check_lowest(walk)
        while True:
            chunk = self._read(walk)
            self._check_chunk(walk, chunk)
            tell()
            if chunk.is_last:
                break
        self._check_end(walk, chunk)
        self._check_keys(walk)

    def _breach(self, walk: Walk, invariant: str, sequence: int | None, says: str, remedy: str) -> None:
        remedy = remedy.format(chat=walk.chat_id)
        self._findings.add(Breach(invariant, says, remedy, walk.chat_id, sequence))

    def _read(self, walk: Walk) -> Chunk:
        execute = self._connection.execute
        with snapshot(self._connection):
            counter: Any = execute(COUNTER, (walk.chat_id,)).fetchone()
            rows: list[Row] = execute(ROWS, (walk.chat_no, *walk.after, ENTRIES_PER_CHUNK)).fetchall()
            unresolved: Any = execute(OPEN, (walk.chat_no, walk.expected - 1)).fetchall()
        is_last = len(rows) < ENTRIES_PER_CHUNK or not isinstance(rows[-1][1], int)
        value, change, last_change = counter or (None, 0, 0)
        return Chunk(value, rows, dict(unresolved), change, last_change, is_last)

    def _check_lowest(self, walk: Walk) -> None:
        rows: list[Row] = self._connection.execute(
            "SELECT sequence FROM entries WHERE chat_no = ? AND sequence < 1 LIMIT 10", (walk.chat_no,)
        ).fetchall()
        for (sequence,) in rows:
            self._breach(walk, "no_zero_sequence", sequence, f"an entry has sequence {sequence}", FROM_BACKUP)

    # One chunk

    def _check_chunk(self, walk: Walk, chunk: Chunk) -> None:
        walk.open = dict(chunk.open)
        for row in chunk.rows:
            sequence = row[1]
            if not isinstance(sequence, int):
                says = f"an entry has the sequence {sequence!r}, which is no whole number"
                self._breach(walk, "no_zero_sequence", None, says, FROM_BACKUP)
                continue
            self._check_place(walk, sequence)
            self._check_row(walk, row)
            walk.expected = max(walk.expected, sequence + 1)
            walk.after = sequence, row[0]

    def _check_place(self, walk: Walk, sequence: int) -> None:
        """Nothing twice, nothing missing between the last number and this one."""
        if sequence < walk.expected:
            says = f"two entries have sequence {sequence}"
            self._breach(walk, "sequence_uniqueness", sequence, says, FROM_BACKUP)
        elif sequence > walk.expected:
            self._check_missing(walk, walk.expected, sequence - 1, is_below_entry=True)
        if sequence in walk.open:
            says = f"number {sequence} is open and written: it was given twice"
            self._breach(walk, "add_operation_atomicity", sequence, says, RECOVER)
            del walk.open[sequence]

    def _check_missing(self, walk: Walk, first: int, last: int, *, is_below_entry: bool) -> None:
        """Numbers without an entry: open ones are fine, anything else is a hole."""
        for number in sorted(n for n in walk.open if first <= n <= last):
            self._tell_hole(walk, first, number - 1, is_below_entry)
            first = number + 1
        self._tell_hole(walk, first, last, is_below_entry)

    def _tell_hole(self, walk: Walk, first: int, last: int, is_below_entry: bool) -> None:
        if first > last:
            return
        numbers = f"number {first} is" if first == last else f"numbers {first} to {last} are"
        says = f"{numbers} neither an entry nor a void nor open"
        remedy = GIVE_UP if is_below_entry else SEAL_TAIL
        self._breach(walk, "log_density", first, says, remedy)
        self._breach(walk, "gap_is_allocation_without_persistence", first, says, remedy)
        if is_below_entry:
            says = f"readers stop at the hole before {last + 1} and never see what follows"
            self._breach(walk, "sync_completeness", first, says, GIVE_UP)

    # One row

    def _check_row(self, walk: Walk, row: Row) -> None:
        position, sequence, kind, sender_no, client_id, message_id, wire = row
        if kind == schema.VOID:
            self._findings.voids += 1
            if not (client_id is message_id is wire is None):
                says = f"the void at {sequence} carries a message"
                self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)
            return
        self._findings.entries += 1
        walk.count += 1
        entry = self._decode(walk, sequence, wire)
        if entry is not None:
            self._check_words(walk, sequence, kind, entry)
            self._check_ids(walk, sequence, client_id, message_id, entry)
            self._check_sender(walk, sequence, sender_no, entry)
            self._check_order(walk, sequence, position, entry.created_at)

    def _decode(self, walk: Walk, sequence: int, wire: bytes | None) -> Entry | None:
        if wire is None:
            says = f"the entry at {sequence} has no body, so readers take it for a void"
            self._breach(walk, "sync_completeness", sequence, says, FROM_BACKUP)
            return None
        try:
            return decode_entry(wire)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            says = f"the entry at {sequence} cannot be read: {error}"
            self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)
            return None

    def _check_words(self, walk: Walk, sequence: int, kind: int, entry: Entry) -> None:
        expected_kind = schema.MESSAGE if entry.kind == "message" else schema.OTHER
        agrees = {
            "chat_id": entry.chat_id == walk.chat_id,
            "sequence": entry.sequence == sequence,
            "kind": kind == expected_kind,
            "epoch": 1 <= entry.epoch <= walk.epoch,
            "server_timestamp": entry.server_timestamp == entry.created_at,
        }
        for name, is_right in agrees.items():
            if not is_right:
                says = f"the entry at {sequence} says {name} {getattr(entry, name)}, its row says otherwise"
                self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)

    def _check_ids(
        self, walk: Walk, sequence: int, client_id: bytes | None, message_id: bytes | None, entry: Entry
    ) -> None:
        own_key = ids.client_key(entry.client_message_id) if entry.client_message_id else None
        wrong = []
        if message_id is None or _message_id(message_id) != entry.message_id:
            says = f"the entry at {sequence} says message_id {entry.message_id}, its row says otherwise"
            self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)
            wrong.append("message_id")
        # A key that is gone is one that was let go; a key that is there must be this message's own.
        if client_id is not None and client_id != own_key:
            wrong.append("client_message_id")
        if client_id is not None and wrong:
            says = f"the key of the entry at {sequence} names another {' and '.join(wrong)}"
            self._breach(walk, "idempotency_sequence_consistency", sequence, says, FROM_BACKUP)

    def _check_sender(self, walk: Walk, sequence: int, sender_no: int | None, entry: Entry) -> None:
        if sender_no is None or self._person(sender_no) != entry.sender_id:
            says = f"the entry at {sequence} says sender_id {entry.sender_id}, its row says otherwise"
            self._breach(walk, "wire_agreement", sequence, says, FROM_BACKUP)

    def _person(self, user_no: int) -> str | None:
        if user_no not in self._people:
            if len(self._people) >= PEOPLE_REMEMBERED_MAX:
                self._people.clear()
            self._people[user_no] = self._connection.execute(
                "SELECT user_id FROM users WHERE user_no = ?", (user_no,)
            ).get
        return self._people[user_no]

    def _check_order(self, walk: Walk, sequence: int, position: int, created_at: str) -> None:
        """Two writers may overtake each other by moments; nobody may write below what is long stored."""
        if position > walk.newest_position:
            walk.newest_position, walk.newest_at = position, created_at
        elif _ms_between(created_at, walk.newest_at) > LATE_WRITE_MS_MAX:
            says = f"an entry below {sequence} was stored at {walk.newest_at}, long after it ({created_at})"
            self._breach(walk, "sequence_monotonic", sequence, says, FROM_BACKUP)

    # The end of a log

    def _check_end(self, walk: Walk, chunk: Chunk) -> None:
        last = walk.expected - 1
        highest = max([last, *chunk.open])
        self._findings.open_allocations += len(chunk.open)
        self._check_open(walk, chunk)
        if chunk.counter is None:
            self._breach(walk, "counter_must_exist", None, "this chat has no counter", f"{RECOVER} --apply")
            return
        if chunk.counter > highest:
            says = f"the counter is {chunk.counter}, the last number given is {highest}"
            self._breach(walk, "counter_is_last_allocated", None, says, RECOVER)
        elif chunk.counter < highest:
            says = str(InconsistentCounterError(chunk.counter, highest))
            self._breach(walk, "counter_is_last_allocated", None, says, RECOVER)
        self._check_missing(walk, walk.expected, chunk.counter, is_below_entry=False)
        self._check_bounds(walk, chunk, chunk.counter, last)

    def _check_bounds(self, walk: Walk, chunk: Chunk, counter: int, last: int) -> None:
        if last > counter:
            says = str(InconsistentCounterError(counter, last))
            self._breach(walk, "sequence_monotonicity", last, says, RECOVER)
        if walk.count > counter:
            says = f"the chat has {walk.count} messages, its counter is {counter}"
            self._breach(walk, "counter_lower_bound", None, says, RECOVER)
        if chunk.change > chunk.last_change:
            says = f"the counter has change {chunk.change}, the last change is {chunk.last_change}"
            self._breach(walk, "change_order", None, says, FROM_BACKUP)

    def _check_open(self, walk: Walk, chunk: Chunk) -> None:
        """A number that was taken long after a higher one was stored went backwards."""
        if not chunk.open or not walk.newest_at or walk.expected - 1 <= min(chunk.open):
            return
        for number, allocated_at_ms in chunk.open.items():
            if number < walk.expected - 1 and allocated_at_ms - _ms(walk.newest_at) > LATE_WRITE_MS_MAX:
                says = f"number {number} was allocated long after {walk.expected - 1} was stored"
                self._breach(walk, "allocation_monotonicity", number, says, RECOVER)

    def _check_keys(self, walk: Walk) -> None:
        after = b""
        while rows := self._key_groups(walk.chat_no, after):
            for client_id, count, first, last in rows:
                if count > 1:
                    says = f"{count} messages, at {first} to {last}, have the key {bytes(client_id).hex()}"
                    self._breach(walk, "idempotency_guarantee", first, says, FROM_BACKUP)
            after = rows[-1][0]

    def _key_groups(self, chat_no: int, after: bytes) -> list[Row]:
        rows: list[Row] = self._connection.execute(KEYS, (chat_no, after, KEYS_PER_CHUNK)).fetchall()
        return rows


def _message_id(key: bytes) -> str:
    number = int.from_bytes(key, "big")
    return ids.MESSAGE + ids.ulid(number >> ids.RANDOM_BITS, number)


def _ms(text: str) -> int:
    try:
        return from_iso(text)
    except ValueError:
        return 0


def _ms_between(earlier: str, later: str) -> int:
    """How much later one time is; not at all when either cannot be read."""
    return _ms(later) - _ms(earlier) if earlier < later else 0
