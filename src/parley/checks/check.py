"""`parley check`: verifies the invariants of a store over the rows that its engine streams.

Rows are streamed, so memory stays small however big the store is, and servers may run meanwhile. Only this
module checks invariants. An engine reads rows (see `Inspection`), and adds breaches that only it can have.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from parley import ids
from parley.checks.accounts import ReadRecords, account_breaches
from parley.clock import from_iso
from parley.core import log_hash
from parley.core.log_hash import LogHash
from parley.errors import InconsistentCounterError, StoreDamaged, StoreUnavailable
from parley.model import ChatType, Role
from parley.store.invariants import (
    Breach,
    Findings,
    OnProgress,
    Progress,
    StoreUnreadable,
    no_progress,
)
from parley.store.maintenance import Inspection
from parley.store.paging import Row
from parley.store.rows import (
    EVERYTHING,
    ChatRow,
    CounterRow,
    EntryRow,
    KeyRow,
    LogChunk,
    MemberRow,
    PositionRow,
)
from parley.store.rules import STRAY_POSITIONS_MAX, direct_key
from parley.store.tables import LOG_HASHES
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

LATE_WRITE_MS_MAX = 60_000
"""How much later than a higher number a lower one may be written. Sealing allows far less."""
ROLES = frozenset(role.value for role in Role)

ArchivedRows = Callable[[ChatRow], AsyncIterator[list[Row]]]
"""The positions of a chat that were trimmed from its engine, in order, page by page."""

FROM_BACKUP = "restore a backup"
GIVE_UP = "restore the entries from a backup, or give them up: parley recover {chat} --seal-holes --apply"
SEAL_TAIL = "the next message makes them voids; to do it now: parley recover {chat} --seal-holes --apply"
RECOVER = "run: parley recover {chat}"
CLOCKS = "if a server's clock was wrong, set it (NTP); otherwise a program wrote below the end of the log"
MAKE_OWNER = "make a member its owner: set the role in chat_memberships to owner"
LOST_TAIL = (
    "entries were lost, or an older store was put back: restore a newer backup; if there is none, delete the"
    " row from {table}, and the device starts over"
)
CHANGED_LOG = (
    "entries were changed or lost: restore a backup; to keep what is there, delete the chat's log_hashes"
    " (docs/runbooks.md says how), and devices that had read it differently start over"
)
LOST_ARCHIVE = "see whether archive.target can be reached; then run: parley archive verify {chat}"
MARK_DELIVERED = "set last_acked_sequence of the row in delivery_state to its read_up_to"


class Checked(Protocol):
    """What of an engine is checked. May be used without `Engine.open`."""

    @property
    def inspection(self) -> Inspection: ...

    @property
    def records(self) -> ReadRecords: ...


async def check(
    store: Checked,
    chat_ids: Sequence[str] | None = None,
    on_progress: OnProgress = no_progress,
    *,
    whole: bool = True,
    archived: ArchivedRows | None = None,
    accounts: bool = True,
) -> Findings:
    """Check every chat, or only these; changes nothing. `whole`: see `Inspection.own_breaches`.

    `accounts`: with people, names and sessions, when all chats are checked.
    `archived`: reads what was moved to the cold tier, so that hashes are recomputed from the first entry on.
    """
    inspection = store.inspection
    findings = Findings(not_shown=inspection.not_shown)
    total = 0

    def report() -> None:
        on_progress(Progress(findings.chats, total, findings.entries))

    async def check_one(chat: ChatRow) -> None:
        async with slots:
            try:
                await check_chat(store, chat, findings, report, archived)
            except StoreUnreadable as error:  # another chat may be on sound pages
                findings.add(replace(error.breach, chat_id=chat.chat_id))
            report()

    slots = asyncio.Semaphore(inspection.chats_at_once_max)
    try:
        known_total = await inspection.chat_count() if chat_ids is None else None
        async for page in inspection.chats(chat_ids):
            total = known_total or total + len(page)
            await _all([asyncio.ensure_future(check_one(chat)) for chat in page])
        async for positions in inspection.positions(chat_ids):
            for position in positions:
                check_position(position, findings)
        async for breach in inspection.own_breaches(chat_ids, whole=whole):
            findings.add(breach)
        if accounts and chat_ids is None:
            async for breach in account_breaches(store.records):
                findings.add(breach)
    except StoreUnreadable as error:
        findings.add(error.breach)
    report()
    return findings


async def _all(tasks: list[asyncio.Future[None]]) -> None:
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def check_chat(
    store: Checked,
    chat: ChatRow,
    findings: Findings,
    report: Callable[[], None],
    archived: ArchivedRows | None = None,
) -> None:
    """Reads members before the log: the entry of a member who joins meanwhile is then in the log."""
    members = MembersCheck(chat, findings)
    async for member_rows in store.inspection.members(chat):
        members.feed(member_rows)
    log = await check_log(store, chat, findings, report, archived)
    members.finish(log.last)
    findings.chats += 1


async def check_log(
    store: Checked,
    chat: ChatRow,
    findings: Findings,
    report: Callable[[], None] = lambda: None,
    archived: ArchivedRows | None = None,
) -> LogCheck:
    """Checks one chat's log against its counter, its keys and its own entries."""
    log = LogCheck(chat, findings)
    hashes = LogHashCheck(chat, findings, stored_hashes(store.records, chat))
    if archived is not None and chat.trimmed_through:
        await hashes.feed_archived(archived(chat))
    async for chunk in store.inspection.log(chat):
        log.feed(chunk)
        await hashes.feed(chunk)
        report()
    async for keys in store.inspection.keys(chat):
        log.feed_keys(keys)
    return log


