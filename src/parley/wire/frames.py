"""Every frame of the contract as a typed value.

A client's frame is decoded into exactly one kind of `ClientFrame`. Unknown fields are ignored, unknown types
are refused. `chat_id`, `conversation_id` and `conv_id` mean the same: `frame.chat` is the one that was given.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from parley.errors import Refusal
from parley.model import AttachedFile
from parley.wire import limits

Sequence = Annotated[int, Meta(ge=0, le=limits.SEQUENCE_MAX)]
Limit = Annotated[int, Meta(ge=1)]
RequestId = int | float | None
ReplyId = int | float | UnsetType
EntryT = TypeVar("EntryT")


class ClientFrame(Struct, tag_field="type", kw_only=True, gc=False, omit_defaults=True):
    """A request of a client. `id` comes back as `re` in the answer."""

    id: RequestId = None


class ChatFrame(ClientFrame, kw_only=True, gc=False):
    """A request about one chat, under any of its three names."""

    chat_id: str = ""
    conversation_id: str = ""
    conv_id: str = ""

    @property
    def chat(self) -> str:
        return self.chat_id or self.conversation_id or self.conv_id


class Hello(ClientFrame, tag="hello", kw_only=True, gc=False):
    """Say who this is: the first frame of a connection."""

    token: str
    device_id: str
    live: bool = True


class Refresh(ClientFrame, tag="refresh", kw_only=True, gc=False):
    """Another token of the same person, for the rest of the connection."""

    token: str


class SendMessage(ChatFrame, tag="send_message", kw_only=True, gc=False):
    """Add a message to the log of a chat. Its answer comes once the message is durable."""

    client_message_id: str
    content: str
    content_type: str = "text/plain"
    display_time: str | None = None
    after_client_message_id: str | None = None
    mentions: list[str] = []
    reply_to: str | None = None
    attachments: list[str] = []


class EditMessage(ChatFrame, tag="edit_message", kw_only=True, gc=False):
    """Give a message of one's own another content."""

    client_message_id: str
    message_id: str
    content: str


class DeleteMessage(ChatFrame, tag="delete_message", kw_only=True, gc=False):
    """Remove the content of a message for good."""

    client_message_id: str
    message_id: str


class React(ChatFrame, tag="react", kw_only=True, gc=False):
    """Add a reaction to a message, or take one's own back."""

    client_message_id: str
    message_id: str
    reaction: str
    on: bool = True


class SyncRequest(ChatFrame, tag="sync_request", kw_only=True, gc=False):
    """Ask for the entries of a chat after a position."""

    last_acked_sequence: Sequence
    epoch: Annotated[int, Meta(ge=1, le=limits.SEQUENCE_MAX)] | None = None
    last_message_id: str | None = None
    limit: Limit = limits.PAGE_ENTRIES_DEFAULT


class Sync(ClientFrame, tag="sync", kw_only=True, gc=False):
    """Ask for the entries after a message, in its chat."""

    last_message_id: str
    limit: Limit = limits.PAGE_ENTRIES_MAX


class SyncOverview(ClientFrame, tag="sync_overview", kw_only=True, gc=False):
    """Ask which of your chats changed. `brief`: positions alone, without titles, last entries and people."""

    changed_since: str | None = None
    limit: Limit = limits.OVERVIEW_CHATS_DEFAULT
    brief: bool = False


class AckPosition(ChatFrame, tag="ack", kw_only=True, gc=False):
    """This device has every entry up to this position."""

    last_acked_sequence: Sequence


class DeliveryReceipt(ChatFrame, tag="delivery_receipt", kw_only=True, gc=False):
    """This device has this message. `delivered_at` is checked and not stored: others see when the server
    received it.
    """

    message_id: str
    delivered_at: str | None = None


class ReadReceipt(ChatFrame, tag="read_receipt", kw_only=True, gc=False):
    """The person has read the chat up to this position. `read_at` is checked and not stored: others see when
    the server received it.
    """

    read_up_to: str | Sequence
    read_at: str | None = None


class TypingStart(ChatFrame, tag="typing_start", kw_only=True, gc=False):
    """The person types in this chat."""


class TypingStop(ChatFrame, tag="typing_stop", kw_only=True, gc=False):
    """The person has stopped typing in this chat."""


