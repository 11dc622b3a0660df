"""Searches: who may search where, what is asked, and what is answered.

A hit is read back from the log like any page, and compared with the search again: the index only says where
to look. So a deleted message is found by nobody from the answer of the delete on, an edited one by its newest
content alone, and an archived one like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from parley.core.search import HitPlace, expression_of, is_indexed, place_of
from parley.errors import BAD_REQUEST, NOT_A_MEMBER, SEARCH_BEHIND, SEARCH_OFF, Refusal, Refused, StoreError
from parley.model import Relation
from parley.records.relations import Relations
from parley.search.index import SearchIndex
from parley.search.indexer import SearchIndexer
from parley.store.ports import Directory, Log
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import BLOCKS_MAX, PAGE_BYTES_MAX, SEQUENCE_MAX

CAUGHT_UP_MAX = 5_000
"""Entries that one search brings into the index. More is left to the job, and the search is refused."""
CAUGHT_UP_AT_ONCE = 8
LOOKED_AT_MAX = 400
"""Messages that one search reads back. If most of them are not shown, the page is short, and has a `next`."""
READ_AT_ONCE = 16
SEARCH_SECONDS_MAX = 3.5


class SearchQuestion(Struct, frozen=True):
    """What is asked of an index: which words, in which chats, below which place, and whose messages not."""

    text: str
    chat_ids: list[str]
    before: HitPlace | None
    limit: int
    hidden_ids: list[str] = []


class Hit(Struct, frozen=True):
    """A message that was found, as it is now, and the part of it with the words."""

    place: HitPlace
    entry: Entry
    snippet: str


class SearchAnswer(Struct, frozen=True):
    """The newest hits, and where to go on; None if there are no more."""

    hits: list[Hit]
    next: HitPlace | None


class Searches(Protocol):
    """Answers questions, whoever has the index of the chats."""

    async def search(self, question: SearchQuestion) -> SearchAnswer:
        """The hits among what was appended before the call. Refused if that cannot be said."""
        ...


class NoSearches:
    """Where the configuration says that there is no search."""

    async def search(self, question: SearchQuestion) -> SearchAnswer:
        raise Refused(SEARCH_OFF)


class LocalSearches:
    """The index of this node."""

    def __init__(self, log: Log, index: SearchIndex, indexer: SearchIndexer) -> None:
        self._log = log
        self._index = index
        self._indexer = indexer

    async def search(self, question: SearchQuestion) -> SearchAnswer:
        expression = checked(question.text)
        try:
            async with asyncio.timeout(SEARCH_SECONDS_MAX):
                await self._catch_up(question.chat_ids)
                return await self._search(expression, question)
        except TimeoutError:
            raise Refused(SEARCH_BEHIND) from None

    async def _catch_up(self, chat_ids: Sequence[str]) -> None:
        """Index what was appended before the search, if that is not much."""
        behind = await self._indexer.behind(chat_ids)
        if sum(behind.values()) > CAUGHT_UP_MAX:
            for chat_id, count in behind.items():
                self._indexer.note(chat_id, count)
            raise Refused(SEARCH_BEHIND)
        waiting = list(behind)
        for start in range(0, len(waiting), CAUGHT_UP_AT_ONCE):
            some = waiting[start : start + CAUGHT_UP_AT_ONCE]
            await asyncio.gather(*map(self._indexer.catch_up, some))

    async def _search(self, expression: str, question: SearchQuestion) -> SearchAnswer:
        hidden, before = frozenset(question.hidden_ids), question.before
        hits: list[Hit] = []
        looked_at = 0
        while True:
            wanted = question.limit - len(hits)
            places = await self._index.find(expression, question.chat_ids, before, wanted + 1)
            some = places[:wanted]
            hits += await self._read_back(expression, some, hidden)
            looked_at += len(some)
            fitting = _that_fit(hits)
            if len(fitting) < len(hits):
                return SearchAnswer(fitting, fitting[-1].place)
            if len(places) <= wanted:
                return SearchAnswer(hits, None)
            before = some[-1]
            if len(hits) >= question.limit or looked_at >= LOOKED_AT_MAX:
                return SearchAnswer(hits, before)

    async def _read_back(self, expression: str, places: list[HitPlace], hidden: frozenset[str]) -> list[Hit]:
        """Those of these messages that match as they are now, and may be shown."""
        entries: list[Entry | None] = []
        for start in range(0, len(places), READ_AT_ONCE):
            entries += await asyncio.gather(*map(self._entry, places[start : start + READ_AT_ONCE]))
        shown = [
            (place, entry)
            for place, entry in zip(places, entries, strict=True)
            if entry is not None and is_indexed(entry) and entry.sender_id not in hidden
        ]
        snippets = await self._index.match(expression, [entry.content for _, entry in shown]) if shown else []
        return [
            Hit(place, entry, snippet)
            for (place, entry), snippet in zip(shown, snippets, strict=True)
            if snippet is not None
        ]

    async def _entry(self, place: HitPlace) -> Entry | None:
        page = await self._log.read(place.chat_id, place.sequence - 1, 1)
        entry = decode_entry(page.entries[0]) if page.entries else None
        return entry if entry is not None and entry.sequence == place.sequence else None


def _that_fit(hits: list[Hit]) -> list[Hit]:
    """The first of these that one answer holds; at least one."""
    size = 0
    for number, hit in enumerate(hits):
        size += len(hit.entry.content)
        if size > PAGE_BYTES_MAX and number:
            return hits[:number]
    return hits


class SearchService:
    """Searches of people, in chats that they are members of."""

    def __init__(self, searches: Searches, directory: Directory, relations: Relations) -> None:
        self._searches = searches
        self._directory = directory
        self._relations = relations

    async def in_chat(self, user_id: str, chat_id: str, text: str, before: int, limit: int) -> SearchAnswer:
        """The newest messages of a chat with these words, below a position."""
        if await self._directory.role(chat_id, user_id) is None:
            raise Refused(NOT_A_MEMBER)
        return await self._search(user_id, text, [chat_id], HitPlace(SEQUENCE_MAX, chat_id, before), limit)

    async def everywhere(self, user_id: str, text: str, before: str, limit: int) -> SearchAnswer:
        """The newest messages of all of a person's chats with these words."""
        place = place_of(before) if before else None
        if before and place is None:
            raise Refused(BAD_REQUEST.because("before must be the next of an earlier answer"))
        return await self._search(user_id, text, await self._directory.chat_ids_of(user_id), place, limit)

    async def _search(
        self, user_id: str, text: str, chat_ids: list[str], before: HitPlace | None, limit: int
    ) -> SearchAnswer:
        checked(text)
        if not chat_ids:
            return SearchAnswer([], None)
        blocked = await self._relations.related(user_id, Relation.BLOCK, "", BLOCKS_MAX)
        hidden = [one.user_id for one in blocked]
        try:
            return await self._searches.search(SearchQuestion(text, chat_ids, before, limit, hidden))
        except StoreError as error:
            raise Refused(SEARCH_BEHIND.because("the search index does not answer; try again")) from error


def checked(text: str) -> str:
    """The expression of a search, or Refused."""
    expression = expression_of(text)
    if isinstance(expression, Refusal):
        raise Refused(expression)
    return expression
