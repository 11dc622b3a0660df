"""What `parley archive` and `parley retention` print."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from msgspec import Struct

from parley.archive.archiver import ArchiveProgress, NeededFrom
from parley.archive.tiers import TieredEngine
from parley.archive.verification import Verification
from parley.bodies.retention import RetentionReport
from parley.cli.output import note, plural, print_json, print_table, printable
from parley.store.rows import EVERYTHING, ChatRetention

PROGRESS_SECONDS = 0.1


class ArchiveStatus(Struct):
    """How far a chat is archived. `needed_from`: the first position that a consumer has not done, if any."""

    chat_id: str
    head: int
    archived_through: int
    trimmed_through: int
    segments: int
    bytes: int
    needed_from: int | None = None


class ColdProgressLine:
    """A progress line on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._next = 0.0
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + PROGRESS_SECONDS
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def archiving(self, done: ArchiveProgress) -> None:
        self._say(f"archiving: {plural(done.chats, 'chat')}, {done.entries:,} entries moved")

    def verifying(self, done: Verification) -> None:
        self._say(f"verifying: {plural(done.chats, 'chat')}, {done.entries:,} entries")

    def removing(self, done: RetentionReport) -> None:
        self._say(f"looking: {plural(done.chats, 'chat')}, {done.bodies:,} bodies")


def show_run(done: ArchiveProgress, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    for chat_id, why in done.failed.items():
        note(f"{chat_id} could not be archived: {printable(why)}")
    print_table(
        ["CHATS", "ARCHIVED", "ENTRIES", "TRIMMED"],
        [(f"{done.chats:,}", f"{done.archived_chats:,}", f"{done.entries:,}", f"{done.trimmed:,}")],
    )


async def archive_status(
    engine: TieredEngine, chat_ids: Sequence[str] | None, consumers: Sequence[NeededFrom]
) -> list[ArchiveStatus]:
    """Every chat with an archive, or these."""
    found: list[ArchiveStatus] = []
    async for page in engine.inspection.chats(chat_ids):
        named = [chat.chat_id for chat in page]
        marks, heads = await engine.entries.marks(named), await engine.log.heads(named)
        for chat_id, mark in marks.items():
            if not mark.version and chat_ids is None:
                continue
            manifest = await engine.archive.manifest(chat_id, mark)
            needed = min([await look(chat_id) for look in (engine.entries.needed_from, *consumers)])
            found.append(
                ArchiveStatus(
                    chat_id,
                    heads[chat_id].sequence if chat_id in heads else 0,
                    mark.archived_through,
                    mark.trimmed_through,
                    len(manifest.segments),
                    sum(one.bytes for one in manifest.segments),
                    needed if needed < EVERYTHING else None,
                )
            )
    return found


def show_status(found: list[ArchiveStatus], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_table(
        ["CHAT", "HEAD", "ARCHIVED", "TRIMMED", "SEGMENTS", "BYTES", "NEEDED FROM"],
        [
            (
                one.chat_id,
                f"{one.head:,}",
                f"{one.archived_through:,}",
                f"{one.trimmed_through:,}",
                one.segments,
                f"{one.bytes:,}",
                one.needed_from,
            )
            for one in found
        ],
    )


def show_verification(found: Verification, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for fault in found.faults:
        print(f"✗ {fault.name}\n  {printable(fault.says)}\n")
    numbers = (found.chats, found.segments, found.entries, found.erased, found.bytes)
    headings = ["CHATS", "SEGMENTS", "ENTRIES", "ERASED", "BYTES"]
    print_table(headings, [tuple(f"{number:,}" for number in numbers)])
    if not found.faults:
        print("\nEvery segment is what was written.")


def show_retention(found: RetentionReport, as_json: bool, *, is_done: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_table(
        ["CHAT", "DAYS", "BEFORE", "HOT", "COLD", ""],
        [
            (
                one.chat_id,
                one.days,
                one.before,
                f"{one.hot:,}",
                f"{one.cold:,}",
                "held" if one.is_held else "",
            )
            for one in found.lines
        ],
    )
    done = "removed" if is_done else "would be removed; nothing was changed"
    print(f"\n{plural(found.bodies, 'body').replace('bodys', 'bodies')} {done}.")


def show_decision(chat_id: str, decided: ChatRetention, as_json: bool) -> None:
    if as_json:
        print_json({"chat_id": chat_id, "days": decided.days, "is_held": decided.is_held})
        return
    days = "as long as retention.days says" if decided.days is None else f"{decided.days} days"
    days = "for ever" if decided.days == 0 else days
    print(f"{chat_id}: bodies are kept {days}{'; under a legal hold' if decided.is_held else ''}")
