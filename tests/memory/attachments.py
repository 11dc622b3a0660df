"""The `Attachments` port in memory."""

from __future__ import annotations

from parley.core.attachments import Attachment
from tests.memory.tables import Tables


class MemoryAttachments:
    def __init__(self, tables: Tables) -> None:
        self._files = tables.attachments

    async def add(self, attachment: Attachment) -> None:
        self._files[attachment.chat_id, attachment.attachment_id] = attachment

    async def get(self, chat_id: str, attachment_id: str) -> Attachment | None:
        return self._files.get((chat_id, attachment_id))

    async def swap(self, before: Attachment, after: Attachment) -> bool:
        key = before.chat_id, before.attachment_id
        if self._files.get(key) != before:
            return False
        self._files[key] = after
        return True

    async def remove(self, attachment: Attachment) -> None:
        self._files.pop((attachment.chat_id, attachment.attachment_id), None)

    async def unsettled(self) -> list[Attachment]:
        return [file for file in self._files.values() if not file.is_settled]

    async def charged_bytes(self, user_id: str) -> int:
        return sum(file.charge for file in self._files.values() if file.user_id == user_id)
