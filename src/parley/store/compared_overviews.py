"""The overview on a store without an order over all chats: which of a person's chats have changed.

The token records what the device was sent: for each chat a tag, derived from its id, and a version that
differs after every change. The engine reads the relevant rows and heads strongly, and they are compared with
the token. A change during the read is sent the next time.

If two chats of one person have the same tag (one person in 20 million with 5,000 chats), they are sent too
often, but never missed.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct

from parley.concurrency import map_concurrently
from parley.errors import Refused
from parley.model import ChatSummary, ChatType, Head, OverviewPage
from parley.store.rules import NEWEST, NO_TOKEN
from parley.wire.limits import (
    FRAME_BYTES_MAX,
    PAGE_BYTES_MAX,
    UNREAD_LOOKED_AT_MAX,
    UNREAD_MAX,
    USER_CHATS_MAX,
)

READS_AT_ONCE_MAX = 16
CHATS_AT_ONCE = 50
"""Few: long entries fill a page after a few chats, and reads of the others are wasted."""

TIMES_KNOWN_MAX = 20_000
"""Of last entries, by their chats."""

TAG_BYTES = 6
NUMBER_BYTES_MAX = 9
NUMBERS_PER_VERSION = 3
TOKEN_FORMAT = b"\x01"
LEFT_REMEMBERED_MAX = 250
"""How many chats that the person has left a token remembers."""

CHAT_BYTES_USUAL_MAX = TAG_BYTES + 1 + 4 + 3
"""An epoch below 2**7, a head below 2**28, a revision below 2**21."""
TOKEN_CHARS_USUAL_MAX = (USER_CHATS_MAX + LEFT_REMEMBERED_MAX) * CHAT_BYTES_USUAL_MAX * 4 // 3 + 4
assert TOKEN_CHARS_USUAL_MAX < FRAME_BYTES_MAX * 3 // 4, "a request with the longest token fits in a frame"
TOKEN_CHARS = re.compile(rf"[A-Za-z0-9_-]{{2,{FRAME_BYTES_MAX}}}")

Version = tuple[int, int, int]
"""Epoch, head and the revision of the person's row. The epoch is 0 for a chat that the person has left."""
Versions = dict[bytes, Version]
"""What a device was sent: by the tag of each chat, the oldest first."""
Heads = Callable[[Sequence[str]], Awaitable[dict[str, Head]]]


class NotedCursors(Protocol):
    """Positions that this node has noted and not yet written."""

    def acked_of(self, user_id: str, device_id: str, chat_id: str) -> int: ...

    def read_of(self, user_id: str, chat_id: str) -> int: ...


class OverviewRow(Struct):
    """A person's own row of a chat."""

    chat_id: str
    tag: bytes
    read_up_to: int
    has_left: bool
    left_sequence: int
    revision: int
    muted_until: str | None

    def version(self, head: Head | None) -> Version:
        """Without a head: the version of a chat that the person has left, which no longer changes."""
        if head is None:
            return 0, self.left_sequence, self.revision
        return head.epoch, head.sequence, self.revision


class EntryTime(Struct):
    """Of an entry only when it was written."""

    created_at: str


decode_time = msgspec.json.Decoder(EntryTime).decode


class RowAndHead(Struct):
    """A row, the head of its chat, and the version of both."""

    row: OverviewRow
    head: Head
    version: Version


class ChatDetails(NamedTuple):
    """What a summary says of a chat, besides its head: `acked` is the position of the device."""

    chat_type: ChatType = ChatType.GROUP
    title: str | None = None
    direct_key: str | None = None
    acked: int = 0
    created_at: str = ""


NO_DETAILS = ChatDetails()


