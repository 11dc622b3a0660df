"""Typed rows that an engine gives to commands, `parley.checks`."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct, field

from parley.model import QuietHours
from parley.wire.frames import Entry

EVERYTHING = 2**63 - 1
"""Above every sequence."""


# Listing: what commands show


class ListedUser(Struct):
    user_id: str
    username: str
    display_name: str
    is_operator: bool
    state: str
    created_at: str
    chats: int
    sessions: int


class ListedChat(Struct):
    """`title` of a direct chat is the names of its members; `sequence_counter` is None if it is missing."""

    chat_id: str
    type: str
    title: str | None
    members: int
    sequence_counter: int | None
    created_at: str


class ListedMember(Struct):
    user_id: str
    username: str | None
    role: str
    joined_at: str
    joined_sequence: int
    last_acked_sequence: int
    read_up_to: int


# Doctor: what an operator should know

Health = Literal["ok", "look", "wrong"]
"""`look`: it works, and could be better; `wrong`: it does not work, or soon will not."""


class StoreCounts(Struct, frozen=True):
    """How many accounts and chats a store has."""

    people: int
    chats: int


class Finding(Struct, omit_defaults=True):
    """One line of `parley doctor`."""

    state: Health
    what: str
    says: str
    remedy: str = ""


# Check: what is verified


class ArchiveMark(Struct, frozen=True, kw_only=True):
    """How far a chat's log is in the cold tier.

    `version`, `manifest`: the number and the digest of its newest manifest; 0 without one.
    """

    archived_through: int = 0
    """The manifest has every position up to here."""
    trimmed_through: int = 0
    """The engine has none up to here: it reads, writes and seals nothing there. Never more than archived."""
    version: int = 0
    manifest: str = ""
    is_trimming: bool = False
    """Positions up to `trimmed_through` may be left in the tables: `Entries.trim` has not finished."""


class ChatRow(Struct):
    """`is_keyed`: whether the key of a direct chat points to this chat and to no other."""

    chat_id: str
    chat_type: str
    epoch: int
    direct_key: str | None
    is_keyed: bool
    trimmed_through: int = 0
    """Entries up to here may have been deleted."""
    resolved_through: int = 0
    """Readers have passed this number, so nothing up to it is open; 0 if the engine has no such mark."""
    archive: ArchiveMark = ArchiveMark()


class MemberRow(Struct):
    """`in_overview`: whether the member finds the chat in their overview."""

    user_id: str
    role: str
    joined_sequence: int
    has_account: bool
    in_overview: bool


class EntryRow(Struct):
    """A position of a log: its entry, and the columns of its row.

    If the engine has no column for a field, it copies the field from the entry.
    """

    sequence: object
    """A whole number from 1, if nothing is broken."""
    is_void: bool
    kind: str = ""
    entry: Entry | None = None
    """None: it is a void, it has no body, or the body cannot be read."""
    damage: str | None = None
    """Why the body cannot be read. None: it can, or there is none."""
    has_content: bool = False
    """Of a void: whether it has parts of a message."""
    message_id: str | None = None
    sender_id: str | None = None
    client_key: bytes | None = None
    """The idempotency key, if the engine stores it with the entry."""
    key_sequence: int | None = None
    """Where the idempotency key of this message points to, if the engine stores keys apart from entries."""
    position: int | None = None
    """The place in commit order, if the engine has one."""


class CounterRow(Struct):
    """The counter of a chat, read with the last entries of its log or after them.

    `given_through`: the highest number that the engine knows to be allocated, besides entries and open
    numbers. `change`: the change number of the counter. `change_last`: that of the store's last change.
    """

    counter: int | None
    given_through: int = 0
    change: int = 0
    change_last: int = 0


class LogChunk(Struct):
    """Successive entries of one log, in the order of their numbers.

    A number up to `certain_through` that is neither in `rows` nor in `open` is a hole; a higher one may be
    allocated and not written yet. `open`: numbers that are allocated and not written, with the time.
    """

    rows: list[EntryRow]
    certain_through: int = EVERYTHING
    open: dict[int, int] = field(default_factory=dict)
    trimmed_through: int = 0
    """Up to where the log was trimmed when this was read: more than the check began with, perhaps."""
    end: CounterRow | None = None
    """Only with the last chunk of a log."""


class KeyRow(Struct):
    """An idempotency key and where it points to. `agrees`: the message there belongs to the key."""

    key: str | bytes
    sequence: int
    agrees: bool = True
    message_id: str = ""


class PositionRow(Struct):
    """How far a device or a person is in a chat that exists.

    `is_stored`: the acknowledged position is in the log, or was trimmed from it. `log_end`: the end of the
    log; may be None if both positions are in it. `is_ahead`: its change number is above the last change.
    """

    table: str
    chat_id: str
    whose: str
    acked: int
    read: int
    is_stored: bool
    log_end: int | None = None
    is_ahead: bool = False


# The cold tier


class ChatRetention(Struct, frozen=True, kw_only=True):
    """What an operator has decided for one chat: `days` overrides `retention.days`, 0 keeps for ever.

    `is_held`: under a legal hold, nothing of it is removed, whatever else says so.
    """

    days: int | None = None
    is_held: bool = False


# Recovery: what the decision depends on


class Remains(Struct, kw_only=True):
    """The highest number of a chat in each table; 0 where there is none.

    `voids` counts only those beyond the last entry.
    """

    chat_id: str
    counter: int | None
    entries: int
    voids: int = 0
    open_allocations: int = 0
    keys: int = 0
    trimmed: int = 0
    device_cursors: int = 0
    delivery_state: int = 0

    @property
    def log_end(self) -> int:
        """The highest number in the log itself."""
        return max(self.entries, self.voids, self.open_allocations, self.keys, self.trimmed)

    @property
    def maximum(self) -> int:
        """The highest number of all: the chat continues after it."""
        return max(self.log_end, self.device_cursors, self.delivery_state)


class Repair(Struct):
    """What is written to a chat: its counter if `counter_is_lost`, and voids at ranges of numbers."""

    chat_id: str
    counter: int
    counter_is_lost: bool
    voids: list[tuple[int, int]]
    remains: Remains
    """The facts of the decision."""


decode_quiet_hours = msgspec.json.Decoder(QuietHours).decode


def quiet_text(hours: QuietHours | None) -> str | None:
    """As the stores keep it."""
    return None if hours is None else msgspec.json.encode(hours).decode()


def quiet_hours(text: str) -> QuietHours:
    return decode_quiet_hours(text)
