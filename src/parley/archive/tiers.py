"""One log over both tiers: what is asked of it comes from the engine, from the cold tier, or from both.

The engine is asked first, except where it is known to have been trimmed. Its answer EntriesTrimmed says that
the rest is archived. A read that the cold tier cannot answer fails: a page is never shorter because of it,
and what is in the engine is still served.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.archive.bulk import ArchivedLogs, TieredTransfer
from parley.archive.reader import ArchiveReader
from parley.checks.check import ArchivedRows
from parley.core.jobs import Job
from parley.errors import EntriesTrimmed, StoreDamaged, StoreUnavailable
from parley.model import (
    AppendResult,
    ChatSummary,
    Draft,
    Head,
    Kind,
    OverviewPage,
    Page,
    Persisted,
)
from parley.objects.ports import ObjectMissing, Objects
from parley.store.maintenance import Inspection, Repairs, Transfer
from parley.store.paging import Row, fitting, page_of
from parley.store.ports import (
    Allocator,
    Batching,
    Cursors,
    DeliveryQueues,
    Directory,
    Engine,
    Entries,
    Feed,
    Log,
    MemberStates,
    Outbox,
    Overviews,
    Records,
)
from parley.store.rows import Finding
from parley.store.subscriptions import Subscriptions
from parley.wire.limits import PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, UNREAD_LOOKED_AT_MAX, UNREAD_MAX

PROBED = "probe"
"""A name that no object has: a store that says so can be read."""
BORDERS_REMEMBERED_MAX = 20_000
FORGET_SECONDS = 60.0
ROWS_PER_LOOK = 200
"""Going back, so many archived entries are read before their size is looked at."""


class MessageHeader(Struct, gc=False):
    """As much of an entry as says whether it counts as unread, and which message it is."""

    kind: str
    sender_id: str
    message_id: str
    deleted: bool = False

    def is_unread_of(self, user_id: str) -> bool:
        return self.kind == Kind.MESSAGE.value and self.sender_id != user_id and not self.deleted


decode_header = msgspec.json.Decoder(MessageHeader).decode


class TieredLog:
    """A `Log`. `hot` is the engine's own."""

    def __init__(self, hot: Log, tier: Entries, archive: ArchiveReader) -> None:
        self._hot = hot
        self._tier = tier
        self._archive = archive
        self._borders: dict[str, int] = {}
        """The highest number of each chat that is known to be trimmed. It only rises."""

    async def append(self, drafts: Sequence[Draft]) -> AppendResult:
        return await self._hot.append(drafts)

    async def seal(self) -> list[Persisted]:
        return await self._hot.seal()

    async def heads(self, chat_ids: Sequence[str]) -> dict[str, Head]:
        return await self._hot.heads(chat_ids)

    async def read(self, chat_id: str, after: int, limit: int) -> Page:
        border = self._borders.get(chat_id, 0)
        if after >= border:
            try:
                return await self._hot.read(chat_id, after, limit)
            except EntriesTrimmed:
                border = await self._look(chat_id)
                if after >= border:
                    raise
        return await self._read_across(chat_id, after, limit, border)

    async def _look(self, chat_id: str) -> int:
        """Where the border of a chat is by now."""
        marks = await self._tier.marks([chat_id])
        border = marks[chat_id].trimmed_through if chat_id in marks else 0
        if len(self._borders) >= BORDERS_REMEMBERED_MAX:
            self._borders.clear()
        self._borders[chat_id] = border
        return border

    async def _read_across(self, chat_id: str, after: int, limit: int, border: int) -> Page:
        """Archived entries, and those of the engine behind them, as far as they fit into one page."""
        head = (await self._hot.heads([chat_id])).get(chat_id) or Head(0, 0)
        until = min(after + limit, border, head.sequence)
        rows = fitting(await self._archive.rows(chat_id, after + 1, until))
        at = after + len(rows)
        if at == border < head.sequence and len(rows) < limit:
            try:
                behind = await self._hot.read(chat_id, border, limit - len(rows))
            except EntriesTrimmed:  # the border has moved: the next page begins behind this one
                await self._look(chat_id)
            else:
                head = Head(behind.epoch, behind.head)
                rows = fitting(rows + rows_of(behind))
        return page_of(chat_id, head.epoch, rows, after, head.sequence)

    async def read_before(self, chat_id: str, before: int, limit: int) -> Page:
        try:
            page = await self._hot.read_before(chat_id, before, limit)
        except EntriesTrimmed as trimmed:
            head = (await self._hot.heads([chat_id])).get(chat_id) or Head(0, 0)
            rows = await self._rows_before(chat_id, trimmed.places[0][1], limit, PAGE_BYTES_MAX)
            after = trimmed.places[0][1] - len(rows)
            return page_of(chat_id, head.epoch, rows, after, head.sequence)
        return await self._extended(page, limit)

    async def _extended(self, page: Page, limit: int) -> Page:
        """A page of the engine that ends at the border, with what fits into it from behind the border.

        If the cold tier cannot be read, the hot part alone: the request for what is before it is refused.
        """
        rows = rows_of(page)
        room = PAGE_BYTES_MAX - sum(len(wire) for wire in page.entries)
        if len(rows) >= limit or page.from_sequence <= 1 or room <= 0 or not rows:
            return page
        if await self._look(page.chat_id) < page.from_sequence - 1:
            return page  # it was shorter because of its size
        try:
            cold = await self._rows_before(page.chat_id, page.from_sequence - 1, limit - len(rows), room)
        except (StoreDamaged, StoreUnavailable):
            return page
        after = page.from_sequence - 1 - len(cold)
        return page_of(page.chat_id, page.epoch, cold + rows, after, page.head)

    async def _rows_before(self, chat_id: str, last: int, limit: int, room_bytes: int) -> list[Row]:
        """The last archived rows up to `last`, ascending: at most `limit`, as many as there is room for.

        One is returned however large it is, if there is room for a whole page.
        """
        rows: list[Row] = []
        is_whole_page = room_bytes == PAGE_BYTES_MAX
        while last >= 1 and len(rows) < limit:
            first = max(1, last + 1 - min(ROWS_PER_LOOK, limit - len(rows)))
            for row in reversed(await self._archive.rows(chat_id, first, last)):
                room_bytes -= len(row[1] or b"")
                if room_bytes < 0 and not (is_whole_page and not rows):
                    return rows[::-1]
                rows.append(row)
            last = first - 1
        return rows[::-1]

    async def find_key(self, chat_id: str, client_key: bytes) -> bytes | None:
        try:
            return await self._hot.find_key(chat_id, client_key)
        except EntriesTrimmed as trimmed:
            ((_, sequence),) = trimmed.places
            ((_, wire),) = await self._archive.rows(chat_id, sequence, sequence)
            return wire

    async def find_message(self, message_id: str, chat_ids: Sequence[str] | None) -> tuple[str, int] | None:
        try:
            return await self._hot.find_message(message_id, chat_ids)
        except EntriesTrimmed as trimmed:
            for chat_id, sequence in trimmed.places:
                ((_, wire),) = await self._archive.rows(chat_id, sequence, sequence)
                if wire is not None and decode_header(wire).message_id == message_id:
                    return chat_id, sequence
            return None


