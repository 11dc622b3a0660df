"""A whole store, copied to another engine: streamed, continued after a crash, and compared at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import cast

import msgspec
from msgspec import Struct, field

from parley.clock import Clock
from parley.errors import ParleyError
from parley.migration.fingerprints import Fingerprint, LogDigest, counts_as_content, record_bytes
from parley.migration.rows import StoreRows
from parley.model import ChatSettings, StoredEntry
from parley.store.records import COPY_MARK, RECORDS, UNFINISHED, ChatRecord, Record
from parley.store.rules import STRAY_POSITIONS_MAX
from parley.store.tables import ServerKey

POSITIONS_PER_PUT = 100
"""A crash may leave holes among so many of the last positions; they are written again."""
DONE = "done"

OnProgress = Callable[["CopyProgress"], None]


class CopyRefused(ParleyError):
    """Nothing was copied. The message says why, and what to do."""


class CopyDiffers(ParleyError):
    """The target does not hold what the source holds."""


class CopyMark(Struct):
    """What a target knows of a copy into it. `kinds`: the records that were all written."""

    source: str
    kinds: list[str] = field(default_factory=list)


class CopyProgress(Struct):
    """`step`: what is being done. `done`: rows of it so far."""

    step: str
    done: int = 0


class CopyReport(Struct, kw_only=True):
    """What both stores hold: compared row by row, and position by position."""

    chats: int
    entries: int
    voids: int
    records: dict[str, int]
    """How many of each kind."""
    rules: int
    """Chats with a retention of their own."""
    holds: int
    """Chats under a legal hold."""
    fingerprint: str
    log_hashes: str
    """One number that follows from the hashes of all logs, which are equal in both."""


class StoreCopy:
    """One copy. `source_name` tells an operator, and a repeated copy, which store the source is.

    `groups`: workers for whom everything that is copied counts as done.
    """

    def __init__(
        self,
        source: StoreRows,
        target: StoreRows,
        source_name: str,
        groups: list[str],
        clock: Clock,
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._mark = CopyMark(source_name)
        self._groups = groups
        self._clock = clock
        self._began_ms = clock()
        self._on_progress = on_progress

    async def run(self) -> CopyReport:
        """CopyRefused unless the target is empty, or holds the begin of this copy."""
        await self._begin()
        for kind in RECORDS:
            if kind.__name__ not in self._mark.kinds:
                await self._copy_records(kind)
                self._mark.kinds.append(kind.__name__)
                await self._write_mark()
        progress = CopyProgress("entries")
        async for chats in self._source.records(ChatRecord):
            kept = [cast(ChatRecord, chat) for chat in chats]
            ends = await self._target.log_ends([chat.chat.chat_id for chat in kept])
            for chat in kept:
                await self._copy_log(chat, ends[chat.chat.chat_id], progress)
        await self._target.settle(self._groups, self._clock())
        report = await self.compare()
        await self._target.put([ServerKey(name=COPY_MARK, value=f"{DONE} {report.fingerprint}")])
        return report

    def _counts(self, record: Record) -> bool:
        return counts_as_content(record, self._began_ms)

    # Before

    async def _begin(self) -> None:
        mark = await self._found_mark()
        if mark is None:
            for kind in RECORDS:
                async for records in self._target.records(kind):
                    if records:
                        raise CopyRefused(f"the target is not empty: it has records of {kind.__name__}")
            await self._write_mark()
            return
        if not mark.startswith(UNFINISHED):
            raise CopyRefused("the target is not empty: a copy into it was finished")
        begun = msgspec.json.decode(mark.removeprefix(UNFINISHED), type=CopyMark)
        if begun.source != self._mark.source:
            raise CopyRefused(
                f"the target holds an unfinished copy of {begun.source}: finish it, or empty the target"
            )
        self._mark = begun

    async def _found_mark(self) -> str | None:
        async for records in self._target.records(ServerKey):
            for record in records:
                if isinstance(record, ServerKey) and record.name == COPY_MARK:
                    return record.value
        return None

    async def _write_mark(self) -> None:
        value = UNFINISHED + msgspec.json.encode(self._mark).decode()
        await self._target.put([ServerKey(name=COPY_MARK, value=value)])

    # Writing

    async def _copy_records(self, kind: type[Record]) -> None:
        progress = CopyProgress(kind.__name__)
        async for records in self._source.records(kind):
            await self._target.put([record for record in records if self._counts(record)])
            progress.done += len(records)
            self._on_progress(progress)

    async def _copy_log(self, chat: ChatRecord, end: int, progress: CopyProgress) -> None:
        chat_id, some = chat.chat.chat_id, list[StoredEntry]()
        after = max(0, end - POSITIONS_PER_PUT)
        async for position in dense(self._source.positions(chat_id, after), chat, after):
            some.append(position)
            if len(some) == POSITIONS_PER_PUT:
                await self._target.put_positions(chat_id, some)
                progress.done += len(some)
                self._on_progress(progress)
                some = []
        if some:
            await self._target.put_positions(chat_id, some)
            progress.done += len(some)
            self._on_progress(progress)

    # Afterwards

    async def compare(self) -> CopyReport:
        """CopyDiffers, and the first difference, unless both hold the same."""
        total, hashes, counts = Fingerprint(), Fingerprint(), dict[str, int]()
        for kind in RECORDS:
            theirs, ours = [await self._fingerprint(side, kind) for side in (self._source, self._target)]
            if theirs != ours:
                raise CopyDiffers(
                    f"{kind.__name__}: the source has {theirs.count:,} records, the target {ours.count:,},"
                    " and they differ: has somebody written to one of them? Copy again"
                )
            total.merge(theirs)
            counts[kind.__name__] = theirs.count
        entries = voids = chats = 0
        rules, holds = await self._decisions()
        async for page in self._source.records(ChatRecord):
            for chat in cast("list[ChatRecord]", page):
                log = await self._compare_log(chat)
                total.add(log.digest())
                hashes.add(log.log_hash)
                entries, voids, chats = entries + log.entries, voids + log.voids, chats + 1
                self._on_progress(CopyProgress("comparing", entries + voids))
        return CopyReport(
            chats=chats,
            entries=entries,
            voids=voids,
            records=counts,
            rules=rules,
            holds=holds,
            fingerprint=total.text,
            log_hashes=hashes.text,
        )

    async def _decisions(self) -> tuple[int, int]:
        """How many chats have a retention of their own, and how many are held."""
        rules = holds = 0
        async for page in self._source.records(ChatSettings):
            for settings in cast("list[ChatSettings]", page):
                rules, holds = rules + (settings.retention_days is not None), holds + settings.is_held
        return rules, holds

    async def _fingerprint(self, side: StoreRows, kind: type[Record]) -> Fingerprint:
        found = Fingerprint()
        async for records in side.records(kind):
            for record in records:
                if self._counts(record):
                    found.add(record_bytes(record))
        return found

    async def _compare_log(self, chat: ChatRecord) -> LogDigest:
        """Position by position, and then the hash of the one log with that of the other."""
        chat_id = chat.chat.chat_id
        log, copied_log = LogDigest(chat_id), LogDigest(chat_id)
        theirs = dense(self._source.positions(chat_id, 0), chat, 0)
        ours = each(self._target.positions(chat_id, 0))
        async for position in theirs:
            copied = await anext(ours, None)
            if copied is None or (copied.sequence, copied.wire) != (position.sequence, position.wire):
                at = "nothing" if copied is None else f"another entry, at {copied.sequence}"
                raise CopyDiffers(f"{chat_id} #{position.sequence}: the target has {at}")
            for digest, one in ((log, position), (copied_log, copied)):
                _add(digest, one, chat_id)
        if (more := await anext(ours, None)) is not None:
            raise CopyDiffers(f"{chat_id} #{more.sequence}: the source has nothing there")
        if log.log_hash != copied_log.log_hash:
            raise CopyDiffers(f"{chat_id}: the hash of its log is another in the target")
        return log


def _add(digest: LogDigest, position: StoredEntry, chat_id: str) -> None:
    try:
        digest.add(position)
    except msgspec.DecodeError as error:
        says = f"{chat_id} #{position.sequence} cannot be read: run parley check on the source"
        raise CopyRefused(says) from error


async def each(pages: AsyncIterator[list[StoredEntry]]) -> AsyncIterator[StoredEntry]:
    async for page in pages:
        for position in page:
            yield position


async def dense(
    pages: AsyncIterator[list[StoredEntry]], chat: ChatRecord, after: int
) -> AsyncIterator[StoredEntry]:
    """A log without holes, up to its counter.

    No server runs, so a number that was allocated and not written never will be: it is a void. CopyRefused if
    there are too many for that.
    """
    expected, missing = after + 1, 0
    async for position in each(pages):
        for sequence in range(expected, position.sequence):
            missing += 1
            _check_missing(chat, missing)
            yield StoredEntry(sequence, None)
        expected = position.sequence + 1
        yield position
    for sequence in range(expected, (chat.counter or 0) + 1):
        missing += 1
        _check_missing(chat, missing)
        yield StoredEntry(sequence, None)


def _check_missing(chat: ChatRecord, missing: int) -> None:
    if missing > STRAY_POSITIONS_MAX:
        raise CopyRefused(f"{chat.chat.chat_id} has lost entries: run parley check on the source")
