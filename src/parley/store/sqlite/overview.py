"""The chats that changed for a person, in the order of changes. The length of the logs does not matter."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from parley.clock import from_iso, iso
from parley.errors import Refused
from parley.model import ChatSummary, ChatType, OverviewPage
from parley.store.rules import NEWEST, NO_TOKEN
from parley.store.sqlite.reads import Reads
from parley.wire.limits import PAGE_BYTES_MAX, UNREAD_LOOKED_AT_MAX, UNREAD_MAX

CHAT_NO_MAX = 2**62
CHATS_PER_SLICE = 8
"""So many are read without giving way to others: about half a millisecond."""
TOKEN = re.compile(r"([0-9]{1,18})\.([0-9]{1,18}|4611686018427387904)(?::([0-9]{1,18}))?", re.ASCII)

LISTED = """
SELECT page.place, chats.chat_no, d.chat_id, chats.chat_type, chats.epoch,
    CASE
        WHEN d.has_left THEN d.left_sequence
        ELSE coalesce(
            (SELECT min(sequence) - 1 FROM open_allocations AS o WHERE o.chat_no = chats.chat_no),
            (SELECT max(sequence) FROM entries AS e WHERE e.chat_no = chats.chat_no),
            (SELECT trimmed_through FROM chat_archives AS a WHERE a.chat_id = chats.chat_id),
            0
        )
    END,
    d.has_left, coalesce(u.last_acked_sequence, 0), d.read_up_to,
    CASE WHEN d.has_left THEN NULL ELSE chats.name END, chats.direct_key,
    CASE WHEN d.has_left THEN NULL ELSE d.muted_until END
