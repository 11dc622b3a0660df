"""What a connection may say when: one table, no IO.

The shell feeds bytes to `receive` and performs the request that comes back. A frame that arrives in a
state whose row does not list it is refused; a payload that is no frame closes the connection.
"""

from __future__ import annotations

from enum import Enum

from parley.core.sending import is_time
from parley.errors import BAD_REQUEST, UNAUTHENTICATED, Refusal
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


class State(Enum):
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
"""For each state, the requests it takes and the state that follows."""

HELLO_FIRST = UNAUTHENTICATED.because("say hello first")
HELLO_ONCE = BAD_REQUEST.because("hello is said once")
NO_CHAT = BAD_REQUEST.because("chat_id is missing")
NO_TIME = BAD_REQUEST.because("delivered_at and read_at must be ISO 8601 times")


class Session:
    """One connection's conversation. GREETED waits for the shell's verdict on the token."""

    __slots__ = ("_codec", "state")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.state = State.NEW

    def receive(self, data: bytes | str) -> Request | Misread | Close:
        """The request in a payload, or what its sender is owed instead."""
        try:
            frame = self._codec.decode(data)
        except NotAFrame as error:
            self.state = State.CLOSED
            return Close(codes.NOT_A_FRAME.code, str(error))
        if isinstance(frame, Misread):
            return frame
        following = TABLE[self.state].get(type(frame))
        if following is None:
            return Misread(HELLO_ONCE if self.state is State.READY else HELLO_FIRST, frame.id)
        wrong = wrong_in(frame)
        if wrong is not None:
            return Misread(wrong, frame.id)
        self.state = following
        return frame

    def accept(self) -> None:
        """The token was good."""
        assert self.state is State.GREETED
        self.state = State.READY

    def close(self) -> None:
        self.state = State.CLOSED


def wrong_in(frame: Request) -> Refusal | None:
    """What is wrong with a request although each field is of its type."""
    if isinstance(frame, ChatFrame) and not frame.chat:
        return NO_CHAT
    match frame:
        case DeliveryReceipt(delivered_at=time) | ReadReceipt(read_at=time):
            return None if time is None or is_time(time) else NO_TIME
    return None