class ComparedOverviews(ABC):
    def __init__(self, heads: Heads, noted: NotedCursors) -> None:
        self._heads = heads
        self._noted = noted
        self._known_times: dict[tuple[str, int, int], str] = {}

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> OverviewPage:
        """Chats that are not in the token come first, then those that were sent longest ago.

        So the pages end however often chats change meanwhile, and a page of a first overview reads only the
        heads of its own chats.
        """
        is_newest = after is not None and after.startswith(NEWEST)
        if after is not None and is_newest:
            after = after[len(NEWEST) :] or None
        sent = decode_token(after) if after is not None else Versions()
        rows = await self._rows(user_id)
        members = [row for row in rows if not row.has_left]
        left = [row for row in rows if row.has_left]
        remembered = left[:LEFT_REMEMBERED_MAX]
        if after is None:
            sent = {row.tag: row.version(None) for row in remembered}
        if is_newest:
            page = await self._newest(user_id, [row for row in members if row.tag not in sent], limit + 1)
        else:
            page = await self._new(members, sent, limit + 1)
        if len(page) <= limit:
            page += await self._changed([row for row in members if row.tag in sent], left, sent)
        summaries = await self._fitting(user_id, device_id, page[:limit], brief)
        for at in page[: len(summaries)]:
            sent.pop(at.row.tag, None)
            sent[at.row.tag] = at.version
        complete = len(summaries) == len(page)
        # Before the last page, keep every chat that was left: one of them may be on the next page.
        kept = {row.tag for row in (*members, *(remembered if complete else left))}
        token = encode_token({tag: sent[tag] for tag in sent if tag in kept})
        return OverviewPage(summaries, NEWEST + token if is_newest and not complete else token, complete)

    async def _new(self, members: list[OverviewRow], sent: Versions, count_max: int) -> list[RowAndHead]:
        """The first chats that are not in the token. Skips a row whose chat was never created."""
        rows, found = [row for row in members if row.tag not in sent], list[RowAndHead]()
        for first in range(0, len(rows), count_max):
            found += await self._with_heads(rows[first : first + count_max])
            if len(found) >= count_max:
                break
        return found

    async def _newest(self, user_id: str, rows: list[OverviewRow], count_max: int) -> list[RowAndHead]:
        """Those of these chats with the latest entries, the latest first."""
        found = await self._with_heads(rows)
        times = await self._times(user_id, found)
        found.sort(key=lambda at: (times[at.row.chat_id], at.row.chat_id), reverse=True)
        return found[:count_max]

    async def _times(self, user_id: str, chats: list[RowAndHead]) -> dict[str, str]:
        """When the last entry of each chat was written, or the chat, if it has none. An entry is read for it
        once: pages that follow know what is at the same head.
        """
        known = {at.row.chat_id: self._known_times.get((at.row.chat_id, *at.version[:2])) for at in chats}
        times = {chat_id: time for chat_id, time in known.items() if time is not None}
        unknown = [at for at in chats if at.row.chat_id not in times]
        for first in range(0, len(unknown), CHATS_AT_ONCE):
            chunk = unknown[first : first + CHATS_AT_ONCE]
            entries = await self._last_entries(chunk)
            empty = [at.row.chat_id for at in chunk if at.row.chat_id not in entries]
            details = await self._details(user_id, "", empty) if empty else {}
            for at in chunk:
                chat_id, entry = at.row.chat_id, entries.get(at.row.chat_id)
                created_at = details.get(chat_id, NO_DETAILS).created_at
                times[chat_id] = created_at if entry is None else decode_time(entry).created_at
                self._known_times[chat_id, *at.version[:2]] = times[chat_id]
        while len(self._known_times) > TIMES_KNOWN_MAX:
            del self._known_times[next(iter(self._known_times))]
        return times

    async def _changed(
        self, members: list[OverviewRow], left: list[OverviewRow], sent: Versions
    ) -> list[RowAndHead]:
        """Chats that differ from the token, the oldest first, and left chats that are not in the token."""
        gone = [
            row
            for place, row in enumerate(left)
            if sent.get(row.tag) != row.version(None) and (row.tag in sent or place < LEFT_REMEMBERED_MAX)
        ]
        order = {tag: place for place, tag in enumerate(sent)}
        changed = [
            at for at in await self._with_heads([*members, *gone]) if sent.get(at.row.tag) != at.version
        ]
        return sorted(changed, key=lambda at: order.get(at.row.tag, -1))

    async def _with_heads(self, rows: list[OverviewRow]) -> list[RowAndHead]:
        heads = await self._heads([row.chat_id for row in rows])
        return [_with_head(row, heads[row.chat_id]) for row in rows if row.chat_id in heads]

    # Summaries

    async def _fitting(
        self, user_id: str, device_id: str, page: list[RowAndHead], brief: bool
    ) -> list[ChatSummary]:
        """Summaries of the first chats whose last entries fit into a page, and always the first one."""
        if brief:
            return await self._summaries(user_id, device_id, [(at, None) for at in page])
        found, room_bytes = list[ChatSummary](), PAGE_BYTES_MAX
        for first in range(0, len(page), CHATS_AT_ONCE):
            chunk = page[first : first + CHATS_AT_ONCE]
            entries = await self._last_entries(chunk)
            fitting = list[tuple[RowAndHead, bytes | None]]()
            for at in chunk:
                entry = entries.get(at.row.chat_id)
                room_bytes -= len(entry or b"")
                if room_bytes < 0 and (found or fitting):
                    break
                fitting.append((at, entry))
            found += await self._summaries(user_id, device_id, fitting)
            if len(fitting) < len(chunk):
                break
        return found

    def _read_up_to(self, user_id: str, row: OverviewRow) -> int:
        return max(row.read_up_to, self._noted.read_of(user_id, row.chat_id))

    async def _unread(self, user_id: str, at: RowAndHead) -> tuple[int, bool]:
        """How many messages of others are unread, and whether there may be more."""
        read_up_to, head = self._read_up_to(user_id, at.row), at.head.sequence
        if at.row.has_left or read_up_to >= head:
            return 0, False
        after = max(read_up_to, head - UNREAD_LOOKED_AT_MAX)
        found = await self._count_of_others(user_id, at.row.chat_id, after, head)
        return min(found, UNREAD_MAX), found > UNREAD_MAX or after > read_up_to

    async def _summaries(
        self, user_id: str, device_id: str, chats: list[tuple[RowAndHead, bytes | None]]
    ) -> list[ChatSummary]:
        """Summaries of these chats, each with its last entry."""
        chat_ids = [at.row.chat_id for at, _ in chats]
        details, unread = await asyncio.gather(
            self._details(user_id, device_id, chat_ids),
            map_concurrently(lambda chat: self._unread(user_id, chat[0]), chats, READS_AT_ONCE_MAX),
        )
        summaries = []
        for (at, entry), (count, is_more) in zip(chats, unread, strict=True):
            row, chat = at.row, details.get(at.row.chat_id, NO_DETAILS)
            noted = self._noted.acked_of(user_id, device_id, row.chat_id)
            people = chat.direct_key.split("|") if chat.direct_key is not None else []
            summaries.append(
                ChatSummary(
                    chat_id=row.chat_id,
                    epoch=at.head.epoch,
                    head=at.head.sequence,
                    last_acked_sequence=max(chat.acked, noted),
                    read_up_to=self._read_up_to(user_id, row),
                    unread=count,
                    unread_more=is_more,
                    left=row.has_left,
                    chat_type=chat.chat_type,
                    title=None if row.has_left else chat.title,
                    peer_id=next((person for person in people if person != user_id), None),
                    last_entry=entry,
                    muted_until=None if row.has_left else row.muted_until,
                )
            )
        return summaries

    # What an engine reads

    @abstractmethod
    async def _rows(self, user_id: str) -> list[OverviewRow]:
        """A person's rows of all chats that they are or were in."""

    @abstractmethod
    async def _details(
        self, user_id: str, device_id: str, chat_ids: Sequence[str]
    ) -> dict[str, ChatDetails]: ...

    @abstractmethod
    async def _last_entries(self, chunk: list[RowAndHead]) -> dict[str, bytes]:
        """The last entries by chat; none for a chat that is empty or was left."""

    @abstractmethod
    async def _count_of_others(self, user_id: str, chat_id: str, after: int, head: int) -> int:
        """How many messages of others there are between two positions, up to more than `UNREAD_MAX`."""


