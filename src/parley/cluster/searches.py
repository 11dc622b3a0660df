"""Searches over several nodes: each chat's index is on one node of the role `search`, by rendezvous hashing.

A question goes to the nodes that have the chats, and their answers are merged. If one of them does not
answer, the whole search is refused: an answer never lacks hits that nobody tells of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from parley.cluster.bodies import pack
from parley.cluster.calls import NodeError
from parley.cluster.peers import NodeCalls
from parley.core import rendezvous
from parley.ephemeral.ports import Node
from parley.errors import SEARCH_BEHIND, Refusal, Refused, StoreError
from parley.model import Persisted
from parley.search.indexer import SearchIndexer
from parley.search.service import SearchAnswer, Searches, SearchQuestion
from parley.store.ports import Feed

T = TypeVar("T")

SEARCH = "search"
ASK = "/node/search"
NOTE = "/node/search/news"
ASK_SECONDS_MAX = 4.0
NOTE_SECONDS_MAX = 2.0
NOTES_EVERY_SECONDS = 0.5
NOTES_MAX = 10_000
"""Chats with news that wait to be told. More are forgotten: a search of such a chat brings it up to date."""

NOBODY = SEARCH_BEHIND.because("no node of the role search is up; try again")
SILENT = SEARCH_BEHIND.because("a node with the index of these chats does not answer; try again")

log = structlog.get_logger("parley.cluster")


class NodeAnswer(Struct, frozen=True):
    """What a node found, or why it did not search."""

    found: SearchAnswer | None = None
    refusal: Refusal | None = None


_question = msgspec.msgpack.Decoder(SearchQuestion).decode
_answer = msgspec.msgpack.Decoder(NodeAnswer).decode
_notes = msgspec.msgpack.Decoder(dict[str, int]).decode


class SearchNodes:
    """Which node has the index of a chat. `others`: the other live nodes of the role, as known now."""

    def __init__(self, node_id: str, is_one: bool, others: Callable[[], list[Node]]) -> None:
        self.node_id = node_id
        self._is_one = is_one
        self.others = others

    def owner_of(self, chat_id: str) -> str | None:
        names = [node.node_id for node in self.others()]
        return rendezvous.owner(chat_id, [*names, self.node_id] if self._is_one else names)

    def owns(self, chat_id: str) -> bool:
        return self._is_one and self.owner_of(chat_id) == self.node_id

    def node(self, node_id: str) -> Node | None:
        return next((node for node in self.others() if node.node_id == node_id), None)


class PeerSearches:
    """The port `Searches` over the nodes. `local`: the index of this node, if it has one."""

    def __init__(self, nodes: SearchNodes, calls: NodeCalls, local: Searches | None) -> None:
        self._nodes = nodes
        self._calls = calls
        self._local = local

    async def search(self, question: SearchQuestion) -> SearchAnswer:
        shares: dict[str, list[str]] = {}
        for chat_id in question.chat_ids:
            owner = self._nodes.owner_of(chat_id)
            if owner is None:
                raise Refused(NOBODY)
            shares.setdefault(owner, []).append(chat_id)
        asked = [self._ask(owner, replace(question, chat_ids=chats)) for owner, chats in shares.items()]
        return merged(await asyncio.gather(*asked), question.limit)

    async def _ask(self, node_id: str, question: SearchQuestion) -> SearchAnswer:
        if node_id == self._nodes.node_id and self._local is not None:
            return await self._local.search(question)
        node = self._nodes.node(node_id)
        if node is None:
            raise Refused(SILENT)
        try:
            answer = _answer(
                await self._calls.post(node.url + ASK, pack(question), ASK_SECONDS_MAX, node.target)
            )
        except (NodeError, msgspec.MsgspecError) as error:
            log.warning("a node did not search", node=node_id, error=str(error))
            raise Refused(SILENT) from error
        if answer.found is None:
            raise Refused(answer.refusal or SILENT)
        return answer.found


def merged(answers: Sequence[SearchAnswer], limit: int) -> SearchAnswer:
    """The newest of all, no further than every node has looked."""
    bound = max((answer.next for answer in answers if answer.next is not None), default=None)
    hits = [hit for answer in answers for hit in answer.hits if bound is None or hit.place >= bound]
    hits.sort(key=lambda hit: hit.place, reverse=True)
    if len(hits) > limit:
        return SearchAnswer(hits[:limit], hits[limit - 1].place)
    return SearchAnswer(hits, bound)


class NewsTeller:
    """Consumes the bus, with the other nodes of the role: each tells the owners of chats that have news.

    What is told is only a hint: the index knows how far it is, and a search brings its chats up to date.
    """

    def __init__(self, nodes: SearchNodes, calls: NodeCalls, note: Callable[[str, int], None]) -> None:
        self._nodes = nodes
        self._calls = calls
        self._note = note
        self._waiting: dict[str, int] = {}

    async def handle(self, news: Persisted) -> None:
        through = news.positions[-1].sequence
        if self._nodes.owns(news.chat_id):
            self._note(news.chat_id, through)
        elif len(self._waiting) < NOTES_MAX:
            self._waiting[news.chat_id] = max(through, self._waiting.get(news.chat_id, 0))

    async def run(self, feed: Feed) -> None:
        """The nodes of the role share the bus between them. Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(feed.consume(SEARCH, self.handle))
            tasks.create_task(self._tell_regularly())

    async def _tell_regularly(self) -> None:
        while True:
            await asyncio.sleep(NOTES_EVERY_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """Tell the owners what waits for them; what fails is told by the next news of the chat."""
        waiting, self._waiting = self._waiting, {}
        shares: dict[str, dict[str, int]] = {}
        for chat_id, through in waiting.items():
            owner = self._nodes.owner_of(chat_id)
            if owner is not None:
                shares.setdefault(owner, {})[chat_id] = through
        await asyncio.gather(*(self._tell(owner, notes) for owner, notes in shares.items()))

    async def _tell(self, node_id: str, notes: dict[str, int]) -> None:
        if node_id == self._nodes.node_id:
            for chat_id, through in notes.items():
                self._note(chat_id, through)
            return
        node = self._nodes.node(node_id)
        if node is None:
            return
        try:
            await self._calls.post(node.url + NOTE, pack(notes), NOTE_SECONDS_MAX, node.target)
        except NodeError as error:
            log.warning("a search node was not told of news", node=node_id, error=str(error))


def search_routes(local: Searches, indexer: SearchIndexer) -> list[web.RouteDef]:
    """What a node of the role serves so that the others can ask it."""

    async def ask(request: web.Request) -> web.StreamResponse:
        question = await _body(request, _question)
        try:
            answer = NodeAnswer(found=await local.search(question))
        except Refused as error:
            answer = NodeAnswer(refusal=error.refusal)
        except StoreError as error:
            answer = NodeAnswer(refusal=SEARCH_BEHIND.because(str(error)))
        return _bytes(pack(answer))

    async def note(request: web.Request) -> web.StreamResponse:
        for chat_id, through in (await _body(request, _notes)).items():
            indexer.note(chat_id, through)
        return _bytes(b"")

    return [web.post(ASK, ask), web.post(NOTE, note)]


async def _body(request: web.Request, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(await request.read())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise web.HTTPBadRequest(reason="this body is not well formed") from error


def _bytes(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/octet-stream")
