"""Bodies of searches."""

from __future__ import annotations

from msgspec import Struct

from parley.wire.frames import Entry


class SearchHit(Struct):
    """A message that was found, as it is now. `snippet`: the part of its content with the words, plain text
    on one line; each hit stands between U+2068 and U+2069, which are not shown.
    """

    entry: Entry
    snippet: str


class ChatHits(Struct):
    """What was found in a chat, the newest first. `next`: the `before` of the next page; null at the end."""

    hits: list[SearchHit]
    next: int | None


class Hits(Struct):
    """What was found in all of your chats, the newest first. `next`: the `before` of the next page; null at
    the end."""

    hits: list[SearchHit]
    next: str | None
