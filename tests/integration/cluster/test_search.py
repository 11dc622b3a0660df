"""Searches over several nodes: each has the index of its share, and nobody leaves out what another has."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from parley.clock import wall_clock
from parley.cluster.calls import SignedCalls
from parley.cluster.forget_calls import PeerForgets, forget_routes
from parley.cluster.peers import ClusterPeers
from parley.cluster.searches import (
    SEARCH,
    NewsTeller,
    PeerSearches,
    SearchNodes,
    merged,
    search_routes,
)
from parley.cluster.server import NodeServer
from parley.config import ClusterConfig
from parley.core.cluster_keys import ClusterKeys
from parley.core.message_actions import tombstone
from parley.errors import Refused, StoreUnavailable
from parley.model import Persisted, StoredEntry
from parley.search.fts import FtsIndex
from parley.search.indexer import SearchIndexer
from parley.search.service import LocalSearches, SearchQuestion, SearchService
from parley.telemetry import Metrics
from tests.contracts.acting import add_group, add_people, message, stored
from tests.contracts.engines import OpenStore, SqliteEngine
from tests.contracts.life_world import LifeWorld, delete
from tests.integration.cluster.two_nodes import SECRET, Hearing
from tests.unit.cluster.fakes import FakeNodes

CHATS = 12


class SearchNode:
    """The part of a node that searches. Without the role it only asks others."""

    def __init__(self, name: str, listed: FakeNodes, store: OpenStore, folder: Path, *, is_one: bool) -> None:
        self.name = name
        self.metrics = Metrics(wall_clock)
        keys, target = ClusterKeys(SECRET), f"{name}.{random.getrandbits(64):x}"
        self.calls = SignedCalls(keys, clock=wall_clock, random_bytes=random.randbytes)
        roles = (SEARCH,) if is_one else ("gateway",)
        self.peers = ClusterPeers(
            node_id=name, roles=roles, nodes=listed, calls=self.calls, metrics=self.metrics, target=target
        )
        self.nodes = SearchNodes(name, is_one, lambda: self.peers.others(SEARCH))
        self.index = FtsIndex(folder / name)
        self.indexer = SearchIndexer(
            store.log, self.index, self.metrics, self._chats, self.nodes.owns, is_alone=False
        )
        local = LocalSearches(store.log, self.index, self.indexer)
        self.teller = NewsTeller(self.nodes, self.calls, self.indexer.note)
        self.searches = PeerSearches(self.nodes, self.calls, local if is_one else None)
        self.comparing = PeerForgets(self.peers.told, self.calls, self._forget)
        self.service = SearchService(self.searches, store.directory, store.relations)
        self.server = NodeServer(
            ClusterConfig(),
            keys=keys,
            target=target,
            clock=wall_clock,
            sender=None,
            listener=Hearing(),
            routes=[*forget_routes(self._forget), *(search_routes(local, self.indexer) if is_one else [])],
        )

    async def _forget(self, chat_id: str, sequences: list[int] | None) -> None:
        if sequences is None:
            await self.indexer.compare(chat_id)
        else:
            await self.indexer.forget(chat_id, sequences)

    async def _chats(self) -> AsyncIterator[list[str]]:
        yield list(await self.index.positions())

    async def start(self) -> None:
        await self.index.open()
        await self.peers.start(await self.server.start())

    async def stop(self) -> None:
        await self.peers.withdraw()
        await self.server.close()
        await self.peers.stop()
        await self.calls.close()
        await self.index.close()

    async def indexed(self) -> set[str]:
        return set(await self.index.positions())


class Town:
    """A gateway, two nodes that search, and a person with several chats."""

    def __init__(self, store: OpenStore, folder: Path) -> None:
        self.store = store
        self.listed = FakeNodes()
        self.gateway = SearchNode("front", self.listed, store, folder, is_one=False)
        self.searching = [SearchNode(name, self.listed, store, folder, is_one=True) for name in ("s1", "s2")]
        self.ann = ""
        self.chats: list[str] = []

    async def settle(self) -> None:
        self.ann, ben = await add_people(self.store, "ann", "ben")
        self.chats = [await add_group(self.store, self.ann, ben) for _ in range(CHATS)]
        for number, chat in enumerate(self.chats):
            await self.say(chat, f"needle {number}", "hay")

    async def say(self, chat: str, *texts: str) -> None:
        for text in texts:
            await stored(self.store, message(chat, self.ann, text))

    async def refresh(self) -> None:
        for node in (self.gateway, *self.searching):
            await node.peers.refresh()

    async def found(self, text: str, limit: int = 5) -> list[str]:
        """What Ann finds everywhere, page by page, asked on the gateway."""
        before, found = "", list[str]()
        while True:
            answer = await self.gateway.service.everywhere(self.ann, text, before, limit)
            found += [hit.entry.content for hit in answer.hits]
            if answer.next is None:
                return found
            before = str(answer.next)

    async def code(self, text: str) -> str:
        try:
            await self.found(text)
        except Refused as error:
            return error.refusal.code if error.refusal.temporary else f"{error.refusal.code} for good"
        return "found"


@asynccontextmanager
async def town(folder: Path) -> AsyncIterator[Town]:
    async with SqliteEngine("atomic", folder).opened() as store, AsyncExitStack() as stack:
        made = Town(store, folder)
        for node in (made.gateway, *made.searching):
            await node.start()
            stack.push_async_callback(node.stop)
        await made.refresh()
        await made.settle()
        yield made


async def test_each_node_has_its_share_and_the_gateway_finds_all(tmp_path: Path) -> None:
    """No chat is indexed twice, and pages of any size have every hit once."""
    async with town(tmp_path) as made:
        found = await made.found("needle")
        assert sorted(found) == sorted(f"needle {number}" for number in range(CHATS))
        assert await made.found("needle", limit=1) == found
        first, second = [await node.indexed() for node in made.searching]
        assert first
        assert second
        assert not first & second
        assert first | second == set(made.chats)


async def test_a_node_that_is_down_is_not_left_out(tmp_path: Path) -> None:
    """While it is listed the search is refused for now; then another one has its chats, from the log."""
    async with town(tmp_path) as made:
        everything = await made.found("needle")
        lost = made.searching[1]
        await lost.server.close()
        assert await made.code("needle") == "search_behind"
        await lost.peers.withdraw()
        await made.refresh()
        assert await made.found("needle") == everything
        assert await made.searching[0].indexed() == set(made.chats)


async def test_without_a_node_of_the_role_nothing_is_found_and_it_is_said(tmp_path: Path) -> None:
    """A cluster without the role refuses searches as temporary; it does not answer that there is nothing."""
    async with town(tmp_path) as made:
        for node in made.searching:
            await node.peers.withdraw()
        await made.gateway.peers.refresh()
        assert await made.code("needle") == "search_behind"


async def test_what_a_node_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own reason comes back, not a guess."""
    monkeypatch.setattr("parley.search.service.CAUGHT_UP_MAX", 1)
    async with town(tmp_path) as made:
        assert await made.code("needle") == "search_behind"


