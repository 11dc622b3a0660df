"""What a node keeps of bodies beside the store, and how it forgets them."""

from __future__ import annotations

from parley.archive.reader import ArchiveReader
from parley.archive.tiers import TieredEngine
from parley.gateway.hub import Hub
from parley.search.indexer import SearchIndexer
from parley.store.ports import Engine


class NodeMemory:
    """`indexer`: of the search index, if this node has one."""

    def __init__(self, store: Engine, hub: Hub, indexer: SearchIndexer | None) -> None:
        self.archive: ArchiveReader | None = store.archive if isinstance(store, TieredEngine) else None
        self._hub = hub
        self._indexer = indexer

    async def forget(self, chat_id: str, sequences: list[int] | None) -> None:
        """Nothing of these messages is left here; None: nothing that the log of the chat no longer has."""
        if self.archive is not None:
            self.archive.forget(chat_id)
        self._hub.forget(chat_id)
        if self._indexer is None:
            return
        if sequences is None:
            await self._indexer.compare(chat_id)
        else:
            await self._indexer.forget(chat_id, sequences)

    async def compare(self, chat_id: str) -> None:
        await self.forget(chat_id, None)

    def forget_all(self) -> None:
        """Bodies may have been removed that this node was not told of."""
        if self.archive is not None:
            self.archive.forget_all()
        self._hub.forget_all()
        if self._indexer is not None:
            self._indexer.compare_again()