async def stored_hashes(records: ReadRecords, chat: ChatRow) -> AsyncIterator[list[LogHash]]:
    """Those of the chat's own epoch, in the order of their positions."""
    async for page in records.scan(LOG_HASHES, chat.chat_id):
        yield [LogHash(one.epoch, one.sequence, one.value) for one in page if one.epoch == chat.epoch]


class MembersCheck:
    """The members of one chat: known people with a role, who find the chat in their overview."""

    def __init__(self, chat: ChatRow, findings: Findings) -> None:
        self._chat = chat
        self._findings = findings
        self._count = self._owners = self._joined_max = 0
        self._first: list[str] = []
        """The first three, enough to see whether there are exactly two."""
        self._unknown_roles = self._without_account = self._not_in_overview = 0

    def feed(self, rows: list[MemberRow]) -> None:
        self._count += len(rows)
        for row in rows:
            self._owners += row.role == Role.OWNER.value
            self._unknown_roles += row.role not in ROLES
            self._without_account += not row.has_account
            self._not_in_overview += not row.in_overview
            self._joined_max = max(self._joined_max, row.joined_sequence)
        self._first = (self._first + [row.user_id for row in rows[:3]])[:3]

    def finish(self, log_end: int) -> None:
        """All members were seen; `log_end` was read after them."""
        problems = {
            "members have a role that does not exist": self._unknown_roles,
            "members have no account": self._without_account,
            "members miss the chat in their overview (no row in delivery_state)": self._not_in_overview,
        }
        for problem, count in problems.items():
            if count:
                self._breach("membership", f"{count} {problem}", FROM_BACKUP)
        if self._chat.chat_type == ChatType.GROUP.value and self._count and not self._owners:
            self._breach("membership", "the group has no owner", MAKE_OWNER)
        if self._joined_max > log_end:
            problem = f"a member joined at {self._joined_max}, the log ends at {log_end}"
            self._breach("membership", problem, FROM_BACKUP, self._joined_max)
        self._check_direct_key()

    def _check_direct_key(self) -> None:
        key, is_direct = self._chat.direct_key, self._chat.chat_type == ChatType.DIRECT.value
        own = direct_key(self._first)
        if is_direct and key != own:
            problem = f"the key of this direct chat is {key}, its members are {own}"
        elif is_direct and not self._chat.is_keyed:
            problem = f"the same two people have another direct chat: {own}"
        elif not is_direct and key is not None:
            problem = "this chat is a group, but has the key of a direct chat"
        else:
            return
        self._breach("direct_uniqueness", problem, FROM_BACKUP)

    def _breach(self, invariant: str, problem: str, remedy: str, sequence: int | None = None) -> None:
        self._findings.add(Breach(invariant, problem, remedy, self._chat.chat_id, sequence))


