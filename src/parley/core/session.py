"""Which requests a connection may send in which state, and what is wrong with a request: no IO.

The gateway passes each payload to `receive` and performs the request that it returns. A frame that the
state's row of the table does not list is refused; a payload that is not a frame closes the connection. What
a message must be is checked by `check_send`, for a frame and for HTTP alike.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from parley import ids
from parley.errors import BAD_REQUEST, TOO_LARGE, UNAUTHENTICATED, Refusal
from parley.model import Draft
from parley.wire import codes
from parley.wire.codec import Codec, Misread, NotAFrame
from parley.wire.codes import Close
from parley.wire.frames import (
    AckPosition,
    ChatFrame,
    DeliveryReceipt,
    Heartbeat,
    Hello,
    PresenceQuery,
    PresenceSubscribe,
    ReadReceipt,
    Request,
    SendMessage,
    Sync,
    SyncOverview,
    SyncRequest,
    TypingStart,
    TypingStop,
)
from parley.wire.limits import (
    CONTENT_TYPE_LETTERS_MAX,
    MENTIONS_MAX,
    MESSAGE_BYTES_MAX,
    TIME_LETTERS_MAX,
    USER_ID_LETTERS_MAX,
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
        SyncRequest: State.READY,
        Sync: State.READY,
        SyncOverview: State.READY,
        AckPosition: State.READY,
        DeliveryReceipt: State.READY,
        ReadReceipt: State.READY,
        TypingStart: State.READY,
        TypingStop: State.READY,
        PresenceSubscribe: State.READY,
        PresenceQuery: State.READY,
        Heartbeat: State.READY,
    },
    State.CLOSED: {},
}
"""For each state, the requests that it accepts and the next state."""

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
NO_DISPLAY_TIME = BAD_REQUEST.because("display_time must be an ISO 8601 time")
MESSAGE_TOO_LARGE = TOO_LARGE.because(f"content is larger than {MESSAGE_BYTES_MAX} bytes in UTF-8")


class ConnectionProtocol:
    """The state of one connection. In GREETED it waits until the gateway has checked the token."""

    __slots__ = ("_codec", "state")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.state = State.NEW

    def receive(self, data: bytes | str) -> Request | Misread | Close:
        """The request in a payload, or the error or close that answers it."""
        try:
            frame = self._codec.decode(data)
        except NotAFrame as error:
            self.state = State.CLOSED
            return Close(codes.NOT_A_FRAME.code, str(error))
        if type(frame) is Misread:
            return frame
        following = TABLE[self.state].get(type(frame))
        if following is None:
            return Misread(HELLO_ONCE if self.state is State.READY else HELLO_FIRST, frame.id)
        refusal = check_fields(frame)
        if refusal is not None:
            return Misread(refusal, frame.id)
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


def check_send(request: SendMessage, sender_id: str, request_id: str = "") -> Draft | Refusal:
    """The draft of a message, or what is wrong with it. Membership is decided with the write."""
    key = ids.client_key(request.client_message_id)
    if key is None:
        return NO_CLIENT_ID
    content = request.content
    if len(content) > MESSAGE_BYTES_MAX // 4 and len(content.encode()) > MESSAGE_BYTES_MAX:
        return MESSAGE_TOO_LARGE
    content_type = request.content_type
    if content_type != "text/plain" and not is_content_type(content_type):
        return NO_CONTENT_TYPE
    if request.display_time is not None and not is_time(request.display_time):
        return NO_DISPLAY_TIME
    if request.mentions and not are_mentions(request.mentions):
        return NO_MENTIONS
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
    )


def is_content_type(text: str) -> bool:
    return (
        3 <= len(text) <= CONTENT_TYPE_LETTERS_MAX and "/" in text and text.isascii() and text.isprintable()
    )


def are_mentions(user_ids: list[str]) -> bool:
    """Whether they can be ids. That they are members is not asked: a retry must not fail because one left."""
    return len(user_ids) <= MENTIONS_MAX and all(
        0 < len(user_id) <= USER_ID_LETTERS_MAX and user_id.isascii() and user_id.isprintable()
        for user_id in user_ids
    )


def is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) <= TIME_LETTERS_MAX
