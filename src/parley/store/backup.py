"""What a store in one file offers for backups: its rows as files, and a new store from such files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct


class EntryRange(Struct, frozen=True):
    """Some entries in commit order: after one position, up to another."""

    after: int
    through: int
    entries: int


class StoreState(Struct, frozen=True):
    """What a snapshot of the tables beside the entries holds."""

    schema_version: int
    chats: int
    people: int


class BackupSource(Protocol):
    """A store, whether or not a server runs on it. No read waits for a writer, or makes one wait."""

    def tail(self, through: int) -> str | None:
        """A digest of the last entries up to a position; None if the store has no entry there."""
        ...

    def write_entries(self, path: Path, after: int) -> EntryRange | None:
        """Write the next entries to a file, in a short transaction; None if they do not fill a part."""
        ...

    def write_rest(self, entries_path: Path, state_path: Path, after: int) -> tuple[EntryRange, StoreState]:
        """Write the last entries, and everything else, of one snapshot."""
        ...


class RestoreTarget(Protocol):
    """A store that is being built from the files of a backup."""

    def add_entries(self, path: Path) -> int:
        """The next entries; returns how many."""
        ...

    def set_rest(self, path: Path) -> None:
        """Everything else, last. StoreUnavailable if the entries are not those of its snapshot."""
        ...