class LogHashCheck:
    """Computes the hash of one log along its rows, and compares it with every stored one it comes to."""

    def __init__(self, chat: ChatRow, findings: Findings, stored: AsyncIterator[list[LogHash]]) -> None:
        self._chat = chat
        self._findings = findings
        self._stored = stored
        self._page: deque[LogHash] = deque()
        self._next_at = 0
        """Where the next stored hash is, or may be."""
        self._at = chat.trimmed_through
        self._hash = None if self._at else log_hash.empty_log(chat.chat_id)
        """None: unknown. So it is in what remains of a trimmed log, up to the first stored one."""

    async def feed_archived(self, pages: AsyncIterator[list[Row]]) -> None:
        """What was trimmed, before the rest is fed. If it cannot be read, that is a breach."""
        self._at, self._hash = 0, log_hash.empty_log(self._chat.chat_id)
        try:
            async for page in pages:
                for _, wire in page:
                    await self._advance(_archived_row(self._at + 1, wire))
        except (StoreDamaged, StoreUnavailable) as error:
            chat_id = self._chat.chat_id
            remedy = LOST_ARCHIVE.format(chat=chat_id)
            self._findings.add(Breach("sync_completeness", str(error), remedy, chat_id, self._at + 1))
            self._at, self._hash = self._chat.trimmed_through, None

    async def feed(self, chunk: LogChunk) -> None:
        for row in chunk.rows:
            if row.sequence == self._at + 1:  # otherwise other invariants say what is wrong
                await self._advance(row)

    async def _advance(self, row: EntryRow) -> None:
        self._at += 1
        if self._hash is not None:
            self._hash = self._after(self._hash, row)
        if self._at >= self._next_at:
            await self._compare()

    def _after(self, previous: bytes, row: EntryRow) -> bytes | None:
        if row.is_void:
            return log_hash.after_void(previous, self._at)
        return None if row.entry is None else log_hash.after_entry(previous, row.entry)

    async def _compare(self) -> None:
        """After a difference go on from the stored hash: each change is reported once."""
        while not self._page or self._page[0].sequence < self._at:
            if self._page:
                self._page.popleft()
            elif (page := await anext(self._stored, None)) is not None:
                self._page.extend(page)
            else:
                self._next_at = EVERYTHING
                return
        stored = self._page[0]
        self._next_at = stored.sequence
        if stored.sequence == self._at:
            if self._hash is not None and self._hash != stored.value:
                problem = f"the entries up to {self._at} are not those of which the hash was stored"
                breach = Breach("log_hash_agreement", problem, CHANGED_LOG, self._chat.chat_id, self._at)
                self._findings.add(breach)
            self._hash = stored.value
            self._next_at += 1