class Attention(ClientFrame, tag="attention", kw_only=True, gc=False):
    """Whether somebody looks at this client. After two minutes of not, it keeps no notification back."""

    looking: bool


class PresenceSubscribe(ClientFrame, tag="presence_subscribe", kw_only=True):
    """The people whose presence this connection gets from now on; it replaces an earlier subscription."""

    user_ids: list[str]


class PresenceQuery(ClientFrame, tag="presence_query", kw_only=True):
    """Ask whether these people are online, once."""

    user_ids: list[str]


class Heartbeat(ClientFrame, tag="heartbeat", kw_only=True, gc=False):
    """The client is there. A connection that sends nothing for too long is closed."""


Request = (
    Hello
    | Refresh
    | SendMessage
    | EditMessage
    | DeleteMessage
    | React
    | SyncRequest
    | Sync
    | SyncOverview
    | AckPosition
    | DeliveryReceipt
    | ReadReceipt
    | TypingStart
    | TypingStop
    | Attention
    | PresenceSubscribe
    | PresenceQuery
    | Heartbeat
)


class Entry(Struct, kw_only=True, gc=False):
    """One position of a chat's log. A client skips a `kind` that it does not know.

    `mentions`: the people whom a message mentions; left out if it mentions nobody. `body_digest`: the digest
    of the body that was sent, if the entry no longer has that body; the hash of the log needs it. `deleted`:
    its content was removed for good; left out otherwise.

    `reply_to`: the message that a message answers. `target_id`: the message that an `edit`, a `delete` or a
    `reaction` is about. A message that was edited has its newest content, `edited_at`, and the position of
    that edit in `edit_sequence`: whoever follows the log passes over older edits of it. `attachments`: the
    files that a message refers to; left out if there are none.
    """

    chat_id: str
    sequence: int
    epoch: int
    kind: str
    message_id: str
    sender_id: str
    client_message_id: str | None
    content: str
    content_type: str
    created_at: str
    server_timestamp: str
    display_time: str | None = None
    mentions: list[str] | UnsetType = UNSET
    body_digest: str | UnsetType = UNSET
    deleted: bool | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    target_id: str | UnsetType = UNSET
    reaction: str | UnsetType = UNSET
    on: bool | UnsetType = UNSET
    edited_at: str | UnsetType = UNSET
    edit_sequence: int | UnsetType = UNSET
    attachments: list[AttachedFile] | UnsetType = UNSET


class ServerFrame(Struct, tag_field="type", kw_only=True, gc=False):
    """A frame of the server; `re` names the request it answers."""

    re: ReplyId = UNSET


class Welcome(ServerFrame, tag="welcome", kw_only=True):
    """The connection is open: the answer to `hello` and to `refresh`."""

    user_id: str
    device_id: str
    session_id: str
    server_time: str
    heartbeat_seconds: int
    limits: dict[str, int]


class Receipt(ServerFrame, tag=False, kw_only=True, gc=False):
    """Where a message is in the log: the answer to a send. HTTP uses it without a `type`."""

    chat_id: str
    client_message_id: str
    message_id: str
    sequence: int
    epoch: int
    created_at: str
    deduplicated: bool
    conflict: bool


class Ack(Receipt, tag="ack", tag_field="type", kw_only=True, gc=False):
    """The answer to `send_message`."""


class Batch(ServerFrame, Generic[EntryT], tag=False, kw_only=True):
    """A page of a chat's log: every number in from_sequence..to_sequence is an entry or in `voids`.

    The server embeds entries as they are stored (`Raw`); the SDK reads them over HTTP as `Entry`.
    `log_hash` is the hash of the log up to `to_sequence`; left out while the server does not have it.
    """

    chat_id: str
    epoch: int
    entries: list[EntryT]
    voids: list[int]
    from_sequence: int
    to_sequence: int
    head: int
    complete: bool
    reset: bool
    log_hash: str | UnsetType = UNSET


class MessageBatch(Batch[Raw], tag="message_batch", tag_field="type", kw_only=True):
    """The answer to `sync_request` and `sync`."""


class PresenceView(Struct):
    """Whether a person is online. `last_seen`: null if never, "unavailable" if you may not see it."""

    user_id: str
    status: Literal["online", "offline"]
    last_seen: str | None


class Peer(Struct):
    """The other person of a direct chat."""

    user_id: str
    username: str
    display_name: str
    status: Literal["online", "offline"]
    last_seen: str | None
    is_bot: bool | UnsetType = UNSET


