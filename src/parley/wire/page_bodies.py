"""Bodies that pages in a browser ask for: the server itself, messages as they are shown, names of people."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from parley.wire import limits
from parley.wire.bodies import Profile, Reaction
from parley.wire.frames import Entry
from parley.wire.request_body import RequestBody

MessageIds = Annotated[list[str], Meta(min_length=1, max_length=limits.LOOKUP_MESSAGES_MAX)]


class ServerFeatures(Struct):
    """What a server does beside chats and messages, and offers to whoever asks."""

    search: bool
    push: bool
    web_push: bool
    attachments: bool
    previews: bool
    jwt: bool
    console: bool


class ServerInfo(Struct):
    """A server, as anybody may know it before they log in.

    `registration`: whether the one who asks may create an account: freely, by a link alone, or not.
    """

    name: str
    version: str
    registration: Literal["open", "invite", "closed"]
    password_length_min: int
    features: ServerFeatures
    limits: dict[str, int]
    vapid_key: str | UnsetType = UNSET


class RepliedMessage(Struct):
    """The message that another one answers, as it is now. `excerpt`: how its text begins, on one line."""

    message_id: str
    sequence: int
    sender_id: str
    excerpt: str
    deleted: bool


class ShownEntry(Entry, kw_only=True):
    """An entry of the log. With `shown=true` a message has what a reader sees beside it."""

    reactions: list[Reaction] | UnsetType = UNSET
    reply_count: int | UnsetType = UNSET
    replied: RepliedMessage | UnsetType = UNSET


class MessageLookup(RequestBody):
    """Messages of one chat to look up."""

    message_ids: MessageIds


class MessagesFound(Struct):
    """Those of the messages that there are, in the order in which they were asked for."""

    messages: list[ShownEntry]


class ProfileList(Struct):
    """Those of the people who exist."""

    users: list[Profile]