class LogCheck:
    """The state of the check of one log, in constant memory."""

    def __init__(self, chat: ChatRow, findings: Findings) -> None:
        self._chat = chat
        self._findings = findings
        self._expected = chat.trimmed_through + 1
        self._certain_through = 0
        self._open: dict[int, int] = {}
        self._open_below: dict[int, int] = {}
        """Open numbers below an entry, with the time of their allocation."""
        self._messages = 0
        self._newest_rank = 0
        self._newest_at = ""
        self._last_key: str | bytes = ""
        self._last_key_sequence = 0
        self.counter: int | None = None

    @property
    def last(self) -> int:
        """The end of the log."""
        return self._expected - 1

    def _breach(self, invariant: str, sequence: int | None, problem: str, remedy: str) -> None:
        remedy = remedy.format(chat=self._chat.chat_id)
        self._findings.add(Breach(invariant, problem, remedy, self._chat.chat_id, sequence))

    def feed(self, chunk: LogChunk) -> None:
        self._open, self._certain_through = dict(chunk.open), chunk.certain_through
        self._expected = max(self._expected, chunk.trimmed_through + 1)
        for row in chunk.rows:
            sequence = row.sequence
            if not isinstance(sequence, int) or sequence < 1:
                at = sequence if isinstance(sequence, int) else None
                problem = f"an entry has the sequence {sequence!r}, which is not a whole number from 1"
                self._breach("no_zero_sequence", at, problem, FROM_BACKUP)
                continue
            if sequence != self._expected or self._open:
                self._check_position(sequence)
            self._expected = max(self._expected, sequence + 1)
            if row.is_void:
                self._check_void(sequence, row)
            else:
                self._check_entry(sequence, row)
        if chunk.end is not None:
            self._check_counter(chunk.end)

    # Positions

    def _check_position(self, sequence: int) -> None:
        """No sequence twice, and none missing between the last entry and this one."""
        if sequence < self._expected:
            problem = f"two entries have sequence {sequence}"
            self._breach("sequence_uniqueness", sequence, problem, FROM_BACKUP)
        elif sequence > self._expected:
            self._check_missing(self._expected, sequence - 1, is_below_entry=True)
        if self._open.pop(sequence, None) is not None:
            problem = f"number {sequence} is open and written: it was allocated twice"
            self._breach("add_operation_atomicity", sequence, problem, RECOVER)

    def _check_missing(self, first: int, last: int, *, is_below_entry: bool) -> bool:
        """Check numbers without an entry: any that is not open is a hole. Returns whether there is one."""
        certain = min(last, self._certain_through)
        self._findings.open_allocations += max(0, last - max(certain, first - 1))
        is_hole = False
        for number in [*sorted(number for number in self._open if first <= number <= certain), certain + 1]:
            if first < number:
                self._report_hole(first, number - 1, is_below_entry)
                is_hole = True
            if number <= certain:
                self._findings.open_allocations += 1
                if is_below_entry:
                    self._open_below[number] = self._open[number]
            first = number + 1
        return is_hole

    def _report_hole(self, first: int, last: int, is_below_entry: bool) -> None:
        numbers = f"number {first} is" if first == last else f"numbers {first} to {last} are"
        problem = f"{numbers} neither an entry nor a void nor open"
        remedy = GIVE_UP if is_below_entry else SEAL_TAIL
        self._breach("log_density", first, problem, remedy)
        self._breach("gap_is_allocation_without_persistence", first, problem, remedy)
        if is_below_entry:
            problem = f"readers stop at the hole before {last + 1} and never get the entries after it"
            self._breach("sync_completeness", first, problem, GIVE_UP)

    # Entries

    def _check_void(self, sequence: int, row: EntryRow) -> None:
        self._findings.voids += 1
        if row.has_content:
            problem = f"the void at {sequence} has parts of a message"
            self._breach("wire_agreement", sequence, problem, FROM_BACKUP)

    def _check_entry(self, sequence: int, row: EntryRow) -> None:
        self._findings.entries += 1
        self._messages += 1
        entry = row.entry
        if entry is None:
            if row.damage is not None:
                problem = f"the entry at {sequence} cannot be read: {row.damage}"
                self._breach("wire_agreement", sequence, problem, FROM_BACKUP)
            else:
                problem = f"the entry at {sequence} has no body, so no reader gets it"
                self._breach("sync_completeness", sequence, problem, FROM_BACKUP)
            return
        if entry.sequence != sequence:
            self._disagrees(sequence, "sequence", entry.sequence)
        if entry.chat_id != self._chat.chat_id:
            self._disagrees(sequence, "chat_id", entry.chat_id)
        if entry.kind != row.kind:
            self._disagrees(sequence, "kind", entry.kind)
        if not 1 <= entry.epoch <= self._chat.epoch:
            self._disagrees(sequence, "epoch", entry.epoch)
        if entry.server_timestamp != entry.created_at:
            self._disagrees(sequence, "server_timestamp", entry.server_timestamp)
        if entry.sender_id != row.sender_id:
            self._disagrees(sequence, "sender_id", entry.sender_id)
        if entry.message_id != row.message_id:
            self._disagrees(sequence, "message_id", entry.message_id)
        self._check_key(sequence, row, entry)
        self._check_order(sequence, row.position, entry.created_at)

    def _disagrees(self, sequence: int, name: str, value: object) -> None:
        problem = f"the entry at {sequence} has {name} {value}, its row has another"
        self._breach("wire_agreement", sequence, problem, FROM_BACKUP)

    def _check_key(self, sequence: int, row: EntryRow, entry: Entry) -> None:
        """A missing key has expired. An existing key must belong to this message and point to it."""
        if row.client_key is not None:
            wrong = ["message_id"] if entry.message_id != row.message_id else []
            if row.client_key != ids.client_key(entry.client_message_id or ""):
                wrong.append("client_message_id")
            if wrong:
                problem = f"the key of the entry at {sequence} names another {' and '.join(wrong)}"
                self._breach("idempotency_sequence_consistency", sequence, problem, FROM_BACKUP)
        if row.key_sequence is not None and row.key_sequence != sequence:
            self._report_duplicate(sequence, row.key_sequence, entry.client_message_id)

    def _check_order(self, sequence: int, position: int | None, created_at: str) -> None:
        """Concurrent writers may store entries slightly out of order, but never long after a higher one."""
        rank = position if position is not None else _ms(created_at)
        if rank >= self._newest_rank:
            self._newest_rank, self._newest_at = rank, created_at
        elif _ms(self._newest_at) - _ms(created_at) > LATE_WRITE_MS_MAX:
            problem = (
                f"an entry below {sequence} was stored at {self._newest_at}, long after it ({created_at})"
            )
            self._breach("stored_in_order", sequence, problem, CLOCKS)

    # The end of a log

    def _check_counter(self, end: CounterRow) -> None:
        self._check_open_below()
        counter = self.counter = end.counter
        if counter is None:
            self._breach("counter_must_exist", None, "this chat has no counter", f"{RECOVER} --apply")
            return
        has_hole = self._check_missing(self._expected, counter, is_below_entry=False)
        known = given = max([self.last, *self._open])
        if not has_hole and counter - known <= STRAY_POSITIONS_MAX:
            given = max(known, end.given_through)
        if counter > given:
            problem = f"the counter is {counter}, the last allocated number is {known}"
            self._breach("counter_is_last_allocated", None, problem, SEAL_TAIL)
        elif counter < known:
            problem = str(InconsistentCounterError(counter, known))
            self._breach("counter_is_last_allocated", None, problem, RECOVER)
        if counter < self.last:
            problem = str(InconsistentCounterError(counter, self.last))
            self._breach("entries_within_counter", self.last, problem, RECOVER)
        if counter < self._messages:
            problem = f"the chat has {self._messages} messages, its counter is {counter}"
            self._breach("counter_lower_bound", None, problem, RECOVER)
        if end.change > end.change_last:
            problem = f"the counter has change {end.change}, the last change is {end.change_last}"
            self._breach("change_order", None, problem, FROM_BACKUP)

    def _check_open_below(self) -> None:
        """No number may be allocated long after a higher one was stored."""
        for number, allocated_at_ms in self._open_below.items():
            if allocated_at_ms - _ms(self._newest_at) > LATE_WRITE_MS_MAX:
                problem = f"number {number} was allocated long after {self.last} was stored"
                self._breach("allocation_monotonicity", number, problem, RECOVER)

    # Keys

    def feed_keys(self, rows: list[KeyRow]) -> None:
        for row in rows:
            if row.key == self._last_key:
                self._report_duplicate(self._last_key_sequence, row.sequence, _text(row.key))
            if not row.agrees:
                problem = f"the key {_text(row.key)} names {row.message_id}, which is not at {row.sequence}"
                self._breach("idempotency_sequence_consistency", row.sequence, problem, FROM_BACKUP)
            self._last_key, self._last_key_sequence = row.key, row.sequence

    def _report_duplicate(self, sequence: int, other: int, client_message_id: str | None) -> None:
        problem = (
            f"the messages at {sequence} and {other} have the same client_message_id {client_message_id}"
        )
        self._breach("idempotency_guarantee", sequence, problem, FROM_BACKUP)


