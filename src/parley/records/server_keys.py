"""Secrets that all nodes of a server share."""

from __future__ import annotations

from parley.records.book import Book
from parley.store.ports import Records
from parley.store.tables import SERVER_KEYS, ServerKey


class ServerKeys:
    def __init__(self, records: Records) -> None:
        self._book = Book(records, SERVER_KEYS)

    async def key(self, name: str, new: str) -> str:
        """The server's key of this name: the one that was stored first, by whichever node."""
        return (await self._book.add(ServerKey(name=name, value=new))).value
