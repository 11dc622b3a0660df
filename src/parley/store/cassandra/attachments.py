"""The `Attachments` port on Cassandra.

Beside the files there are lists of them: those of each person, and those that the sweep must look at. A file
is on its lists before it is stored, and stays there until it is gone: what a crash leaves is a line too many,
never one too few. `unsettled` clears such lines.
"""

from __future__ import annotations

from zlib import crc32

from msgspec import Struct

from parley.clock import Clock
from parley.core.attachments import Attachment
from parley.store.attachments import NOTE_MS
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.json_rows import JsonRows
from parley.store.cassandra.schema import ATTACHMENT_LISTS, ATTACHMENTS

UNSETTLED_SHARDS = 8
"""Files that the sweep must look at are listed under so many names, so that no one of them gets hot."""


class ListedFile(Struct, frozen=True):
    """A line of a list. `since_ms`: when it was written."""

    attachment_id: str
    chat_id: str
    user_id: str
    since_ms: int
    charge: int


class CassandraAttachments:
    def __init__(self, cassandra: Cassandra, clock: Clock) -> None:
        self._files = JsonRows(cassandra, ATTACHMENTS, ("chat_id", "attachment_id"), Attachment)
        self._lists = JsonRows(cassandra, ATTACHMENT_LISTS, ("list", "attachment_id"), ListedFile)
        self._clock = clock

    async def add(self, attachment: Attachment) -> None:
        await self._list(_unsettled_list(attachment.attachment_id), attachment)
        await self._list(_user_list(attachment.user_id), attachment)
        await self._files.add(attachment.chat_id, attachment.attachment_id, record=attachment)

    async def put(self, attachment: Attachment) -> None:
        """As a copy does: over one that is there."""
        if not attachment.is_settled:
            await self._list(_unsettled_list(attachment.attachment_id), attachment)
        await self._list(_user_list(attachment.user_id), attachment)
        await self._files.change(attachment.chat_id, attachment.attachment_id, change=lambda _: attachment)

    async def get(self, chat_id: str, attachment_id: str) -> Attachment | None:
        is_found = is_key(chat_id) and is_key(attachment_id)
        return await self._files.get(chat_id, attachment_id) if is_found else None

    async def swap(self, before: Attachment, after: Attachment) -> bool:
        if before.is_settled and not after.is_settled:
            await self._list(_unsettled_list(after.attachment_id), after)
        if not await self._files.swap(after.chat_id, after.attachment_id, before=before, after=after):
            return False
        if after.is_settled:
            await self._unlist(_unsettled_list(after.attachment_id), after.attachment_id)
        return True

    async def remove(self, attachment: Attachment) -> None:
        chat_id, attachment_id = attachment.chat_id, attachment.attachment_id
        while (stored := await self._files.get(chat_id, attachment_id)) is not None:
            if await self._files.swap(chat_id, attachment_id, before=stored, after=None):
                break
        await self._unlist(_user_list(attachment.user_id), attachment_id)
        await self._unlist(_unsettled_list(attachment_id), attachment_id)

    async def unsettled(self) -> list[Attachment]:
        found: list[Attachment] = []
        for shard in range(UNSETTLED_SHARDS):
            for line in await self._lists.all(_shard_list(shard)):
                attachment = await self.get(line.chat_id, line.attachment_id)
                if attachment is not None and not attachment.is_settled:
                    found.append(attachment)
                elif line.since_ms < self._clock() - NOTE_MS:
                    if attachment is None:
                        await self._unlist(_user_list(line.user_id), line.attachment_id)
                    # unless it was written again
                    await self._lists.swap(_shard_list(shard), line.attachment_id, before=line, after=None)
        return found

    async def charged_bytes(self, user_id: str) -> int:
        return sum(line.charge for line in await self._lists.all(_user_list(user_id)))

    # Lists

    async def _list(self, name: str, attachment: Attachment) -> None:
        line = ListedFile(
            attachment.attachment_id,
            attachment.chat_id,
            attachment.user_id,
            self._clock(),
            attachment.charge,
        )
        await self._lists.change(name, attachment.attachment_id, change=lambda _: line)

    async def _unlist(self, name: str, attachment_id: str) -> None:
        while (line := await self._lists.get(name, attachment_id)) is not None:
            if await self._lists.swap(name, attachment_id, before=line, after=None):
                return


def _user_list(user_id: str) -> str:
    return f"user {user_id}"


def _unsettled_list(attachment_id: str) -> str:
    return _shard_list(crc32(attachment_id.encode()) % UNSETTLED_SHARDS)


def _shard_list(shard: int) -> str:
    return f"unsettled {shard}"
