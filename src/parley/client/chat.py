"""A chat, and a message that is being sent: the objects that an application uses."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from parley.client.api import chat_path
from parley.client.chat_model import ChatModel
from parley.client.connection import loop_ms
from parley.client.core import ClientCore
from parley.client.errors import ClientError
from parley.client.events import Update
from parley.client.files import Files, OnProgress, nothing_shown
from parley.client.log_proof import LogDifference
from parley.client.members import Members
from parley.client.storage import Cursor, OutgoingMessage
from parley.client.streams import EntryStream, UpdateStream
from parley.client.window import WINDOW_POSITIONS_DEFAULT, LogWindow
from parley.clock import MS_PER_SECOND, iso
from parley.core.receipts import MessageReceipts
from parley.model import Kind, Notify, ReadReceipts, Role
from parley.wire.bodies import ChatInfo, MemberInfo, MembersAdded, OneMessage, Receipts
from parley.wire.frames import Ack, Batch, Entry
from parley.wire.limits import PAGE_ENTRIES_DEFAULT, SEARCH_HITS_DEFAULT
from parley.wire.page_bodies import MessagesFound, ShownEntry
from parley.wire.people_bodies import ReportMade
from parley.wire.search_bodies import ChatHits

if TYPE_CHECKING:
    from parley.client.client import Client


class MessageStatus(StrEnum):
    """The status of a message. Delivered and read are known while its chat is open."""

    SENDING = "sending"
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"


class Sending:
    """A message that is being sent. Await it for the ack: the message is then durable at its position.

    Not awaiting it changes nothing: the message stays in the outbox until the server acknowledges it or
    refuses it for good. It raises RequestRefused after a refusal, and Closed if this client ended first.
    """

    __slots__ = ("_chat", "_core", "_done", "_kept", "_outcome", "message")

    def __init__(self, message: OutgoingMessage, core: ClientCore, *, is_saved: bool) -> None:
        self.message = message
        self._core = core
        self._chat = core.chat(message.chat_id)
        self._outcome: Ack | ClientError | None = None
        self._done = asyncio.Event()
        self._kept = asyncio.Event()
        if is_saved:
            self._kept.set()

    @property
    def client_message_id(self) -> str:
        return self.message.client_message_id

    @property
    def done(self) -> bool:
        return self._outcome is not None

    @property
    def status(self) -> MessageStatus:
        """Its current status, from sending to read, or failed."""
        if self._outcome is None:
            return MessageStatus.SENDING
        if isinstance(self._outcome, ClientError):
            return MessageStatus.FAILED
        return status_of(self._chat, self._outcome.sequence, self._core.user_id)

    @property
    def queued(self) -> bool:
        """Whether it waits in the outbox (offline, or after the quick retries) rather than for its ack."""
        return not self.done and self._core.outbox.is_queued(self.message.key)

    def __await__(self) -> Generator[Any, None, Ack]:
        return self._wait().__await__()

    async def kept(self) -> None:
        """Wait until the message survives this process: it is in the outbox file, or acknowledged."""
        await self._kept.wait()
        if isinstance(self._outcome, ClientError):
            raise self._outcome

    def settle(self, outcome: Ack | ClientError) -> None:
        self._outcome = outcome
        self._done.set()
        self._kept.set()

    def note_saved(self) -> None:
        self._kept.set()

    async def _wait(self) -> Ack:
        await self._done.wait()
        if isinstance(self._outcome, ClientError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


def status_of(chat: ChatModel, sequence: int, sender_id: str) -> MessageStatus:
    """The status of a stored message, as far as this client knows it."""
    receipts = chat.receipts(sequence, sender_id)
    return MessageStatus.SENT if receipts is None else MessageStatus(receipts.status)


class Chat:
    """One chat. `async for entry in chat` yields its log from where this device is, then live.

    `unread`, `muted` and `typing` are always up to date; `members` and the status of messages are known from
    `open` until `close`. `updates` yields what changed.
    """

    def __init__(self, client: Client, chat_id: str) -> None:
        self._client = client
        self._core = client.core
        self._model = client.core.chat(chat_id)
        self._path = chat_path(chat_id)
        self.chat_id = chat_id

    def send(
        self,
        content: str,
        *,
        content_type: str = "text/plain",
        display_time: str | None = None,
        client_message_id: str | None = None,
        mentions: Iterable[str] = (),
        reply_to: str | None = None,
        attachments: Iterable[str] = (),
    ) -> Sending:
        """Put a message into the outbox; await the result for its ack.

        `display_time` shows others when it was written, in ISO 8601, and orders nothing; the default is the
        client's clock. Every retry repeats it, however late the message arrives. `mentions`: up to 100 user
        ids, who are notified even if they want that for mentions alone. `reply_to`: the id of the message
        of this chat that it answers. `attachments`: ids of files that `files` has uploaded.

        Messages of one chat are stored in the order of these calls. OutboxFull or RequestRefused if the
        message cannot be queued.
        """
        return self._client.send(
            self.chat_id,
            content,
            content_type,
            display_time,
            client_message_id,
            mentions,
            reply_to,
            attachments,
        )

    @property
    def files(self) -> Files:
        """Uploads and downloads of this chat's files."""
        return Files(self._client.api, self.chat_id)

    async def send_file(
        self, path: Path | str, content: str = "", *, progress: OnProgress = nothing_shown
    ) -> Sending:
        """Upload a file, and put a message that refers to it into the outbox."""
        file = await self.files.upload(path, progress=progress)
        return self.send(content, attachments=[file.attachment_id])

    def edit(self, message_id: str, content: str) -> Sending:
        """Give a message of your own another content. As `send`: queued, retried, done once."""
        return self._client.amend(self.chat_id, Kind.EDIT, message_id, content)

    def delete(self, message_id: str) -> Sending:
        """Remove a message for good: your own, or any in a group that you are an admin or owner of."""
        return self._client.amend(self.chat_id, Kind.DELETE, message_id)

    def react(self, message_id: str, reaction: str, *, on: bool = True) -> Sending:
        """Add a reaction of 1 to 16 characters to a message, or take your own back."""
        return self._client.amend(self.chat_id, Kind.REACTION, message_id, reaction, is_on=on)

    async def message(self, message_id: str) -> OneMessage:
        """One message as it is now, with its reactions and the number of its replies."""
        path = f"{self._path}/messages/{quote(message_id, safe='')}"
        return await self._client.api.call("GET", path, OneMessage)

    def __aiter__(self) -> EntryStream:
        """Read on. Ends another loop on this chat; the entry that it did not process comes again."""
        return self._client.read(self._model)

    def done(self) -> None:
        """Mark the last yielded entry as processed, without reading the next one."""
        self._core.mark_processed(self._model, loop_ms())

    def seek(self, after: int) -> None:
        """The next loop starts after this sequence, wherever this device was; 0 is the whole log."""
        self._client.check_open()
        self._client.stop_reading(self.chat_id)
        self._core.seek(self._model, Cursor(sequence=after), loop_ms())

    @property
    def restarts(self) -> int:
        """How often the server has reset this log since this client reads it."""
        return 0 if self._model.inbox is None else self._model.inbox.restarts

    @property
    def log_difference(self) -> LogDifference | None:
        """Why this client last read the log again, if what it had read was not what the log holds."""
        return self._model.log_difference

    async def mark_read(self, up_to: int | str) -> None:
        """The person has read everything up to a sequence or a message_id. Stored before it returns."""
        await self._client.mark_read(self.chat_id, up_to)

    # Live state

    @property
    def unread(self) -> int:
        """Messages of others that the person has not read on any device, up to 999."""
        return self._model.unread_count

    @property
    def unread_more(self) -> bool:
        """Whether there may be more: above 999, or beyond what the server counts. Otherwise it is exact."""
        return self._model.unread_more

    @property
    def muted(self) -> bool:
        return self._model.is_muted(self._client.wall_ms())

    @property
    def typing(self) -> list[str]:
        """The user_ids of members who are typing."""
        return list(self._model.typing)

    async def open(self) -> Self:
        """Keep `members` and the status of messages up to date until `close`. Returns the chat itself.

        RequestRefused if the person may not see it.
        """
        await self._client.open_chat(self._model)
        return self

    def close(self) -> None:
        """Stop updating `members` and the status of messages, which saves requests."""
        self._core.close(self._model)

    @property
    def is_online(self) -> bool:
        """Whether there is a connection, so that this state is up to date."""
        return self._core.online

    @property
    def is_open(self) -> bool:
        return self._model.is_open

    @property
    def members(self) -> Members:
        """Its members, with names, roles, presence and cursors. Empty while it is not open."""
        return self._model.members

    def status(self, message: Entry | int) -> MessageStatus:
        """The status of an entry, or of this person's message at a sequence. "sent" while it is not open."""
        return status_of(self._model, *self._sequence_and_sender(message))

    def seen(self, message: Entry | int) -> MessageReceipts | None:
        """Who has received and read a message, without a request; None while the chat is not open."""
        return self._model.receipts(*self._sequence_and_sender(message))

    def updates(self) -> UpdateStream:
        """A loop over the changes of this chat and of the connection. See `Update`."""
        return self._client.stream_updates(self._concerns)

    def type(self) -> None:
        """The person types: call it at every key. Sends at most one frame every 3 s, none while offline."""
        self._client.check_open()
        self._core.start_typing(self._model, loop_ms())

    def stop_typing(self) -> None:
        """The person stopped typing without sending. A sent message ends typing by itself."""
        self._client.check_open()
        self._core.stop_typing(self._model)

    def _sequence_and_sender(self, message: Entry | int) -> tuple[int, str]:
        if isinstance(message, int):
            return message, self._core.user_id
        return message.sequence, message.sender_id

    def _concerns(self, update: Update) -> bool:
        if update.user_id is not None:
            return self.members.get(update.user_id) is not None
        return update.chat_id in (self.chat_id, None)

    # Requests to the server

    async def info(self) -> ChatInfo:
        return await self._client.api.call("GET", self._path, ChatInfo)

    async def history(self, before: int | None = None, limit: int = PAGE_ENTRIES_DEFAULT) -> Batch[Entry]:
        """The entries before a sequence, or the latest. Moves no cursor."""
        end = str(2**53 - 1 if before is None else before)
        return await self._client.api.history(self.chat_id, {"before": end, "limit": str(limit)})

    async def shown(
        self,
        *,
        around: int | str | None = None,
        at: str | None = None,
        before: int | None = None,
        limit: int = PAGE_ENTRIES_DEFAULT,
    ) -> Batch[ShownEntry]:
        """The latest entries, each message with its reactions, the number of its replies, what it answers.

        `around`: on both sides of a sequence or a message_id. `at`: of the first entry from this time on, in
        ISO 8601. `before`: those before a sequence. At most 200. Moves no cursor.
        """
        params = {"limit": str(limit)}
        if around is not None:
            params["around"] = str(around)
        elif at is not None:
            params["at"] = at
        else:
            params["before"] = str(2**53 - 1 if before is None else before)
        return await self._client.api.shown(self.chat_id, params)

    async def lookup(self, message_ids: Sequence[str]) -> list[ShownEntry]:
        """Those of these messages that there are, as in `shown`. At most 100."""
        body: dict[str, object] = {"message_ids": list(message_ids)}
        path = f"{self._path}/messages/lookup"
        return (await self._client.api.call("POST", path, MessagesFound, body)).messages

    async def members_called(self, begin: str) -> list[MemberInfo]:
        """Members whose username, or a word of whose name, begins like this: to complete a mention."""
        return await self._client.api.members(self.chat_id, begin)

    async def window(
        self, *, around: int | str | None = None, size: int = WINDOW_POSITIONS_DEFAULT
    ) -> LogWindow:
        """A stretch of the log around a sequence or a message_id, or its end. Moves no cursor.

        RequestRefused if there is no such message.
        """
        if isinstance(around, str):
            around = (await self.message(around)).entry.sequence
        window = LogWindow(lambda params: self._client.api.history(self.chat_id, params))
        await window.start(around, size)
        return window

    async def search(
        self, text: str, *, before: int | None = None, limit: int = SEARCH_HITS_DEFAULT
    ) -> ChatHits:
        """The newest messages with these words; `word*` finds words that begin so. `before`: the `next` of
        the page before.
        """
        params = {"q": text, "limit": str(limit)} | ({} if before is None else {"before": str(before)})
        return await self._client.api.call("GET", f"{self._path}/search", ChatHits, params=params)

    async def add_member(self, user_id: str, role: Role = Role.MEMBER) -> bool:
        """True if they were added; False if they were invited, as they let only others add them."""
        body: dict[str, object] = {"user_id": user_id, "role": role.value}
        done = await self._client.api.call("POST", f"{self._path}/members", MembersAdded, body)
        return bool(done.added)

    async def remove_member(self, user_id: str) -> None:
        """Remove a member; with the person's own user_id, leave."""
        await self._client.api.call("DELETE", f"{self._path}/members/{quote(user_id, safe='')}", object)

    async def rename(self, title: str) -> ChatInfo:
        return await self._change(title=title)

    async def set_read_receipts(self, mode: ReadReceipts | str) -> ChatInfo:
        """What members see of readers: each by name, whether there is one, or nothing."""
        return await self._change(read_receipts=ReadReceipts(mode))

    async def announce_only(self, on: bool = True) -> ChatInfo:
        """Let only owners and admins post, or everybody again."""
        return await self._change(announcement_only=on)

    async def set_slow_mode(self, seconds: int) -> ChatInfo:
        """So long a member waits between two messages; 0 ends it. The outbox waits by itself."""
        return await self._change(slow_mode_seconds=seconds)

    async def report(self, message_id: str, reason: str) -> ReportMade:
        """Tell the operators that something is wrong with a message. The same again is the same report."""
        path = f"{self._path}/messages/{quote(message_id, safe='')}/report"
        return await self._client.api.call("POST", path, ReportMade, {"reason": reason})

    async def set_edit_window(self, seconds: int | None) -> ChatInfo:
        """How long messages may be edited, 0: for ever; None: as long as the server allows."""
        return await self._change(edit_window_seconds=seconds)

    async def mute(self, until: datetime) -> ChatInfo:
        """Mute the chat for this person, on every device."""
        return await self._change(muted_until=iso(round(until.timestamp() * MS_PER_SECOND)))

    async def notify(self, which: Notify) -> ChatInfo:
        """Choose which messages of the chat notify this person."""
        return await self._change(notify=which)

    async def unmute(self) -> ChatInfo:
        return await self._change(muted_until=None)

    async def receipts(self, sequence: int) -> Receipts:
        """Who has received and read a message, from the server: for a chat of any size, open or not."""
        return await self._client.api.call("GET", f"{self._path}/messages/{sequence}/receipts", Receipts)

    async def _change(self, **settings: object) -> ChatInfo:
        return await self._client.api.call("PATCH", self._path, ChatInfo, settings)