FROM ({page}) AS page
CROSS JOIN delivery_state AS d ON d.user_id = ?1 AND d.chat_id = page.chat_id
CROSS JOIN chats ON chats.chat_no = page.chat_no
LEFT JOIN user_device_cursors AS u ON u.user_id = ?1 AND u.device_id = ?2 AND u.chat_id = page.chat_id
ORDER BY {order}
"""
# A chat without a counter always counts as changed, so that no change is missed.
CHANGED = LISTED.format(
    order="page.place, chats.chat_no",
    page="""
    SELECT chats.chat_no, d.chat_id,
        CASE
            WHEN d.has_left THEN d.change
            ELSE max(d.change, coalesce(c.change, (SELECT last FROM changes)))
        END AS place
    FROM delivery_state AS d JOIN chats USING (chat_id) LEFT JOIN chat_counters AS c USING (chat_id)
    WHERE d.user_id = ?1 AND (place, chats.chat_no) > (?3, ?4) AND (NOT d.has_left OR d.change > ?6)
    ORDER BY place, chats.chat_no LIMIT ?5
    """,
)
BY_LAST_ENTRY = LISTED.format(
    order="page.place DESC, chats.chat_no DESC",
    page="""
    SELECT chats.chat_no, d.chat_id,
        coalesce(
            (
                SELECT json_extract(CAST(e.wire AS TEXT), '$.created_at') FROM entries AS e
                WHERE e.chat_no = chats.chat_no AND e.kind <> 0 ORDER BY e.sequence DESC LIMIT 1
            ),
            chats.created_at
        ) AS place
    FROM delivery_state AS d JOIN chats USING (chat_id)
    WHERE d.user_id = ?1 AND NOT d.has_left AND (place, chats.chat_no) < (?3, ?4)
    ORDER BY place DESC, chats.chat_no DESC LIMIT ?5
    """,
)
LAST_ENTRY = (
    "SELECT wire FROM entries WHERE chat_no = ? AND sequence <= ? AND kind <> 0"
    " ORDER BY sequence DESC LIMIT 1"
)
UNREAD = (
    "SELECT count(*) FROM (SELECT 1 FROM entries WHERE chat_no = ? AND sequence > ? AND sequence <= ?"
    " AND kind = 1 AND sender_no <> ? LIMIT ?)"
)


NEWEST_TOKEN = re.compile(r"([0-9]{1,15})\.([0-9]{1,18}):([0-9]{1,18})", re.ASCII)
LATEST = "~"
"""Behind every time."""
NewestPlace = tuple[str, int, int]
"""Time and number of the last chat that was returned, and the change at which the list began."""


class Listed(NamedTuple):
    """A chat on a page, before anything is read from its log. `place`: its last change, or its last entry's
    time."""

    place: int | str
    chat_no: int
    chat_id: str
    chat_type: str
    epoch: int
    head: int
    has_left: int
    acked: int
    read_up_to: int
    title: str | None
    direct_key: str | None
    muted_until: str | None


class SqliteOverviews:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> OverviewPage:
        """Reads the store's last change first: a change that commits meanwhile is sent again, not missed."""
        last = self._reads.row(
            "SELECT last, (SELECT user_no FROM user_numbers WHERE user_id = ?) FROM changes", (user_id,)
        )
        assert last is not None
        if after is not None and after.startswith(NEWEST):
            place = _parse_newest(after[len(NEWEST) :], last[0])
            return await self._newest(user_id, last[1], device_id, place, limit, brief)
        change, chat_no, began = (-1, 0, last[0]) if after is None else _parse(after)
        rows = self._reads.rows(CHANGED, (user_id, device_id, change, chat_no, limit + 1, began))
        chats = [Listed._make(row) for row in rows]
        positions = await self._fitting(user_id, last[1], chats[:limit], brief)
        if len(positions) < len(chats):
            end = chats[len(positions) - 1]
            return OverviewPage(positions, f"{end.place}.{end.chat_no}:{began}", False)
        return OverviewPage(positions, f"{max(last[0], change)}.{CHAT_NO_MAX}", True)

    async def _newest(
        self, user_id: str, user_no: int, device_id: str, after: NewestPlace, limit: int, brief: bool
    ) -> OverviewPage:
        """The token of the last page says that everything since the first page's change is news."""
        time, chat_no, began = after
        rows = self._reads.rows(BY_LAST_ENTRY, (user_id, device_id, time, chat_no, limit + 1))
        chats = [Listed._make(row) for row in rows]
        positions = await self._fitting(user_id, user_no, chats[:limit], brief)
        if len(positions) < len(chats):
            last = chats[len(positions) - 1]
            return OverviewPage(
                positions, f"{NEWEST}{from_iso(str(last.place))}.{last.chat_no}:{began}", False
            )
        return OverviewPage(positions, f"{began}.{CHAT_NO_MAX}", True)

    async def _fitting(
        self, user_id: str, user_no: int, chats: list[Listed], brief: bool
    ) -> list[ChatSummary]:
        """The first chats whose last entries fit into a page, and always the first one."""
        positions: list[ChatSummary] = []
        size = 0
        for chat in chats:
            if len(positions) % CHATS_PER_SLICE == CHATS_PER_SLICE - 1:
                await asyncio.sleep(0)
            entry = None if brief or chat.has_left else self._last_entry(chat)
            size += len(entry or b"")
            if size > PAGE_BYTES_MAX and positions:
                break
            positions.append(self._position(user_id, user_no, chat, entry))
        return positions

    def _last_entry(self, chat: Listed) -> bytes | None:
        row = self._reads.row(LAST_ENTRY, (chat.chat_no, chat.head))
        return row[0] if row else None

    def _position(self, user_id: str, user_no: int, chat: Listed, last_entry: bytes | None) -> ChatSummary:
        unread, unread_more = (0, False) if chat.has_left else self._unread(chat, user_no)
        return ChatSummary(
            chat.chat_id,
            chat.epoch,
            chat.head,
            chat.acked,
            chat.read_up_to,
            unread,
            unread_more,
            bool(chat.has_left),
            ChatType(chat.chat_type),
            chat.title,
            _peer(chat.direct_key, user_id),
            last_entry,
            chat.muted_until,
        )

    def _unread(self, chat: Listed, user_no: int) -> tuple[int, bool]:
        """How many messages of others are unread, and whether there may be more."""
        after = max(chat.read_up_to, chat.head - UNREAD_LOOKED_AT_MAX)
        if after >= chat.head:
            return 0, False
        row = self._reads.row(UNREAD, (chat.chat_no, after, chat.head, user_no, UNREAD_MAX + 1))
        found = int(row[0]) if row else 0
        return min(found, UNREAD_MAX), found > UNREAD_MAX or after > chat.read_up_to


def _peer(direct_key: str | None, user_id: str) -> str | None:
    """The other person of a direct chat."""
    people = direct_key.split("|") if direct_key is not None else []
    return next((person for person in people if person != user_id), None)


def _parse_newest(place: str, last: int) -> NewestPlace:
    """`last`: the store's last change, at which a list begins that has no place yet."""
    found = NEWEST_TOKEN.fullmatch(place)
    if not place:
        return LATEST, CHAT_NO_MAX, last
    if found is None:
        raise Refused(NO_TOKEN)
    try:
        return iso(int(found[1])), int(found[2]), int(found[3])
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(NO_TOKEN) from error


def _parse(token: str) -> tuple[int, int, int]:
    """A token has the last change that was returned, the last chat within it, and where the list began.

    A list of all chats leaves out those that the person left before its first page.
    """
    found = TOKEN.fullmatch(token)
    if found is None:
        raise Refused(NO_TOKEN)
    change, chat_no, began = found.groups("0")
    return int(change), int(chat_no), int(began)
