"""What commands ask a store and do to it, without a server: the same on every engine.

A store on SQLite is a folder, one on DynamoDB is named by the configuration. Either may be at work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from parley.cli.places import Place
from parley.clock import wall_clock
from parley.store.checks import Findings, Tell
from parley.store.listed import ListedChat, ListedMember, ListedUser
from parley.store.recovery import Recovery


class Listing(Protocol):
    """Who and what is there, as of now."""

    def users(self) -> list[ListedUser]:
        """Everybody, by name."""
        ...

    def user_id_of(self, name: str) -> str | None:
        """The person of this username or id."""
        ...

    def chats(self, of_user_id: str | None = None) -> list[ListedChat]:
        """Every chat, or those of one person."""
        ...

    def find_chats(self, name: str) -> list[ListedChat]:
        """The chats that a person may mean: by id, else by title, else `alice,bob` for their direct chat."""
        ...

    def members(self, chat_id: str) -> list[ListedMember]:
        """Who is in a chat."""
        ...


class Keeping(Protocol):
    """Whether the store is whole, and the repair of lost counters."""

    def check(self, chat_ids: Sequence[str] | None, tell: Tell, *, whole: bool) -> Findings:
        """Check every chat, or only these; changes nothing."""
        ...

    def chats_without_counter(self) -> list[str]:
        """What `recover --all` takes."""
        ...

    def recover(self, chat_id: str, *, apply: bool, seal_holes: bool) -> Recovery:
        """Look, decide and, if asked to, write and verify."""
        ...

    def how_to_delete_counter(self, chat_id: str) -> str:
        """What a person types who has decided that a counter is wrong."""
        ...


class Records(Listing, Keeping, Protocol):
    """One store, for commands."""


def records_of(place: Place) -> Records:
    """The store of a place; CommandFailed when there is none."""
    if place.is_shared:
        from parley.cli.shared_records import SharedRecords

        return SharedRecords(place.settings)
    return FolderRecords(place.require_store())


class FolderRecords:
    """SQLite in a folder."""

    def __init__(self, folder: Path) -> None:
        from parley.store.sqlite import listing
        from parley.store.sqlite.beside import connect_beside

        self._folder = folder
        self._listing = listing
        self._connect = partial(connect_beside, folder, read_only=True)

    def users(self) -> list[ListedUser]:
        with self._connect() as connection:
            return list(self._listing.users(connection, wall_clock()))

    def user_id_of(self, name: str) -> str | None:
        with self._connect() as connection:
            return self._listing.user_id_of(connection, name)

    def chats(self, of_user_id: str | None = None) -> list[ListedChat]:
        with self._connect() as connection:
            return list(self._listing.chats(connection, of_user_id))

    def find_chats(self, name: str) -> list[ListedChat]:
        with self._connect() as connection:
            return self._listing.find_chats(connection, name)

    def members(self, chat_id: str) -> list[ListedMember]:
        with self._connect() as connection:
            return self._listing.members(connection, chat_id)

    def check(self, chat_ids: Sequence[str] | None, tell: Tell, *, whole: bool) -> Findings:
        from parley.store.sqlite.check import check_folder

        return check_folder(self._folder, chat_ids, tell, whole_file=whole)

    def chats_without_counter(self) -> list[str]:
        from parley.store.sqlite.repair import chats_without_counter

        return chats_without_counter(self._folder)

    def recover(self, chat_id: str, *, apply: bool, seal_holes: bool) -> Recovery:
        from parley.store.sqlite.repair import recover

        return recover(self._folder, chat_id, wall_clock, apply=apply, seal_holes=seal_holes)

    def how_to_delete_counter(self, chat_id: str) -> str:
        return (
            f"sqlite3 {self._folder}/parley.db \"DELETE FROM chat_counters WHERE chat_id = '{chat_id}'\""
            f"\nparley recover {chat_id} --data {self._folder} --apply"
        )
