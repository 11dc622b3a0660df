"""What an API token may do on a socket: the scopes of every frame, in both directions.

The tables are total: a frame without an entry fails the import. `read` sees and changes nothing, `send` sees
nothing, `admin` is for HTTP. docs/post-from-your-backend.md shows the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, get_args

from parley.accounts.access import Access
from parley.accounts.sign_in import SignIn
from parley.errors import FORBIDDEN, Refusal
from parley.model import Scope
from parley.wire import frames

NOTHING: frozenset[Scope] = frozenset()
SEND = frozenset({Scope.SEND})
READ = frozenset({Scope.READ})
SEND_AND_READ = SEND | READ

REQUESTS: Mapping[type[frames.ClientFrame], frozenset[Scope]] = {
    frames.Hello: NOTHING,
    frames.Refresh: NOTHING,
    frames.Heartbeat: NOTHING,
    frames.SendMessage: SEND,
    frames.EditMessage: SEND,
    frames.DeleteMessage: SEND,
    frames.React: SEND,
    frames.TypingStart: SEND,
    frames.TypingStop: SEND,
    frames.SyncRequest: READ,
    frames.Sync: READ,
    frames.SyncOverview: READ,
    frames.PresenceSubscribe: READ,
    frames.PresenceQuery: READ,
    frames.AckPosition: SEND_AND_READ,
    frames.DeliveryReceipt: SEND_AND_READ,
    frames.ReadReceipt: SEND_AND_READ,
    frames.Attention: SEND_AND_READ,
}
"""What a token needs for a frame of the client. What tells others that something was seen needs both."""

ANSWERS: frozenset[type[frames.ServerFrame]] = frozenset(
    {
        frames.Welcome,
        frames.Ack,
        frames.MessageBatch,
        frames.Overview,
        frames.HeartbeatAck,
        frames.PresenceState,
        frames.RefusedFrame,
    }
)
"""They come for a request, and need what the request needs."""

PUSHES: Mapping[type[frames.ServerFrame], frozenset[Scope]] = {
    frames.Messages: READ,
    frames.ChatChanged: READ,
    frames.InvitationFrame: READ,
    frames.InvitationEnded: READ,
    frames.ReceiptFrame: READ,
    frames.Typing: READ,
    frames.PresenceChanged: READ,
}
"""What a token needs to be sent a frame that the server sends unasked."""

HEADS = PUSHES[frames.Messages]
"""`heartbeat_ack.heads` says where there are messages."""
ONLINE = SEND_AND_READ
"""A socket puts its person online if somebody is there who reads and can answer."""
POSITIONS_OF_DEVICES = frozenset({frames.AckPosition, frames.DeliveryReceipt})
FOREIGN_DEVICE = FORBIDDEN.because("the person is logged in with this device_id: take another one")


def _require_total(what: str, named: Set[type[Any]], union: Any) -> None:
    """An import that fails names the frames that are in one and not in the other."""
    differing = named ^ set(get_args(union))
    if differing:
        raise TypeError(f"{what} without their scopes, or too many: {sorted(k.__name__ for k in differing)}")


_require_total("frames of clients", REQUESTS.keys(), frames.Request)
_require_total("frames of the server", PUSHES.keys() | ANSWERS, frames.ServerFrames)
if PUSHES.keys() & ANSWERS:
    raise TypeError("a frame of the server is either an answer or comes unasked")


def allows(scopes: Set[Scope] | None, needed: Set[Scope]) -> bool:
    """Whether a token is enough. `scopes`: None for all that its person may do."""
    return scopes is None or needed <= scopes


def may_be_sent(scopes: Set[Scope] | None, kind: type[frames.ServerFrame]) -> bool:
    """Whether the server sends this kind of frame, unasked, to a socket with such a token."""
    return allows(scopes, PUSHES[kind])


def check_frame(
    scopes: Set[Scope], request: frames.Request, is_foreign_device: bool = False
) -> Refusal | None:
    """Why a token with these scopes may not send this frame, from a device that may be another's."""
    missing = REQUESTS[type(request)] - scopes
    if missing:
        named = " and ".join(scope.value for scope in Scope if scope in missing)
        return FORBIDDEN.because(f"this token does not have the scope {named}")
    return FOREIGN_DEVICE if is_foreign_device and type(request) in POSITIONS_OF_DEVICES else None


async def is_foreign(sign_in: SignIn, access: Access, device_id: str) -> bool:
    """Whether a program names a device that the person is logged in on. Asked only if it could move it."""
    if access.scopes is None or not allows(access.scopes, REQUESTS[frames.AckPosition]):
        return False
    return await sign_in.has_device(access.session.user_id, device_id)