def check_position(row: PositionRow, findings: Findings) -> None:
    """Checks a position of a device or a person against its log."""

    def breach(invariant: str, sequence: int | None, problem: str, remedy: str) -> None:
        problem = f"{row.table}: {row.whose} {problem}"
        findings.add(Breach(invariant, problem, remedy.format(table=row.table), row.chat_id, sequence))

    furthest = max(row.acked, row.read)
    if row.log_end is not None and furthest > row.log_end:
        problem = f"is at {furthest}, the log ends at {row.log_end}"
        breach("delivery_state_consistency", furthest, problem, LOST_TAIL)
    if row.read > row.acked:
        problem = f"has read up to {row.read}, and only {row.acked} was delivered"
        breach("delivery_state_consistency", row.read, problem, MARK_DELIVERED)
    if not row.is_stored:
        problem = f"acknowledged {row.acked}, which is not in the log"
        breach("ack_implies_persistence", row.acked, problem, LOST_TAIL)
    if row.is_ahead:
        breach("change_order", None, "has a change beyond the last one", FROM_BACKUP)


def _archived_row(sequence: int, wire: bytes | None) -> EntryRow:
    """As much of a row as a hash needs."""
    try:
        return EntryRow(sequence, wire is None, entry=None if wire is None else decode_entry(wire))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return EntryRow(sequence, False)


def _ms(text: str) -> int:
    """0 for a time that cannot be parsed."""
    try:
        return from_iso(text)
    except ValueError:
        return 0


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.hex()