def rows_of(page: Page) -> list[Row]:
    """The positions of a page, in order."""
    voids, wires = set(page.voids), iter(page.entries)
    span = range(page.from_sequence, page.to_sequence + 1)
    return [(sequence, None if sequence in voids else next(wires)) for sequence in span]


class TieredOverviews:
    """`Overviews` whose unread messages count what is archived, too."""

    def __init__(self, hot: Overviews, tier: Entries, log: TieredLog) -> None:
        self._hot = hot
        self._tier = tier
        self._log = log

    async def changed(
        self, user_id: str, device_id: str, after: str | None, limit: int, brief: bool = False
    ) -> OverviewPage:
        page = await self._hot.changed(user_id, device_id, after, limit, brief)
        behind = [at for at in page.positions if not at.left and at.read_up_to < at.head]
        marks = await self._tier.marks([at.chat_id for at in behind]) if behind else {}
        for place, at in enumerate(page.positions):
            mark = marks.get(at.chat_id)
            if mark is not None and at.read_up_to < mark.trimmed_through:
                page.positions[place] = await self._counted_again(user_id, at)
        return page

    async def _counted_again(self, user_id: str, at: ChatSummary) -> ChatSummary:
        """Over both tiers. Where the cold one cannot be read, `unread_more` says that there may be more."""
        position = max(at.read_up_to, at.head - UNREAD_LOOKED_AT_MAX)
        counted, is_cut = 0, position > at.read_up_to
        try:
            while position < at.head and counted <= UNREAD_MAX:
                page = await self._log.read(at.chat_id, position, min(PAGE_ENTRIES_MAX, at.head - position))
                counted += sum(decode_header(wire).is_unread_of(user_id) for wire in page.entries)
                if page.to_sequence == position:
                    break
                position = page.to_sequence
        except (StoreDamaged, StoreUnavailable):
            return replace(at, unread_more=True)
        return replace(at, unread=min(counted, UNREAD_MAX), unread_more=counted > UNREAD_MAX or is_cut)


