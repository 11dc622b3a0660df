"""A chat as an application holds it, and the loops that read."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from parley.client.api import chat_path
from parley.client.bodies import ChatInfo, History, Receipts
from parley.client.errors import ReadElsewhere, RequestRefused
from parley.client.live import Update
from parley.client.opened import Members
from parley.client.sending import MessageStatus, Sending, status_of
from parley.client.updates import Updates
from parley.clock import MS_PER_SECOND, iso
from parley.core.receipts import MessageReceipts
from parley.model import ReadReceipts, Role
from parley.wire.frames import Entry
from parley.wire.limits import PAGE_ENTRIES_DEFAULT

if TYPE_CHECKING:
    from parley.client.client import Client


class Chat:
    """One chat. `async for entry in chat` yields its log from where this device is, and then lives on.

    `unread`, `muted` and `typing` are always up to date; `members` and what became of messages are from
    `open` until `close`. `updates` tells when to look again.
    """

    def __init__(self, client: Client, chat_id: str) -> None:
        self._client = client
        self._path = chat_path(chat_id)
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

        `display_time` tells others when it was written, in ISO 8601, and orders nothing: now by the client's
        clock if left out. It is kept with the message, the same in every retry, however late it arrives.

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

    # What is live

    @property
    def unread(self) -> int:
        """Messages of others that the person has not read on any device, up to 999."""
        return self._client.engine.live.unread(self.chat_id).count

    @property
    def unread_more(self) -> bool:
        """Whether there may be more: above 999, or further back than the server looks. Else it is exact."""
        return self._client.engine.live.unread(self.chat_id).more

    @property
    def muted(self) -> bool:
        return self._client.is_muted(self.chat_id)

    @property
    def typing(self) -> list[str]:
        """The user_ids of those who type right now."""
        return self._client.engine.live.typists.of(self.chat_id)

    async def open(self) -> Self:
        """Keep `members`, and what becomes of messages, up to date until `close`; the chat itself comes back.

        RequestRefused if one may not see it.
        """
        await self._client.open_chat(self.chat_id)
        return self

    def close(self) -> None:
        """The chat is not looked at any more: less is asked for."""
        self._client.close_chat(self.chat_id)

    @property
    def is_online(self) -> bool:
        """Whether there is a connection, so that what is shown here is up to date."""
        return self._client.is_online

    @property
    def is_open(self) -> bool:
        return self._client.engine.live.opened(self.chat_id) is not None

    @property
    def members(self) -> Members:
        """Everybody in it, with names, roles, presence and how far they are. Empty while it is not open."""
        opened = self._client.engine.live.opened(self.chat_id)
        return Members({} if opened is None else opened.by_id)

    def status(self, message: Entry | int) -> MessageStatus:
        """What became of a message: an entry, or the sequence of one's own. "sent" while it is not open."""
        return status_of(self._client.engine, self.chat_id, *self._placed(message))

    def seen(self, message: Entry | int) -> MessageReceipts | None:
        """Who has received and read a message, without asking; None while the chat is not open."""
        return self._client.engine.live.receipts(self.chat_id, *self._placed(message))

    def updates(self) -> Updates:
        """A loop over what changes in this chat, and whether there is a connection. See `Update`."""
        return self._client.hear(self._concerns)

    def type(self) -> None:
        """The person types: call it at every key. Others are told at most every 3 s; lost while offline."""
        self._client.type(self.chat_id)

    def stop_typing(self) -> None:
        """The person does not type any more, and sends nothing: sending says so itself."""
        self._client.stop_typing(self.chat_id)

    def _placed(self, message: Entry | int) -> tuple[int, str]:
        if isinstance(message, int):
            return message, self._client.user_id
        return message.sequence, message.sender_id

    def _concerns(self, update: Update) -> bool:
        if update.user_id is not None:
            return self.members.get(update.user_id) is not None
        return update.chat_id in (self.chat_id, None)

    # What is asked

    async def info(self) -> ChatInfo:
        return await self._client.api.call("GET", self._path, ChatInfo)

    async def history(self, before: int | None = None, limit: int = PAGE_ENTRIES_DEFAULT) -> History:
        """The entries before a sequence, or the latest; no cursor moves."""
        end = str(2**53 - 1 if before is None else before)
        return await self._client.api.history(self.chat_id, {"before": end, "limit": str(limit)})

    async def add_member(self, user_id: str, role: Role = Role.MEMBER) -> None:
        body: dict[str, object] = {"user_id": user_id, "role": role.value}
        await self._client.api.call("POST", f"{self._path}/members", object, body)

    async def remove_member(self, user_id: str) -> None:
        """Remove somebody; oneself to leave."""
        await self._client.api.call("DELETE", f"{self._path}/members/{quote(user_id, safe='')}", object)

    async def rename(self, title: str) -> ChatInfo:
        return await self._change(title=title)

    async def set_read_receipts(self, mode: ReadReceipts | str) -> ChatInfo:
        """What members learn of who has read: everybody by name, whether anybody, or nothing."""
        return await self._change(read_receipts=ReadReceipts(mode))

    async def mute(self, until: datetime) -> ChatInfo:
        """For this person, on every device."""
        return await self._change(muted_until=iso(round(until.timestamp() * MS_PER_SECOND)))

    async def unmute(self) -> ChatInfo:
        return await self._change(muted_until=None)

    async def receipts(self, sequence: int) -> Receipts:
        """Who has received and read a message, asked from the server: in a chat of any size, open or not."""
        return await self._client.api.call("GET", f"{self._path}/messages/{sequence}/receipts", Receipts)

    async def _change(self, **settings: object) -> ChatInfo:
        return await self._client.api.call("PATCH", self._path, ChatInfo, settings)


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
