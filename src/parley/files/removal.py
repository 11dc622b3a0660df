"""Files go with their messages, and what nobody refers to is swept.

A file is marked before the message that refers to it loses its body, and its bytes are deleted after that:

    mark → the message without its body → bytes → what is known about it

A crash leaves a file that is marked. The sweep looks whether a message still has it: then the mark is taken
away, otherwise the rest is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog
from msgspec import UNSET

from parley.clock import Clock
from parley.core.attachments import Attachment, AttachmentState, Found, decide_sweep, files_of, needs_message
from parley.core.jobs import Job
from parley.errors import StoreError
from parley.files.parts import FileParts
from parley.model import JobScope
from parley.records.attachments import Attachments
from parley.store.ports import Log
from parley.telemetry import Metrics
from parley.wire.codec import decode_entry
from parley.wire.frames import Entry

JOB = "attachments"
SWEEP_SECONDS = 60.0
FIRST_SWEEP_SECONDS = 10.0
SWEEP_SECONDS_MAX = 3_600.0
MARK_TRIES_MAX = 20

log = structlog.get_logger("parley.files")


class FileRemoval:
    """`unused_ms`: how long a file that no message refers to is kept."""

    def __init__(
        self,
        files: Attachments,
        parts: FileParts,
        messages: Log,
        clock: Clock,
        metrics: Metrics,
        *,
        unused_ms: int,
        fault_point: Callable[[str], None],
    ) -> None:
        self._files = files
        self._parts = parts
        self._log = messages
        self._clock = clock
        self._metrics = metrics
        self._unused_ms = unused_ms
        self._fault_point = fault_point

    # With a message

    async def mark(self, chat_id: str, attachment_ids: Iterable[str]) -> None:
        """A message is about to lose these files. Durable before it returns."""
        for attachment_id in attachment_ids:
            await self._mark(chat_id, attachment_id)
        self._fault_point("file_after_mark")

    async def _mark(self, chat_id: str, attachment_id: str) -> None:
        for _ in range(MARK_TRIES_MAX):
            file = await self._files.get(chat_id, attachment_id)
            if file is None or file.state is AttachmentState.REMOVING:
                return
            if await self._files.swap(file, file.moved(AttachmentState.REMOVING, self._clock())):
                return

    async def remove(self, chat_id: str, attachment_ids: Iterable[str]) -> None:
        """No message refers to these any more: their bytes are gone when it returns."""
        self._fault_point("file_after_amend")
        for attachment_id in attachment_ids:
            file = await self._files.get(chat_id, attachment_id)
            if file is not None and file.state is AttachmentState.REMOVING:
                await self._remove(file, "removed")

    async def discard(self, file: Attachment) -> bool:
        """Remove a file that no message refers to; False if it is not what it was."""
        marked = file.moved(AttachmentState.REMOVING, self._clock())
        if not await self._files.swap(file, marked):
            return False
        await self._remove(marked, "discarded")
        return True

    async def _remove(self, file: Attachment, why: str) -> None:
        await self._parts.delete(file)
        self._fault_point("file_after_bytes")
        await self._files.remove(file)
        self._metrics.attachments.labels(why).inc()

    # The sweep

    @property
    def job(self) -> Job:
        return Job(
            name=JOB,
            does="removes uploads that never ended and files that no message refers to",
            run=self.sweep,
            interval_seconds=SWEEP_SECONDS,
            timeout_seconds=SWEEP_SECONDS_MAX,
            first_seconds=FIRST_SWEEP_SECONDS,
            scope=JobScope.CLUSTER,
        )

    async def sweep(self) -> None:
        """Bring every file further that is due. One that cannot be is left for the next time."""
        for file in await self._files.unsettled():
            try:
                await self._sweep(file)
            except StoreError as error:
                log.warning("a file could not be swept", attachment_id=file.attachment_id, error=str(error))
            await asyncio.sleep(0)

    async def _sweep(self, file: Attachment) -> None:
        now_ms = self._clock()
        found, sequence = Found.UNKNOWN, file.sequence
        if needs_message(file, now_ms):
            entry = await self._message(file)
            found = _found_in(entry, file)
            sequence = entry.sequence if entry is not None else sequence
        following = decide_sweep(file, found, now_ms, self._unused_ms)
        if following is UNSET:
            await self._remove(file, "swept")
        elif following is not None:
            await self._files.swap(file, file.moved(following, now_ms, sequence=sequence))

    async def is_referred_to(self, file: Attachment) -> bool:
        """Whether a message has this file now."""
        return _found_in(await self._message(file), file) is Found.HERE

    async def _message(self, file: Attachment) -> Entry | None:
        if file.sequence:
            page = await self._log.read(file.chat_id, file.sequence - 1, 1)
            return decode_entry(page.entries[0]) if page.entries else None
        wire = await self._log.find_key(file.chat_id, file.client_key) if file.client_key else None
        return decode_entry(wire) if wire is not None else None


def _found_in(entry: Entry | None, file: Attachment) -> Found:
    if entry is None:
        return Found.UNKNOWN
    return Found.HERE if file.attachment_id in files_of(entry) else Found.WITHOUT
