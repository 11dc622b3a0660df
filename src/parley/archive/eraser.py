"""Removes bodies of messages for good, from both tiers. What is left at a position says that it was deleted.

The log stays dense, and the chain of the archive stays what it was: segments are written again with the
digest of what an entry was. In this order, so that an archiver at work meanwhile brings no body back:

    1. replace the bodies in the engine
    2. write a new manifest, also if no segment changed: what an archiver has read before cannot be recorded
    3. write the segments again that hold such bodies, and delete the old ones
    4. delete what an archiver left behind with such bodies in it; one that is not recorded deletes its own
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from parley.archive.archiver import Archiver
from parley.archive.manifest import SegmentEntry
from parley.archive.segment import ArchivedEntry, SegmentIndex
from parley.archive.tiers import rows_of
from parley.core.log_hash import without_body
from parley.errors import StoreUnavailable
from parley.model import Kind
from parley.store.cold.ports import ColdTier
from parley.store.ports import (
    Log,
)
from parley.store.rows import ArchiveMark
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_MAX

TRIES_MAX = 5
BORDER_ENTRIES_MAX = 64
"""So many entries below its mark an engine may still hold: those that share an item with later ones."""

decode_entry = msgspec.json.Decoder(Entry).decode
encode_entry = msgspec.json.Encoder().encode


class Erased(Struct):
    """How many bodies were removed, or would be, in each tier."""

    hot: int = 0
    cold: int = 0
    segments: int = 0
    left: dict[int, bytes] = field(default_factory=dict)
    """What is left of archived entries next to the border."""

    @property
    def bodies(self) -> int:
        return self.hot + self.cold


class Choice(Struct, frozen=True):
    """Which messages lose their bodies: those of before a time, those of one person, or both."""

    before: str = ""
    sender_id: str = ""

    def takes(self, entry: Entry) -> bool:
        is_due = not self.before or entry.created_at < self.before
        return is_due and (not self.sender_id or entry.sender_id == self.sender_id)

    def may_be_in(self, segment: SegmentEntry) -> bool:
        return segment.bodies > 0 and (not self.before or segment.oldest_at < self.before)

    def may_be_of(self, index: SegmentIndex) -> bool:
        return not self.sender_id or index.senders is None or self.sender_id in index.senders


def tombstone(wire: bytes, choice: Choice) -> bytes | None:
    """What is left of a message; None if it keeps its body, or has none."""
    entry = decode_entry(wire)
    if entry.kind != Kind.MESSAGE.value or entry.deleted is True or not choice.takes(entry):
        return None
    return encode_entry(replace(without_body(entry), deleted=True))


class Eraser:
    """`log` is the engine's own. `archiver`: writes segments; None without a cold tier."""

    def __init__(self, log: Log, tier: ColdTier, archiver: Archiver | None) -> None:
        self._log = log
        self._tier = tier
        self._archiver = archiver

    async def erase(self, chat_id: str, choice: Choice, *, dry: bool = False) -> Erased:
        """Remove the bodies of the chosen messages of a chat. `dry`: only count them. May be repeated."""
        erased = Erased()
        await self._erase_hot(chat_id, choice, erased, dry=dry)
        if self._archiver is not None:
            await self._erase_cold(self._archiver, chat_id, choice, erased, dry=dry)
        return erased

    async def scrub(self) -> None:
        """Nothing that was removed is left in a file of the engine."""
        await self._tier.scrub()

    async def _erase_hot(self, chat_id: str, choice: Choice, erased: Erased, *, dry: bool) -> None:
        after = (await self._mark(chat_id)).trimmed_through
        while True:
            page = await self._log.read(chat_id, after, PAGE_ENTRIES_MAX)
            found: dict[int, bytes] = {}
            for sequence, wire in rows_of(page):
                left = tombstone(wire, choice) if wire is not None else None
                if left is not None:
                    found[sequence] = left
            if found and not dry:
                await self._tier.redact(chat_id, found)
            erased.hot += len(found)
            after = page.to_sequence
            if page.complete or page.to_sequence < page.from_sequence:
                return

    async def _mark(self, chat_id: str) -> ArchiveMark:
        return (await self._tier.marks([chat_id])).get(chat_id, ArchiveMark())

    async def _erase_cold(
        self,
        archiver: Archiver,
        chat_id: str,
        choice: Choice,
        erased: Erased,
        *,
        dry: bool,
    ) -> None:
        must_bump = erased.hot > 0 and not dry
        for _ in range(TRIES_MAX):
            mark = await self._mark(chat_id)
            manifest = await archiver.manifest(chat_id, mark)
            segments: list[SegmentEntry] = []
            attempt = Erased()
            for segment in manifest.segments:
                new = None
                if choice.may_be_in(segment) and choice.may_be_of(await archiver.index(segment)):
                    new = await self._without(archiver, chat_id, segment, segments, choice, attempt, dry=dry)
                    border = mark.trimmed_through - BORDER_ENTRIES_MAX
                    attempt.left = {at: left for at, left in attempt.left.items() if at > border}
                segments.append(new or segment)
            if dry or (not attempt.segments and not must_bump):
                erased.cold += attempt.cold
                return
            await self._tier.redact(chat_id, attempt.left)
            if await archiver.record(chat_id, mark, manifest, segments) is not None:
                erased.cold, erased.segments = attempt.cold, attempt.segments
                await archiver.sweep(chat_id, lambda entries: _holds(entries, choice))
                return
        raise StoreUnavailable(f"the archive of {chat_id} is being written by too many at once")

    async def _without(
        self,
        archiver: Archiver,
        chat_id: str,
        segment: SegmentEntry,
        before: list[SegmentEntry],
        choice: Choice,
        erased: Erased,
        *,
        dry: bool,
    ) -> SegmentEntry | None:
        """The segment without the chosen bodies; None if it has none of them."""
        entries = await archiver.segment(segment)
        found = 0
        for place, entry in enumerate(entries):
            left = tombstone(entry.wire, choice) if entry.wire is not None else None
            if left is not None:
                entries[place] = ArchivedEntry(entry.sequence, left, entry.digest)
                erased.left[entry.sequence] = left
                found += 1
        erased.cold += found
        if not found or dry:
            return None
        erased.segments += 1
        return await archiver.upload(chat_id, entries, before)


def _holds(entries: list[ArchivedEntry], choice: Choice) -> bool:
    return any(entry.wire is not None and tombstone(entry.wire, choice) is not None for entry in entries)
