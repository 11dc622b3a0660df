"""What an engine must keep so that messages can refer to files. The bytes are in an object store."""

from __future__ import annotations

from typing import Protocol

from parley.core.attachments import Attachment

NOTE_MS = 10 * 60_000
"""A note of an engine about a file that is older was left by a process that died, or is out of date."""


class Attachments(Protocol):
    """The files that people have uploaded, or are uploading. Read strongly."""

    async def add(self, attachment: Attachment) -> None:
        """Durable before it returns. Its id is new."""
        ...

    async def get(self, chat_id: str, attachment_id: str) -> Attachment | None:
        """The file of a chat with this id."""
        ...

    async def swap(self, before: Attachment, after: Attachment) -> bool:
        """Replace what is known of a file, durable before it returns. False, and nothing is written, if it is
        not the same as `before` any more.
        """
        ...

    async def remove(self, attachment: Attachment) -> None:
        """It is forgotten, durably. May be repeated."""
        ...

    async def unsettled(self) -> list[Attachment]:
        """Every file that is not `attached`: none is missing that was written before the call."""
        ...

    async def charged_bytes(self, user_id: str) -> int:
        """How much room the files of a person take: the sum of `Attachment.charge`."""
        ...
