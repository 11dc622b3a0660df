"""The events of the client core, for its shell and for the application."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from parley.client.storage import MessageKey, OutgoingMessage
from parley.errors import Refusal
from parley.wire.frames import Ack


class MessageStored(Struct, frozen=True):
    key: MessageKey
    ack: Ack


class MessageRefused(Struct, frozen=True):
    """A message was refused for good; after `store_damaged` it is kept, and sent with the next connection."""

    key: MessageKey
    refusal: Refusal


class MessagesSaved(Struct, frozen=True):
    """Messages are in the outbox file and survive this process."""

    keys: list[MessageKey]


class CheckMessage(Struct, frozen=True):
    """The shell must look for an old message in the log before it is resent."""

    message: OutgoingMessage


class EntriesReady(Struct, frozen=True):
    """A chat has entries to take, or reading it has ended."""

    chat_id: str


class ReadMarkDone(Struct, frozen=True):
    """A read mark has taken effect, or was refused for good."""

    number: int
    refusal: Refusal | None = None


class OverviewComplete(Struct, frozen=True):
    """The client knows every change of the person's chats up to the request of this round."""

    round: int


class LoadChat(Struct, frozen=True):
    """The shell must load a snapshot of an open chat."""

    chat_id: str


class ChatOpened(Struct, frozen=True):
    """A chat is open, or cannot be opened."""

    chat_id: str
    refusal: Refusal | None = None


class RequestFailed(Struct, frozen=True):
    """The server refused a request whose outcome no caller waits for."""

    refusal: Refusal


class What(StrEnum):
    """What changed in a chat or about a person."""

    UNREAD = "unread"
    TYPING = "typing"
    MEMBERS = "members"
    RECEIPTS = "receipts"
    SETTINGS = "settings"
    PRESENCE = "presence"
    CONNECTION = "connection"
    INVITATIONS = "invitations"
    LOG = "log"


class Update(Struct, frozen=True):
    """Something changed: read it again. Most updates are about a chat; presence is about a person.

    Of `INVITATIONS`, `chat_id` is the chat that the person was invited to, or no longer is. `LOG`: what this
    device read of the chat is not what the log holds (`Chat.log_difference`), so it is read again.
    """

    what: What
    chat_id: str | None = None
    user_id: str | None = None


ClientEvent = (
    MessageStored
    | MessageRefused
    | MessagesSaved
    | CheckMessage
    | EntriesReady
    | ReadMarkDone
    | OverviewComplete
    | LoadChat
    | ChatOpened
    | RequestFailed
    | Update
)