class OverviewChat(Struct, kw_only=True):
    """One row of the chat list. What follows `muted_until` is left out of a brief overview."""

    chat_id: str
    epoch: int
    head: int
    last_acked_sequence: int
    read_up_to: int
    unread: int
    unread_more: bool
    left: bool | UnsetType = UNSET
    muted: bool = False
    muted_until: str | None = None
    type: Literal["direct", "group"] | UnsetType = UNSET
    title: str | UnsetType | None = UNSET
    peer: Peer | UnsetType | None = UNSET
    last_entry: Entry | UnsetType | None = UNSET
    unread_mentions: int | UnsetType = UNSET


class Overview(ServerFrame, tag="overview", kw_only=True):
    """Which chats changed: the answer to `sync_overview`."""

    chats: list[OverviewChat]
    token: str
    complete: bool


class HeartbeatAck(ServerFrame, tag="heartbeat_ack", kw_only=True):
    """The answer to `heartbeat`."""

    server_time: str
    heads: dict[str, int] | UnsetType = UNSET


class Messages(ServerFrame, tag="messages", kw_only=True):
    """Live: all entries of one chat that became durable together."""

    chat_id: str
    epoch: int
    entries: list[Raw]
    voids: list[int] | UnsetType = UNSET


class ChatChanged(ServerFrame, tag="chat_changed", kw_only=True):
    """A chat was joined, left or renamed, or a role in it changed."""

    chat_id: str
    change: str
    user_id: str | UnsetType = UNSET
    role: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    head: int | UnsetType = UNSET
    epoch: int | UnsetType = UNSET
    read_receipts: str | UnsetType = UNSET
    muted_until: str | UnsetType | None = UNSET
    announcement_only: bool | UnsetType = UNSET
    slow_mode_seconds: int | UnsetType = UNSET


class InvitationFrame(ServerFrame, tag="invitation", kw_only=True):
    """You were invited to a chat; accept or decline it over HTTP."""

    chat_id: str
    title: str | None
    by: str
    role: str
    invited_at: str
    expires_at: str


class InvitationEnded(ServerFrame, tag="invitation_ended", kw_only=True):
    """An invitation was declined or withdrawn, or made room for newer ones. A join is not told so."""

    chat_id: str


class ReceiptFrame(ServerFrame, tag="receipt", kw_only=True, gc=False):
    """How far a member has received or read; null: a member has read, in a chat that does not say who."""

    chat_id: str
    user_id: str | None
    kind: Literal["delivered", "read"]
    up_to_sequence: int
    at: str


class Typing(ServerFrame, tag="typing", kw_only=True, gc=False):
    """A member is typing. Show it for at most this long; 0 hides it."""

    chat_id: str
    user_id: str
    expires_in_ms: int


class PresenceState(ServerFrame, tag="presence_state", kw_only=True):
    """The answer to `presence_subscribe` and `presence_query`."""

    presences: list[PresenceView]


class PresenceChanged(ServerFrame, tag="presence", kw_only=True, gc=False):
    """A person came online or went offline."""

    user_id: str
    status: Literal["online", "offline"]
    last_seen: str | None


class RefusedFrame(ServerFrame, tag="refused", kw_only=True):
    """The request that `re` names was not done."""

    re: int | float | None = None  # type: ignore[assignment]
    code: str
    reason: str
    temporary: bool
    retry_after_ms: int | UnsetType = UNSET


ServerFrames = (
    Welcome
    | Ack
    | MessageBatch
    | Overview
    | HeartbeatAck
    | Messages
    | ChatChanged
    | InvitationFrame
    | InvitationEnded
    | ReceiptFrame
    | Typing
    | PresenceState
    | PresenceChanged
    | RefusedFrame
)


def answer_to(request_id: RequestId) -> ReplyId:
    """The `re` of the answer to a request with this `id`; absent when the client named none."""
    return UNSET if request_id is None else request_id


def refused(refusal: Refusal, request_id: RequestId) -> RefusedFrame:
    retry: int | UnsetType = UNSET if refusal.retry_after_ms is None else refusal.retry_after_ms
    return RefusedFrame(
        re=request_id,
        code=refusal.code,
        reason=refusal.reason,
        temporary=refusal.temporary,
        retry_after_ms=retry,
    )
