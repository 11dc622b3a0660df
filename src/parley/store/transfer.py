"""The port `Transfer`: a part of the engine contract, which is in `store/ports.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from parley.errors import ConfigError
from parley.model import StoredEntry
from parley.store.records import Record


class Transfer(Protocol):
    """Every row of a store, to be read and written as it is: for `parley copy` and after a restore.

    May be used without `Engine.open`, by one command at a time. No server runs on the store meanwhile.
    """

    def records(self, kind: type[Record]) -> AsyncIterator[list[Record]]:
        """All records of a kind, page by page, in an order of the engine's own; pages may be empty."""
        ...

    async def put(self, records: Sequence[Record]) -> None:
        """Write records of one kind as they are, durable when it returns; those that are there are replaced.

        What a record refers to was put before it (see `RECORDS`). Puts of `KeptChat` come before the entries.
        """
        ...

    def positions(self, chat_id: str, after: int) -> AsyncIterator[list[StoredEntry]]:
        """The stored positions of a chat above a number, ascending, page by page. There may be holes."""
        ...

    async def put_positions(self, chat_id: str, positions: Sequence[StoredEntry]) -> None:
        """Write positions, ascending, with the keys that follow from them; durable when it returns.

        The same positions again change nothing. Those up to the end of the last call are all there.
        """
        ...

    async def log_ends(self, chat_ids: Sequence[str]) -> dict[str, int]:
        """The highest stored position of each chat; 0 if it has none."""
        ...

    async def settle(self, groups: Sequence[str], now_ms: int) -> None:
        """Everything in the log counts as done by these groups of workers, and as published.

        An overview with a token of an earlier life of the store lists every chat.
        """
        ...

    async def begin_anew(self, now_ms: int) -> int:
        """Give each chat an epoch that no earlier life of the store gave; returns how many chats.

        At least that of the time in seconds: the same backup may be restored twice. Every device then hears
        of every chat, and starts over. May be repeated.
        """
        ...


def require_transfer(transfer: Transfer | None, store: str = "this store") -> Transfer:
    """ConfigError, in one sentence, if the engine has none."""
    if transfer is None:
        raise ConfigError(
            f"{store} cannot be copied, imported into, exported by person or given new epochs:"
            " use another engine for that"
        )
    return transfer