def _with_head(row: OverviewRow, head: Head) -> RowAndHead:
    if row.has_left:
        return RowAndHead(row, Head(head.epoch, row.left_sequence), row.version(None))
    return RowAndHead(row, head, row.version(head))


# The token


def tag_of(chat_id: str) -> bytes:
    return blake2b(chat_id.encode(), digest_size=TAG_BYTES).digest()


def encode_token(sent: Versions) -> str:
    """Its characters need no escaping in JSON or in a URL."""
    packed = bytearray(TOKEN_FORMAT)
    for tag, version in sent.items():
        packed += tag
        for part in version:
            while part > 127:
                packed.append(part & 127 | 128)
                part >>= 7
            packed.append(part)
    return urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def decode_token(token: str) -> Versions:
    """Refused if this is not a token of an overview."""
    if not TOKEN_CHARS.fullmatch(token) or len(token) % 4 == 1:
        raise Refused(NO_TOKEN)
    packed = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    if packed[:1] != TOKEN_FORMAT:
        raise Refused(NO_TOKEN)
    try:
        return _versions(packed)
    except (IndexError, OverflowError) as error:
        raise Refused(NO_TOKEN) from error


def _versions(packed: bytes) -> Versions:
    """IndexError if it ends too early, OverflowError if a number is too long."""
    sent, at = Versions(), len(TOKEN_FORMAT)
    while at < len(packed):
        tag, at = packed[at : at + TAG_BYTES], at + TAG_BYTES
        numbers = []
        for _ in range(NUMBERS_PER_VERSION):
            part, at = _number(packed, at)
            numbers.append(part)
        sent[tag] = (numbers[0], numbers[1], numbers[2])
    return sent


def _number(packed: bytes, at: int) -> tuple[int, int]:
    """The number that starts here, 7 bits a byte, and where the next one starts."""
    value = shift = 0
    while packed[at] > 127:
        value |= (packed[at] & 127) << shift
        shift += 7
        at += 1
        if shift >= 7 * NUMBER_BYTES_MAX:
            raise OverflowError
    return value | packed[at] << shift, at + 1