class TieredEngine:
    """An `Engine` with a cold tier: the engine's own ports, with a log and overviews over both tiers."""

    def __init__(self, engine: Engine, archive: ArchiveReader, objects: Objects, bulk: ArchivedLogs) -> None:
        self.bulk = bulk
        self.archive = archive
        self.objects = objects
        self._engine = engine
        self._log = TieredLog(engine.log, engine.entries, archive)
        self._overviews = TieredOverviews(engine.overviews, engine.entries, self._log)

    @property
    def hot(self) -> Engine:
        """The engine itself, for the archiver."""
        return self._engine

    @property
    def log(self) -> Log:
        return self._log

    @property
    def overviews(self) -> Overviews:
        return self._overviews

    @property
    def entries(self) -> Entries:
        return self._engine.entries

    @property
    def directory(self) -> Directory:
        return self._engine.directory

    @property
    def records(self) -> Records:
        return self._engine.records

    @property
    def member_states(self) -> MemberStates:
        return self._engine.member_states

    @property
    def cursors(self) -> Cursors:
        return self._engine.cursors

    @property
    def batching(self) -> Batching:
        return self._engine.batching

    @property
    def outbox(self) -> Outbox | None:
        return self._engine.outbox

    @property
    def feed(self) -> Feed | None:
        return self._engine.feed

    @property
    def allocator(self) -> Allocator | None:
        return self._engine.allocator

    @property
    def queues(self) -> DeliveryQueues:
        return self._engine.queues

    @property
    def transfer(self) -> Transfer:
        return TieredTransfer(self._engine.transfer, self.bulk)

    @property
    def inspection(self) -> Inspection:
        return self._engine.inspection

    @property
    def repairs(self) -> Repairs:
        return self._engine.repairs

    @property
    def available(self) -> bool:
        return self._engine.available

    async def create(self, report: Callable[[str], None]) -> list[str]:
        return await self._engine.create(report)

    async def diagnose(self) -> AsyncIterator[Finding]:
        async for finding in self._engine.diagnose():
            yield finding
        try:
            with contextlib.suppress(ObjectMissing):
                await self.objects.read(PROBED)
        except StoreUnavailable as error:
            remedy = "check archive.target, its credentials, and whether the bucket exists"
            yield Finding("wrong", "cold tier", str(error), remedy)
        else:
            yield Finding("ok", "cold tier", "it can be read")

    async def open(self) -> None:
        await self._engine.open()

    def jobs(self, subscriptions: Subscriptions) -> list[Job]:
        forgetting = Job(
            name="archive_memory",
            does="frees the memory of archived entries that were not read of late",
            run=self.archive.forget_unused,
            interval_seconds=FORGET_SECONDS,
            timeout_seconds=None,
        )
        return [*self._engine.jobs(subscriptions), forgetting]

    async def close(self) -> None:
        await self._engine.close()


def archived_rows(engine: Engine) -> ArchivedRows | None:
    """What reads the trimmed part of each log for `parley check`; None without a cold tier."""
    return engine.bulk.of_chat if isinstance(engine, TieredEngine) else None
