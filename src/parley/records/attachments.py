"""The files that people have uploaded, or are uploading. The bytes are in an object store.

Beside the files there are lists of them: those of each person, and those that the sweep must look at. A file
is on its lists before it is stored, and stays there until it is gone: what a crash leaves is a line too many,
never one too few. `unsettled` clears such lines.
"""

from __future__ import annotations

from parley.clock import Clock
from parley.core.attachments import (
    UNSETTLED_SHARDS,
    Attachment,
    AttachmentLine,
    line_of,
    unsettled_list,
    unsettled_shard,
    user_list,
)
from parley.records.book import all_in
from parley.store.ports import Records
from parley.store.tables import ATTACHMENT_LINES, ATTACHMENTS, PutRecord, RemoveRecord

NOTE_MS = 10 * 60_000
"""A line about a file that is older was left by a process that died, or is out of date."""


class Attachments:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def add(self, attachment: Attachment) -> None:
        """Durable before it returns. Its id is new."""
        await self._list(unsettled_list(attachment.attachment_id), attachment)
        await self._list(user_list(attachment.user_id), attachment)
        await self._records.commit(ATTACHMENTS, [PutRecord(attachment)])

    async def get(self, chat_id: str, attachment_id: str) -> Attachment | None:
        """The file of a chat with this id."""
        (found,) = await self._records.get(ATTACHMENTS, [(chat_id, attachment_id)])
        return found

    async def swap(self, before: Attachment, after: Attachment) -> bool:
        """Replace what is known of a file, durable before it returns. False, and nothing is written, if it is
        not the same as `before` any more.
        """
        if before.is_settled and not after.is_settled:
            await self._list(unsettled_list(after.attachment_id), after)
        if not await self._records.commit(ATTACHMENTS, [PutRecord(after, before=before)]):
            return False
        if after.is_settled:
            await self._unlist(unsettled_list(after.attachment_id), after.attachment_id)
        return True

    async def remove(self, attachment: Attachment) -> None:
        """It is forgotten, durably. May be repeated."""
        await self._records.commit(ATTACHMENTS, [RemoveRecord(ATTACHMENTS.key(attachment))])
        await self._unlist(user_list(attachment.user_id), attachment.attachment_id)
        await self._unlist(unsettled_list(attachment.attachment_id), attachment.attachment_id)

    async def unsettled(self) -> list[Attachment]:
        """Every file that is not `attached`: none is missing that was written before the call."""
        found: list[Attachment] = []
        for shard in range(UNSETTLED_SHARDS):
            lines = await all_in(self._records, ATTACHMENT_LINES, unsettled_shard(shard))
            keys = [(line.chat_id, line.attachment_id) for line in lines]
            files = await self._records.get(ATTACHMENTS, keys)
            for line, attachment in zip(lines, files, strict=True):
                if attachment is not None and not attachment.is_settled:
                    found.append(attachment)
                elif line.since_ms < self._clock() - NOTE_MS:
                    await self._forget(line, attachment)
        return found

    async def charged_bytes(self, user_id: str) -> int:
        """How much room the files of a person take: the sum of `Attachment.charge`."""
        lines = await all_in(self._records, ATTACHMENT_LINES, user_list(user_id))
        return sum(line.charge for line in lines)

    async def _forget(self, line: AttachmentLine, attachment: Attachment | None) -> None:
        """A line that is out of date goes, unless it was written again; with it, that of its owner."""
        if attachment is None:
            await self._unlist(user_list(line.user_id), line.attachment_id)
        gone = RemoveRecord(ATTACHMENT_LINES.key(line), before=line)
        await self._records.commit(ATTACHMENT_LINES, [gone])

    async def _list(self, name: str, attachment: Attachment) -> None:
        line = line_of(name, attachment, self._clock())
        await self._records.commit(ATTACHMENT_LINES, [PutRecord(line)])

    async def _unlist(self, name: str, attachment_id: str) -> None:
        await self._records.commit(ATTACHMENT_LINES, [RemoveRecord((name, attachment_id))])
