"""Changes entries where they are, in both tiers: removes bodies for good, or brings messages up to date.

The log stays dense, and the chain of the archive stays what it was: segments are written again with the
digest of what an entry was. In this order, so that an archiver at work meanwhile brings no body back:

    1. replace the entries in the engine
    2. write a new manifest, also if no segment changed: what an archiver has read before cannot be recorded
    3. write the segments again that hold such bodies, and delete the old ones
    4. delete what an archiver left behind with such bodies in it; one that is not recorded deletes its own,
       and so does this
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct, field

from parley.archive.archiver import Archiver
from parley.archive.manifest import SegmentEntry
from parley.archive.segment import ArchivedEntry, SegmentIndex
from parley.archive.tiers import rows_of
from parley.core.attachments import files_of
from parley.core.message_actions import tombstone
from parley.errors import EntriesTrimmed, StoreUnavailable
from parley.store.ports import Entries, Log, Replaced
from parley.store.rows import ArchiveMark
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_MAX

TRIES_MAX = 5
REWRITE_TRIES_MAX = 50
"""Each time that one fails, another change of the same entry was made."""
BORDER_ENTRIES_MAX = 64
"""So many entries below its mark an engine may still hold: those that share an item with later ones."""

FILES_FIELD = b'"attachments":'

encode_entry = msgspec.json.Encoder().encode


class Erased(Struct):
    """How many bodies were removed, or would be, in each tier."""

    hot: int = 0
    cold: int = 0
    segments: int = 0
    left: dict[int, Replaced] = field(default_factory=dict)
    """What is left of archived entries right below the border, which the engine may still hold. Those above
    it were replaced there before, by what the engine had, which may be newer."""
    files: set[str] = field(default_factory=set)
    """The ids of files that no message refers to any more."""

    @property
    def bodies(self) -> int:
        return self.hot + self.cold


Told = Callable[[str], Awaitable[object]]
"""Hears of each chat that has lost bodies, before the writer goes on."""


class AttachedFiles(Protocol):
    """The files that messages refer to."""

    async def mark(self, chat_id: str, attachment_ids: Iterable[str]) -> None:
        """A message is about to lose these. Durable before it returns."""
        ...

    async def remove(self, chat_id: str, attachment_ids: Iterable[str]) -> None:
        """No message refers to these any more: their bytes are gone when it returns."""
        ...


class Chooser(Protocol):
    """Which entries are replaced, and by what."""

    def left(self, wire: bytes) -> bytes | None:
        """What an entry becomes; None if it stays as it is."""
        ...

    def may_be_in(self, segment: SegmentEntry) -> bool:
        """Whether a segment may hold such an entry, by what its manifest says."""
        ...

    def may_be_of(self, index: SegmentIndex) -> bool:
        """The same by its index."""
        ...


class Choice(Struct, frozen=True):
    """Which messages and edits lose their bodies: those of before a time, those of one person, or both."""

    before: str = ""
    sender_id: str = ""

    def takes(self, entry: Entry) -> bool:
        is_due = not self.before or entry.created_at < self.before
        return is_due and (not self.sender_id or entry.sender_id == self.sender_id)

    def left(self, wire: bytes) -> bytes | None:
        entry = decode_entry(wire)
        left = tombstone(entry) if self.takes(entry) else None
        return None if left is None else encode_entry(left)

    def may_be_in(self, segment: SegmentEntry) -> bool:
        return segment.bodies > 0 and (not self.before or segment.oldest_at < self.before)

    def may_be_of(self, index: SegmentIndex) -> bool:
        return not self.sender_id or index.senders is None or self.sender_id in index.senders


class Replacement(Struct, frozen=True):
    """What some entries become: `change` gets each of them by its number."""

    sequences: frozenset[int]
    change: Callable[[Entry], Entry | None]

    def left(self, wire: bytes) -> bytes | None:
        entry = decode_entry(wire)
        left = self.change(entry) if entry.sequence in self.sequences else None
        return None if left is None else encode_entry(left)

    def may_be_in(self, segment: SegmentEntry) -> bool:
        return any(segment.first <= sequence <= segment.last for sequence in self.sequences)

    def may_be_of(self, index: SegmentIndex) -> bool:
        return True


class EntryWriter:
    """`log` and `entries` are the engine's own. `archiver`: writes segments; None without a cold tier.
    `told`: who hears of what `erase` has done.
    """

    def __init__(
        self,
        log: Log,
        entries: Entries,
        archiver: Archiver | None,
        told: Told | None = None,
        files: AttachedFiles | None = None,
    ) -> None:
        self._told = told
        self._files = files
        self._log = log
        self._entries = entries
        self._archiver = archiver

    async def rewrite(
        self, chat_id: str, sequences: Iterable[int], change: Callable[[Entry], Entry | None]
    ) -> None:
        """Replace these entries by what `change` makes of each, wherever they are. May be repeated.

        `change` decides by the entry that it gets: another node may have changed it meanwhile.
        """
        choice, erased = Replacement(frozenset(sequences), change), Erased()
        for sequence in sorted(choice.sequences):
            erased.hot += await self._rewrite_hot(chat_id, sequence, choice, erased)
        if self._archiver is not None:
            await self._erase_cold(self._archiver, chat_id, choice, erased, dry=False)
        await self._remove_files(chat_id, erased)

    async def _rewrite_hot(self, chat_id: str, sequence: int, choice: Chooser, erased: Erased) -> int:
        for _ in range(REWRITE_TRIES_MAX):
            try:
                page = await self._log.read(chat_id, sequence - 1, 1)
            except EntriesTrimmed:
                return 0
            left = choice.left(page.entries[0]) if page.entries else None
            if left is None:
                return 0
            await self._mark_files(chat_id, dropped_files(page.entries[0], left), erased)
            to = Replaced(after=left, before=page.entries[0])
            if await self._entries.replace(chat_id, {sequence: to}):
                return 1
        raise StoreUnavailable(f"the entry at {sequence} is being written to by too many at once")

    async def erase(self, chat_id: str, choice: Choice, *, dry: bool = False) -> Erased:
        """Remove the bodies of the chosen messages of a chat. `dry`: only count them. May be repeated."""
        erased = Erased()
        await self._erase_hot(chat_id, choice, erased, dry=dry)
        if self._archiver is not None:
            await self._erase_cold(self._archiver, chat_id, choice, erased, dry=dry)
        await self._remove_files(chat_id, erased)
        if self._told is not None and erased.bodies and not dry:
            await self._told(chat_id)
        return erased

    async def _mark_files(self, chat_id: str, attachment_ids: set[str], erased: Erased) -> None:
        if attachment_ids and self._files is not None:
            await self._files.mark(chat_id, sorted(attachment_ids))
            erased.files |= attachment_ids

    async def _remove_files(self, chat_id: str, erased: Erased) -> None:
        if erased.files and self._files is not None:
            await self._files.remove(chat_id, sorted(erased.files))

    async def scrub(self, leftovers: Sequence[bytes] | None = None) -> None:
        """See `Entries.scrub`."""
        await self._entries.scrub(leftovers)

    async def _erase_hot(self, chat_id: str, choice: Choice, erased: Erased, *, dry: bool) -> None:
        after = (await self._mark(chat_id)).trimmed_through
        while True:
            page = await self._log.read(chat_id, after, PAGE_ENTRIES_MAX)
            found: dict[int, Replaced] = {}
            files: set[str] = set()
            for sequence, wire in rows_of(page):
                left = choice.left(wire) if wire is not None else None
                if left is not None and wire is not None:
                    found[sequence] = Replaced(after=left)
                    files |= dropped_files(wire, left)
            if found and not dry:
                await self._mark_files(chat_id, files, erased)
                await self._entries.replace(chat_id, found)
            erased.hot += len(found)
            after = page.to_sequence
            if page.complete or page.to_sequence < page.from_sequence:
                return

    async def _mark(self, chat_id: str) -> ArchiveMark:
        return (await self._entries.marks([chat_id])).get(chat_id, ArchiveMark())

    async def _erase_cold(
        self,
        archiver: Archiver,
        chat_id: str,
        choice: Chooser,
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
                    border = range(mark.trimmed_through - BORDER_ENTRIES_MAX + 1, mark.trimmed_through + 1)
                    attempt.left = {at: left for at, left in attempt.left.items() if at in border}
                segments.append(new or segment)
            if dry or (not attempt.segments and not must_bump):
                erased.cold += attempt.cold
                return
            await self._mark_files(chat_id, attempt.files, erased)
            await self._entries.replace(chat_id, attempt.left)
            if await archiver.record(chat_id, mark, manifest, segments) is not None:
                erased.cold, erased.segments = attempt.cold, attempt.segments
                await archiver.sweep(chat_id, lambda entries: _holds(entries, choice))
                return
            await archiver.discard([one for one in segments if one not in manifest.segments])
        raise StoreUnavailable(f"the archive of {chat_id} is being written by too many at once")

    async def _without(
        self,
        archiver: Archiver,
        chat_id: str,
        segment: SegmentEntry,
        before: list[SegmentEntry],
        choice: Chooser,
        erased: Erased,
        *,
        dry: bool,
    ) -> SegmentEntry | None:
        """The segment without the chosen bodies; None if it has none of them."""
        entries = await archiver.segment(segment)
        found = 0
        for place, entry in enumerate(entries):
            left = choice.left(entry.wire) if entry.wire is not None else None
            if left is not None and entry.wire is not None:
                erased.files |= dropped_files(entry.wire, left)
                entries[place] = ArchivedEntry(entry.sequence, left, entry.digest)
                erased.left[entry.sequence] = Replaced(after=left)
                found += 1
        erased.cold += found
        if not found or dry:
            return None
        erased.segments += 1
        return await archiver.upload(chat_id, entries, before)


def dropped_files(before: bytes, after: bytes) -> set[str]:
    """The files that an entry refers to, and what is left of it does not."""
    if FILES_FIELD not in before:
        return set()
    return {*files_of(decode_entry(before))} - {*files_of(decode_entry(after))}


def _holds(entries: list[ArchivedEntry], choice: Chooser) -> bool:
    return any(entry.wire is not None and choice.left(entry.wire) is not None for entry in entries)
