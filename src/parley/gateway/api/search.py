"""Searches: in one chat, or in all of one's own."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from parley.errors import BUSY, NOT_A_MEMBER, SEARCH_BEHIND, SEARCH_OFF
from parley.gateway.api.chats import CHAT
from parley.gateway.calls import Call
from parley.gateway.routes import Answer, Parameter, Routes, limit_parameter
from parley.model import Scope
from parley.search.service import SearchAnswer
from parley.wire import limits, search_bodies
from parley.wire.frames import Sequence as SequenceNumber

SEARCH_COST = 10
TEXT = Parameter(
    "q",
    Annotated[str, Meta(min_length=1, max_length=limits.SEARCH_CHARS_MAX)],
    "Words that a message must have, all of them. A word that ends with `*` finds words that begin so.",
    "hello",
    is_required=True,
)
LIMIT = limit_parameter(limits.SEARCH_HITS_DEFAULT, limits.SEARCH_HITS_MAX)
REFUSALS = (SEARCH_BEHIND, SEARCH_OFF, BUSY)

routes = Routes("Search")


@routes.route(
    "GET",
    f"{CHAT}/search",
    "Search a chat",
    {200: search_bodies.ChatHits},
    query=(
        TEXT,
        Parameter("before", SequenceNumber, "Only messages below this position: the `next` of a page."),
        LIMIT,
    ),
    refusals=(NOT_A_MEMBER, *REFUSALS),
    cost=SEARCH_COST,
    scope=Scope.READ,
)
async def search_chat(call: Call) -> Answer:
    """The newest messages with these words, as they are now; those of people whom you have blocked and
    deleted ones are not found. A page may be short, or empty, and have a `next` all the same.
    """
    before = call.number("before", limits.SEQUENCE_MAX)
    limit = call.limit(limits.SEARCH_HITS_DEFAULT, limits.SEARCH_HITS_MAX)
    found = await call.services.search.in_chat(
        call.user_id, call.path("chat_id"), call.text("q"), before, limit
    )
    return 200, search_bodies.ChatHits(_hits(found), found.next.sequence if found.next else None)


@routes.route(
    "GET",
    "/v1/search",
    "Search all of your chats",
    {200: search_bodies.Hits},
    query=(TEXT, Parameter("before", str, "The `next` of the page before."), LIMIT),
    refusals=REFUSALS,
    cost=SEARCH_COST,
    scope=Scope.READ,
)
async def search_everywhere(call: Call) -> Answer:
    """As in one chat, the newest of all chats first, by the time at which they were stored."""
    limit = call.limit(limits.SEARCH_HITS_DEFAULT, limits.SEARCH_HITS_MAX)
    found = await call.services.search.everywhere(call.user_id, call.text("q"), call.text("before"), limit)
    return 200, search_bodies.Hits(_hits(found), str(found.next) if found.next else None)


def _hits(found: SearchAnswer) -> list[search_bodies.SearchHit]:
    return [search_bodies.SearchHit(hit.entry, hit.snippet) for hit in found.hits]
