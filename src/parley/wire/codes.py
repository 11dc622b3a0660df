"""Close codes. The range says what the client should do.

4000-4099 reconnect and resume; 4100-4199 reconnect only with a new token or a changed request;
4200-4299 do not reconnect.
"""

from __future__ import annotations

from typing import NamedTuple


class Close(NamedTuple):
    code: int
    reason: str


GOING_AWAY = Close(4000, "the server is shutting down; reconnect and resume")
TOO_SLOW = Close(4001, "the client reads too slowly; reconnect and resume")
IDLE = Close(4002, "the client was silent for too long; reconnect and resume")
INTERNAL = Close(4003, "the server failed; reconnect and resume")
HELLO_TIMEOUT = Close(4100, "no hello arrived in time")
UNAUTHENTICATED = Close(4101, "the token is not valid; log in again")
REVOKED = Close(4102, "the session was revoked; log in again")
TOO_FAST = Close(4103, "too many frames; slow down")
TOO_MANY_CONNECTIONS = Close(4104, "this user has too many connections; close another one first")
TOKEN_EXPIRED = Close(4105, "the token has expired; reconnect with a new one")
NOT_A_FRAME = Close(4200, "a frame is one object with a type")
TOO_BIG = Close(1009, "the frame is larger than FRAME_BYTES_MAX")


def may_resume(code: int) -> bool:
    """Whether a client may reconnect without changes after this code."""
    return not 4100 <= code <= 4299 and code != TOO_BIG.code
