"""Which requests a connection may send in which state, and what is wrong with a request: no IO.

The gateway passes each payload to `receive` and performs the request that it returns. A frame that the
state's row of the table does not list is refused; a payload that is not a frame closes the connection. What
a message must be is checked by `check_send`, for a frame and for HTTP alike.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from parley import ids
from parley.core.shown_text import shown_text
from parley.errors import BAD_REQUEST, TOO_LARGE, UNAUTHENTICATED, Refusal
from parley.model import Draft, Kind
from parley.wire import codes
from parley.wire.codec import Codec, InvalidFrame, NotAFrame
from parley.wire.codes import Close
from parley.wire.frames import (
    AckPosition,
    Attention,
    ChatFrame,
    DeleteMessage,
    DeliveryReceipt,
    EditMessage,
    Heartbeat,
    Hello,
    PresenceQuery,
    PresenceSubscribe,
    React,
    ReadReceipt,
    Refresh,
    Request,
    SendMessage,
    Sync,
    SyncOverview,
    SyncRequest,
    TypingStart,
    TypingStop,
)
from parley.wire.limits import (
    ATTACHMENTS_MAX,
    CONTENT_TYPE_CHARS_MAX,
    MENTIONS_MAX,
    MESSAGE_BYTES_MAX,
    REACTION_CHARS_MAX,
    TIME_CHARS_MAX,
    USER_ID_CHARS_MAX,
)


class State(StrEnum):
    NEW = "new"
    GREETED = "greeted"
    READY = "ready"
    CLOSED = "closed"


TABLE: dict[State, dict[type, State]] = {
    State.NEW: {Hello: State.GREETED},
    State.GREETED: {},
    State.READY: {
        SendMessage: State.READY,
        EditMessage: State.READY,
        DeleteMessage: State.READY,
        React: State.READY,
        SyncRequest: State.READY,
        Sync: State.READY,
        SyncOverview: State.READY,
        AckPosition: State.READY,
        DeliveryReceipt: State.READY,
        ReadReceipt: State.READY,
        TypingStart: State.READY,
        TypingStop: State.READY,
        Attention: State.READY,
        PresenceSubscribe: State.READY,
        PresenceQuery: State.READY,
        Heartbeat: State.READY,
        Refresh: State.READY,
    },
    State.CLOSED: {},
}
"""For each state, the requests that it accepts and the next state."""
READY = State.READY
READY_ROW = TABLE[READY]
"""Nearly every frame comes in this state, and the hash of an enumeration's member is slow."""

"""What makes one emoji out of several."""
HELLO_FIRST = UNAUTHENTICATED.because("send hello first")
HELLO_ONCE = BAD_REQUEST.because("hello was sent already")
NO_CHAT = BAD_REQUEST.because("chat_id is missing")
NO_RECEIPT_TIME = BAD_REQUEST.because("delivered_at and read_at must be ISO 8601 times")
NO_CLIENT_ID = BAD_REQUEST.because(
    "client_message_id must be a UUIDv4, made once per message and kept for retries"
)
NO_PREDECESSOR = BAD_REQUEST.because("after_client_message_id must be the UUIDv4 of an earlier message")
NO_CONTENT_TYPE = BAD_REQUEST.because("content_type must be a media type such as text/plain")
NO_MENTIONS = BAD_REQUEST.because(f"mentions are up to {MENTIONS_MAX} user ids")
NO_ATTACHMENTS = BAD_REQUEST.because(f"attachments are up to {ATTACHMENTS_MAX} different ids of attachments")
NO_TARGET = BAD_REQUEST.because("message_id and reply_to must be ids of messages")
NO_REACTION = BAD_REQUEST.because(f"a reaction is 1 to {REACTION_CHARS_MAX} printable characters")
NO_DISPLAY_TIME = BAD_REQUEST.because("display_time must be an ISO 8601 time")
MESSAGE_TOO_LARGE = TOO_LARGE.because(f"content is larger than {MESSAGE_BYTES_MAX} bytes in UTF-8")


class ConnectionProtocol:
    """The state of one connection. In GREETED it waits until the gateway has checked the token."""

    __slots__ = ("_codec", "state")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.state = State.NEW

    def receive(self, data: bytes | str) -> Request | InvalidFrame | Close:
        """The request in a payload, or the error or close that answers it."""
        try:
            frame = self._codec.decode(data)
        except NotAFrame as error:
            self.state = State.CLOSED
            return Close(codes.NOT_A_FRAME.code, str(error))
        if type(frame) is InvalidFrame:
            return frame
        row = READY_ROW if self.state is READY else TABLE[self.state]
        following = row.get(type(frame))
        if following is None:
            return InvalidFrame(HELLO_ONCE if self.state is READY else HELLO_FIRST, frame.id)
        refusal = check_fields(frame)
        if refusal is not None:
            return InvalidFrame(refusal, frame.id)
        self.state = following
        return frame

    def accept(self) -> None:
        """The token is valid."""
        assert self.state is State.GREETED
        self.state = State.READY

    def close(self) -> None:
        self.state = State.CLOSED