async def test_news_reach_the_owner_whoever_consumed_them(tmp_path: Path) -> None:
    """The nodes share the bus; each chat is indexed where it belongs, before anybody searches."""
    async with town(tmp_path) as made:
        one, two = made.searching
        for chat in made.chats:
            await one.teller.handle(Persisted(chat, 1, [StoredEntry(2, b"{}")]))
        await one.teller.tell()
        for node in (one, two):
            await node.indexer.follow_news()
        first, second = await one.indexed(), await two.indexed()
        assert first | second == set(made.chats)
        assert not first & second


async def test_erased_bodies_leave_every_index(tmp_path: Path) -> None:
    """Also that of a node which had the chat before; an index that does not answer is an error."""
    async with town(tmp_path) as made:
        one, two = made.searching
        chat = made.chats[0]
        for node in (one, two):
            await node.indexer.catch_up(chat)
        await LifeWorld(made.store).bodies.rewrite(chat, [1], tombstone)
        await made.gateway.comparing.compare(chat)
        for node in (one, two):
            assert await node.index.sequences(chat, 0, 9) == [2]
        await two.server.close()
        with pytest.raises(StoreUnavailable):
            await made.gateway.comparing.compare(chat)


async def test_an_index_is_compared_when_its_node_is_told_again(tmp_path: Path) -> None:
    """What was removed while others did not know the node leaves its index once they do, not before: until
    then more could be removed."""
    async with town(tmp_path) as made:
        node, chat, is_told = made.searching[0], made.chats[0], [True]
        node.indexer._is_told, node.indexer._owns = lambda: is_told[0], lambda _: True
        await node.indexer.catch_up(chat)
        await node.indexer.follow_news()
        await LifeWorld(made.store).bodies.rewrite(chat, [1], tombstone)
        await node.indexer.follow_news()
        assert await node.index.sequences(chat, 0, 9) == [1, 2]
        is_told[0] = False
        node.indexer.compare_again()
        await node.indexer.follow_news()
        assert await node.index.sequences(chat, 0, 9) == [1, 2]
        is_told[0] = True
        await node.indexer.follow_news()
        assert await node.index.sequences(chat, 0, 9) == [2]


async def test_a_node_that_was_away_drops_deleted_words_before_it_finds(tmp_path: Path) -> None:
    """A delete is an entry: the search brings its chat up to date first, and the words leave the file."""
    async with town(tmp_path) as made:
        node, chat = made.searching[0], made.chats[0]
        await made.say(chat, "unspeakable")
        await node.indexer.catch_up(chat)
        assert b"unspeakable" in files_of(node)
        life = LifeWorld(made.store)
        target = (await life.entries(chat))[2]
        await life.done(delete(chat, made.ann, target.message_id))
        assert b"unspeakable" in files_of(node)
        local = LocalSearches(made.store.log, node.index, node.indexer)
        assert (await local.search(SearchQuestion("unspeakable", [chat], None, 5))).hits == []
        assert b"unspeakable" not in files_of(node)


def files_of(node: SearchNode) -> bytes:
    return b"".join(path.read_bytes() for path in node.index.path.parent.iterdir())


async def test_a_merge_goes_no_further_than_every_node_has_looked(tmp_path: Path) -> None:
    """A node that stopped early may have more: older hits of others wait for the next page."""
    async with town(tmp_path) as made:
        question = SearchQuestion("needle", made.chats, None, 100)
        answer = await made.gateway.searches.search(question)
        hits = answer.hits
        early = answer.__class__(hits[:2], hits[1].place)
        others = answer.__class__(hits[2:], None)
        told = merged([early, others], 100)
        assert told.hits == hits[:2]
        assert told.next == hits[1].place
        assert merged([answer, others.__class__([], None)], 3).next == hits[2].place


async def test_an_unsigned_question_is_refused(tmp_path: Path) -> None:
    """Without the secret of the cluster nobody asks a node, or makes it compare."""
    async with town(tmp_path) as made:
        stranger = SignedCalls(
            ClusterKeys("another secret of another cluster"), clock=wall_clock, random_bytes=random.randbytes
        )
        made.gateway.searches._calls = stranger
        made.gateway.comparing._calls = stranger
        assert await made.code("needle") == "search_behind"
        with pytest.raises(StoreUnavailable):
            await made.gateway.comparing.compare(made.chats[0])
        await stranger.close()
        assert await asyncio.gather(*(node.indexed() for node in made.searching)) == [set(), set()]
