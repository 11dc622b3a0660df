"""What a store in one file offers for backups: its rows as parts, and a new store from such parts."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from parley.store.rows import ArchiveMark


class EntryRange(Struct, frozen=True):
    """Some entries in commit order: after one position, up to another."""

    after: int
    through: int
    entries: int


class StoredFile(Struct, frozen=True):
    """A complete attachment. `is_going`: its message is about to lose it, and still has it."""

    attachment_id: str
    size: int
    sha256: str
    is_going: bool


class StoreState(Struct, frozen=True):
    """What a snapshot of the tables beside the entries holds. `marks`: of the chats that are archived.

    `files`: those that a message has, or may get.
    """

    schema_version: int
    chats: int
    people: int
    marks: dict[str, ArchiveMark]
    files: list[StoredFile]


class SnapshotParts(Struct, frozen=True, kw_only=True):
    """The last entries and the other tables, as of one moment."""

    entries: EntryRange
    entries_part: bytes
    state: StoreState
    state_part: bytes


class BackupSource(Protocol):
    """A store, whether or not a server runs on it. No read waits for a writer, or makes one wait."""

    def tail(self, through: int) -> str | None:
        """A digest of the last entries up to a position; None if the store has no entry there."""
        ...

    def last_rewrite(self) -> int | None:
        """The number of the last change of entries that were there; None if the store does not count them."""
        ...

    def rewritten(self, since: int) -> list[tuple[int, int]]:
        """The first and the last position of each stretch in which entries were changed or removed since."""
        ...

    def entries(self, after: int) -> tuple[EntryRange, bytes] | None:
        """The next entries as a part, in a short transaction; None if they do not fill one."""
        ...

    def stretch(self, after: int, through: int) -> tuple[EntryRange, bytes]:
        """The entries up to a position as a part, or as many of them as fill one."""
        ...

    def rest(self, after: int, since: int) -> SnapshotParts:
        """The last entries, and everything else, of one snapshot.

        With it what entries before are by now, if they were changed `since`.
        """
        ...


class RestoreTarget(Protocol):
    """A store that is being built from the parts of a backup."""

    def add_entries(self, part: bytes) -> int:
        """The next entries; returns how many."""
        ...

    def set_rest(self, part: bytes) -> None:
        """Everything else, last. StoreUnavailable if the entries are not those of its snapshot."""
        ...
