"""The entries as a topic: in commit order for everybody, and within each chat in the order of its log.

With two_phase sequencing a lower number may be committed after a higher one. A chat is therefore handed out
up to the highest number in the chunk, together with the lower ones that were committed later; when those are
met in their own place, they are passed over. Nothing is handed out above a number that is still open.
"""

from __future__ import annotations

import msgspec

from parley.core.changes import change_in
from parley.model import Change, Persisted, Stored
from parley.store.sqlite import schema
from parley.store.sqlite.reads import Reads
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_BYTES_MAX

CHUNK_ROWS_MAX = 500
CHUNK_BYTES_MAX = 4 * PAGE_BYTES_MAX
STRAY_POSITIONS_MAX = 10_000
"""How many numbers may be committed before a lower one: far more than are under way at once."""

ROWS = (
    "SELECT position, chat_no, sequence, length(wire) FROM entries WHERE position > ?"
    " ORDER BY position LIMIT ?"
)
OPEN = "SELECT chat_no, min(sequence) FROM open_allocations GROUP BY chat_no"
HANDED_OUT = (
    "SELECT sequence FROM entries WHERE chat_no = ? AND sequence <= ? AND position <= ?"
    " ORDER BY sequence DESC LIMIT 1"
)
STRETCH = (
    "SELECT sequence, kind, wire FROM entries WHERE chat_no = ? AND sequence > ? AND sequence <= ?"
    " ORDER BY sequence"
)
CHAT = "SELECT chat_id, epoch FROM chats WHERE chat_no = ?"

decode_entry = msgspec.json.Decoder(Entry).decode


class FeedRows:
    """`is_atomic`: commit order is each log's order, and nothing need be looked up for it."""

    def __init__(self, reads: Reads, is_atomic: bool) -> None:
        self._reads = reads
        self._is_atomic = is_atomic

    def after(self, position: int) -> tuple[list[Persisted], int]:
        """What was committed next, chat by chat, and the position that it reaches; nothing, and the same."""
        stretches: dict[int, tuple[int, int]] = {}
        reached, size = position, 0
        unresolved: dict[int, int] = dict(self._reads.rows(OPEN))
        for row, chat_no, sequence, bytes_of in self._reads.rows(ROWS, (position, CHUNK_ROWS_MAX)):
            size += bytes_of or 0
            is_open_below = sequence > unresolved.get(chat_no, sequence)
            if is_open_below or (size > CHUNK_BYTES_MAX and stretches):
                break
            low, high = stretches.get(chat_no, (sequence, sequence))
            stretches[chat_no] = min(low, sequence), max(high, sequence)
            reached = row
        news = [self._stretch(chat_no, low, high, position) for chat_no, (low, high) in stretches.items()]
        return [item for item in news if item is not None], reached

    def _stretch(self, chat_no: int, low: int, high: int, position: int) -> Persisted | None:
        after = low - 1 if self._is_atomic else self._handed_out(chat_no, high, position)
        chat = self._reads.row(CHAT, (chat_no,))
        rows = self._reads.rows(STRETCH, (chat_no, after, high))
        if chat is None or not rows:
            return None
        positions = [Stored(sequence, wire, _change(kind, wire)) for sequence, kind, wire in rows]
        return Persisted(chat[0], chat[1], positions)

    def _handed_out(self, chat_no: int, high: int, position: int) -> int:
        """The end of what was handed out of a chat when everything up to a position had been."""
        row = self._reads.row(HANDED_OUT, (chat_no, high + STRAY_POSITIONS_MAX, position))
        return int(row[0]) if row else 0

    def last(self) -> int:
        row = self._reads.row("SELECT max(position) FROM entries")
        return int(row[0] or 0) if row else 0


def _change(kind: int, wire: bytes | None) -> Change | None:
    return change_in(decode_entry(wire)) if kind == schema.OTHER and wire is not None else None
