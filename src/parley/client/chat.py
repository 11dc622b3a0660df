"""A chat as an application holds it, and the loops that read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from parley.client.api import ChatInfo, History, MemberInfo
from parley.client.errors import ReadElsewhere, RequestRefused
from parley.client.sending import Sending
from parley.model import Role
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_DEFAULT

if TYPE_CHECKING:
    from parley.client.client import Client


class Chat:
    """One chat. `async for entry in chat` yields its log from where this device is, and then lives on."""

    def __init__(self, client: Client, chat_id: str) -> None:
        self._client = client
        self._path = f"chats/{quote(chat_id, safe='')}"
        self.chat_id = chat_id

    def send(
        self,
        content: str,
        *,
        content_type: str = "text/plain",
        display_time: str | None = None,
        client_message_id: str | None = None,
    ) -> Sending:
        """Put a message into the outbox; await the answer for its ack.

        Messages of one chat are stored in the order of these calls. OutboxFull or RequestRefused if it
        cannot even be queued.
        """
        return self._client.send(self.chat_id, content, content_type, display_time, client_message_id)

    def __aiter__(self) -> Entries:
        """Read on. A loop that is still open on this chat ends; what it left unprocessed comes again."""
        return self._client.read(self.chat_id)

    def done(self) -> None:
        """The entry that was yielded last is processed, although the next one was not asked for."""
        self._client.processed(self.chat_id)

    def seek(self, after: int) -> None:
        """The next loop reads on after this sequence, wherever this device was; 0 is the whole log."""
        self._client.seek(self.chat_id, after)

    @property
    def restarts(self) -> int:
        """How often the server has started this log over since it is read here."""
        inbox = self._client.engine.reading.inbox(self.chat_id)
        return 0 if inbox is None else inbox.restarts

    async def mark_read(self, up_to: int | str) -> None:
        """The person has read everything up to a sequence or a message_id; known to all when it returns."""
        await self._client.mark_read(self.chat_id, up_to)

    async def info(self) -> ChatInfo:
        return await self._client.api.call("GET", self._path, ChatInfo)

    async def history(self, before: int | None = None, limit: int = PAGE_ENTRIES_DEFAULT) -> History:
        """The entries before a sequence, or the latest; no cursor moves."""
        end = str(2**53 - 1 if before is None else before)
        return await self._client.api.history(self.chat_id, {"before": end, "limit": str(limit)})

    async def members(self) -> list[MemberInfo]:
        return await self._client.api.members(self.chat_id)

    async def add_member(self, user_id: str, role: Role = Role.MEMBER) -> None:
        body: dict[str, object] = {"user_id": user_id, "role": role.value}
        await self._client.api.call("POST", f"{self._path}/members", object, body)

    async def remove_member(self, user_id: str) -> None:
        """Remove somebody; oneself to leave."""
        await self._client.api.call("DELETE", f"{self._path}/members/{quote(user_id, safe='')}", object)

    async def rename(self, title: str) -> ChatInfo:
        return await self._client.api.call("PATCH", self._path, ChatInfo, {"title": title})


class Entries:
    """The loop over one chat: in order, contiguous, no entry twice, across every reconnect.

    An entry counts as processed when the next one is asked for; one that was not comes again in the next loop
    or the next run. RequestRefused when the chat can be read no further (`not_a_member`).
    """

    def __init__(self, client: Client, chat_id: str) -> None:
        self._client = client
        self._chat_id = chat_id
        self._changed = asyncio.Event()
        self._open = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        while True:
            if not self._open:
                raise ReadElsewhere("this chat is read by another loop now; a device has one cursor per chat")
            self._changed.clear()
            entry = self._client.take(self._chat_id)
            if entry is not None:
                return entry
            self._raise_failure()
            await self._changed.wait()

    def notify(self) -> None:
        self._changed.set()

    def close(self) -> None:
        """End this loop; the entry that it yielded last is not processed."""
        self._open = False
        self._changed.set()

    def _raise_failure(self) -> None:
        self._client.check_open()
        inbox = self._client.engine.reading.inbox(self._chat_id)
        if inbox is not None and inbox.failure is not None:
            raise RequestRefused(inbox.failure)


class AllEntries:
    """The loop over every chat of the person, also those that come later. Each chat's entries are in order.

    Chats that are read by a loop of their own are left to it; chats that are left drop out silently.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed = asyncio.Event()
        self._ready: dict[str, None] = {}
        self._last: str | None = None
        self._open = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        if self._last is not None:
            self._client.processed(self._last)
            self._last = None
        while True:
            if not self._open:
                raise ReadElsewhere(
                    "all chats are read by another loop now; a device has one cursor per chat"
                )
            self._changed.clear()
            entry = self._take_next()
            if entry is not None:
                return entry
            self._client.check_open()
            await self._changed.wait()

    def notify(self, chat_id: str | None = None) -> None:
        if chat_id is not None:
            self._ready[chat_id] = None
        self._changed.set()

    def leave(self, chat_id: str) -> None:
        """A loop of its own reads this chat from now on."""
        self._ready.pop(chat_id, None)
        if self._last == chat_id:
            self._last = None

    def close(self) -> None:
        self._open = False
        self._changed.set()

    def _take_next(self) -> Entry | None:
        """One entry of the chat that waits longest."""
        while self._ready:
            chat_id = next(iter(self._ready))
            del self._ready[chat_id]
            entry = self._client.take(chat_id)
            if entry is not None:
                self._ready[chat_id] = None
                self._last = chat_id
                return entry
            self._client.drop_if_failed(chat_id)
        return None