def check_fields(frame: Request) -> Refusal | None:
    """What is wrong with the values of a request's fields; their types are right."""
    if isinstance(frame, ChatFrame) and not frame.chat:
        return NO_CHAT
    time = None
    if type(frame) is DeliveryReceipt:
        time = frame.delivered_at
    elif type(frame) is ReadReceipt:
        time = frame.read_at
    return None if time is None or is_time(time) else NO_RECEIPT_TIME


Drafted = SendMessage | EditMessage | DeleteMessage | React
"""The frames that become entries."""


def check_draft(request: Drafted, sender_id: str, request_id: str = "") -> Draft | Refusal:
    """The draft of a frame, or what is wrong with it."""
    if isinstance(request, SendMessage):
        return check_send(request, sender_id, request_id)
    return check_amendment(request, sender_id, request_id)


def check_send(request: SendMessage, sender_id: str, request_id: str = "") -> Draft | Refusal:
    """The draft of a message, or what is wrong with it. Membership is decided with the write."""
    key = ids.client_key(request.client_message_id)
    if key is None:
        return NO_CLIENT_ID
    content = request.content
    if len(content) > MESSAGE_BYTES_MAX // 4 and is_too_large(content):
        return MESSAGE_TOO_LARGE
    content_type = request.content_type
    if content_type != "text/plain" and not is_content_type(content_type):
        return NO_CONTENT_TYPE
    if request.display_time is not None and not is_time(request.display_time):
        return NO_DISPLAY_TIME
    if request.mentions and not are_mentions(request.mentions):
        return NO_MENTIONS
    if request.reply_to is not None and ids.message_key(request.reply_to) is None:
        return NO_TARGET
    if request.attachments and not are_attachments(request.attachments):
        return NO_ATTACHMENTS
    after_key = None
    if request.after_client_message_id is not None:
        after_key = ids.client_key(request.after_client_message_id)
        if after_key is None:
            return NO_PREDECESSOR
    return Draft(
        chat_id=request.chat,
        sender_id=sender_id,
        content=content,
        content_type=content_type,
        client_message_id=request.client_message_id,
        client_key=key,
        display_time=request.display_time,
        after_key=after_key,
        request_id=request_id,
        mentions=tuple(request.mentions),
        reply_to=request.reply_to,
        attachments=tuple(request.attachments),
    )


def check_amendment(
    request: EditMessage | DeleteMessage | React, sender_id: str, request_id: str = ""
) -> Draft | Refusal:
    """The draft of what is done to a message, or what is wrong with it. `Draft.target` is to be looked up."""
    key = ids.client_key(request.client_message_id)
    if key is None:
        return NO_CLIENT_ID
    if ids.message_key(request.message_id) is None:
        return NO_TARGET
    draft = Draft(
        chat_id=request.chat,
        sender_id=sender_id,
        content="",
        client_message_id=request.client_message_id,
        client_key=key,
        request_id=request_id,
        target_id=request.message_id,
    )
    match request:
        case EditMessage():
            if is_too_large(request.content):
                return MESSAGE_TOO_LARGE
            draft.kind, draft.content = Kind.EDIT.value, request.content
        case DeleteMessage():
            draft.kind = Kind.DELETE.value
        case React():
            if not is_reaction(request.reaction):
                return NO_REACTION
            draft.kind, draft.content, draft.on = Kind.REACTION.value, request.reaction, request.on
    return draft


def is_too_large(content: str) -> bool:
    return len(content.encode()) > MESSAGE_BYTES_MAX


def is_reaction(text: str) -> bool:
    """One emoji may be many characters. It is refused rather than changed: equal ones are counted."""
    return 1 <= len(text) <= REACTION_CHARS_MAX and shown_text(text) == text


def is_content_type(text: str) -> bool:
    return 3 <= len(text) <= CONTENT_TYPE_CHARS_MAX and "/" in text and text.isascii() and text.isprintable()


def are_mentions(user_ids: list[str]) -> bool:
    """Whether they can be ids. That they are members is not asked: a retry must not fail because one left."""
    return len(user_ids) <= MENTIONS_MAX and all(
        0 < len(user_id) <= USER_ID_CHARS_MAX and user_id.isascii() and user_id.isprintable()
        for user_id in user_ids
    )


def are_attachments(attachment_ids: list[str]) -> bool:
    """Whether they can be ids. That they may be used is decided with the write."""
    return len(set(attachment_ids)) == len(attachment_ids) <= ATTACHMENTS_MAX and all(
        ids.attachment_key(attachment_id) is not None for attachment_id in attachment_ids
    )


def is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) <= TIME_CHARS_MAX
