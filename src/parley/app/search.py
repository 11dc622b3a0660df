"""The search of a node: its index, what fills it, and whom it asks for chats whose index is elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parley.bodies.writer import Told
from parley.bus.ports import Bus
from parley.clock import wall_clock
from parley.config import Config
from parley.core.jobs import Job
from parley.search.fts import FtsIndex
from parley.search.indexer import SearchIndexer
from parley.search.service import LocalSearches, NoSearches, Searches
from parley.sending.amended_log import amended_log
from parley.store.folder import SEARCH_NAME
from parley.store.ports import Engine, Feed
from parley.telemetry import Metrics
from parley.testing import faults

if TYPE_CHECKING:
    from parley.app.cluster import ClusterNode
    from parley.cluster.searches import NewsTeller

SEARCH = "search"


@asynccontextmanager
async def told_of_removals(config: Config, store: Engine, metrics: Metrics) -> AsyncIterator[Told | None]:
    """For a command that erases bodies: who forgets them beside the store. The server may run meanwhile.

    That is the index in the data folder, if there is one; on a shared store every node that is up. One that
    is not compares its index when it starts.
    """
    folder = Path(config.server.data)
    if config.store.is_shared and config.redis.url and config.cluster.secret:
        from parley.app.cluster import command_forgets

        async with command_forgets(config, wall_clock) as forgets:
            yield forgets.compare
        return
    if config.store.is_shared or not (folder / SEARCH_NAME).exists():
        yield None
        return
    index = FtsIndex(folder)
    await index.open()
    try:
        yield SearchIndexer(store.log, index, metrics, no_chats).compare
    finally:
        await index.close()


async def no_chats() -> AsyncIterator[list[str]]:
    """Nothing is looked at from time to time."""
    yield []


class Search:
    """`searches` answers questions. `indexer`: fills the index of this node; None where it has none.

    `cluster`: the nodes that share the store, if it is shared. `feed`: what became durable on all of them.
    """

    def __init__(
        self,
        *,
        config: Config,
        store: Engine,
        metrics: Metrics,
        node_id: str,
        cluster: ClusterNode | None,
        feed: Feed | None,
        environment: Mapping[str, str],
    ) -> None:
        self._store = store
        self._feed = feed
        self._folder = Path(config.server.data)
        self.index: FtsIndex | None = None
        self.indexer: SearchIndexer | None = None
        self._fault_point = faults.fault_point_from(environment)
        self.searches: Searches = NoSearches()
        self._teller: NewsTeller | None = None
        is_here = config.search.enabled and SEARCH in config.cluster.roles
        if is_here:
            self.index = FtsIndex(self._folder, self._damaged)
        if cluster is not None and config.search.enabled:
            self._join(cluster, node_id, metrics)
        elif self.index is not None:
            self.indexer = indexer = SearchIndexer(
                store.log, self.index, metrics, self._all_chats, fault_point=self._fault_point
            )
            self.searches = LocalSearches(amended_log(store), self.index, indexer)

    def _join(self, cluster: ClusterNode, node_id: str, metrics: Metrics) -> None:
        """One of several nodes: it has the index of its share of the chats, or none."""
        from parley.cluster.searches import (
            NewsTeller,
            PeerSearches,
            SearchNodes,
            search_routes,
        )

        nodes = SearchNodes(node_id, self.index is not None, lambda: cluster.others(SEARCH))
        local = None
        if self.index is not None:
            self.indexer = indexer = SearchIndexer(
                self._store.log,
                self.index,
                metrics,
                self._known_chats,
                nodes.owns,
                is_alone=False,
                is_told=cluster.is_told,
                fault_point=self._fault_point,
            )
            local = LocalSearches(amended_log(self._store), self.index, indexer)
            cluster.add_routes(search_routes(local, indexer))
            self._teller = NewsTeller(nodes, cluster.calls, indexer.note)
        self.searches = PeerSearches(nodes, cluster.calls, local)

    @property
    def jobs(self) -> list[Job]:
        jobs = [self.indexer.job] if self.indexer is not None else []
        if self._teller is not None and self._feed is not None:
            jobs.append(
                Job(
                    name="search_news",
                    does="tells the node with a chat's index what was stored in the chat",
                    run=partial(self._teller.run, self._feed),
                    interval_seconds=None,
                    timeout_seconds=None,
                )
            )
        return jobs

    async def _all_chats(self) -> AsyncIterator[list[str]]:
        async for rows in self._store.inspection.chats(None):
            yield [row.chat_id for row in rows]

    async def _known_chats(self) -> AsyncIterator[list[str]]:
        """Those of the index; others come with their news, or with the first search of them."""
        assert self.index is not None
        yield list(await self.index.positions())

    def _damaged(self) -> None:
        """The index is empty again; told by the thread that writes it."""
        if self.indexer is not None:
            self.indexer.look_again()

    async def start(self, bus: Bus) -> None:
        if self.index is None:  # what is deleted from now on must not stay in an index of before
            for ending in ("", "-wal", "-shm"):
                (self._folder / f"{SEARCH_NAME}{ending}").unlink(missing_ok=True)
        elif self.indexer is not None:
            await self.index.open()
            bus.subscribe(self.indexer)

    async def close(self) -> None:
        if self.index is not None:
            await self.index.close()
