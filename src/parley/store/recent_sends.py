"""When members have sent last, for slow mode: read from the log once, and kept up by what is appended here.

It costs no write. A store that nodes share keeps it as far as this node knows the log. Where another node has
appended meanwhile, the rest is read before anything is decided: in `atomic` always, in `two_phase` once this
node has appended, too. See docs/moderation.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from parley.clock import from_iso
from parley.model import Kind
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import SLOW_MODE_SECONDS_MAX

LOOKED_AT_MAX = 2_000
"""Entries that one look goes back at most. Who sent before all of these may send."""
ENTRIES_PER_READ = 200
SENDERS_MAX = 10_000
LONG_AGO_MS = SLOW_MODE_SECONDS_MAX * 1_000
"""As good as never."""
MESSAGE = Kind.MESSAGE.value

ReadBack = Callable[[int, int], Awaitable[Sequence[tuple[int, bytes | None]]]]
"""The entries after a position up to another one, the last first, each with its position; None for a void. It
may return fewer."""


class RecentSends:
    """Of one chat. `through`: up to where the log is known; None if nothing is."""

    __slots__ = ("_times", "through")

    def __init__(self) -> None:
        self.through: int | None = None
        self._times: dict[str, int] = {}

    def forget(self) -> None:
        self.through = None
        self._times.clear()

    def since_last_ms(self, sender_id: str, now_ms: int) -> int:
        return now_ms - self._times.get(sender_id, now_ms - LONG_AGO_MS)

    def note(self, entries: Iterable[Entry]) -> None:
        """These were appended here. If another node's stand between, the next look reads them."""
        if self.through is None:
            return
        for entry in entries:
            self._take(entry)
            if entry.sequence == self.through + 1:
                self.through = entry.sequence
        if len(self._times) > SENDERS_MAX:
            self.forget()

    async def look(self, head: int, since_ms: int, read_back: ReadBack) -> None:
        """Know the log up to its head, as far as it is younger than this time."""
        known, looked_at = self.through or 0, 0
        until = head
        while until > known and looked_at < LOOKED_AT_MAX:
            rows = await read_back(max(known, until - ENTRIES_PER_READ), until)
            until, looked_at = (rows[-1][0] - 1 if rows else known), looked_at + len(rows)
            for entry in (decode_entry(wire) for _, wire in rows if wire is not None):
                if from_iso(entry.created_at) < since_ms:
                    until = known
                    break
                self._take(entry)
        self.through = max(known, head)

    def _take(self, entry: Entry) -> None:
        if entry.kind == MESSAGE:
            at_ms = from_iso(entry.created_at)
            self._times[entry.sender_id] = max(at_ms, self._times.get(entry.sender_id, 0))
