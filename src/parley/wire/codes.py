"""Close codes. The range tells a client what to do.

4000-4099 reconnect and resume; 4100-4199 reconnect only with a new token or a changed request;
4200-4299 do not reconnect.
"""

from __future__ import annotations

from typing import NamedTuple


class Close(NamedTuple):
    code: int
    reason: str


GOING_AWAY = Close(4000, "the server is going away; reconnect and resume")
TOO_SLOW = Close(4001, "the client reads too slowly; reconnect and resume")
IDLE = Close(4002, "nothing was heard for too long; reconnect and resume")
INTERNAL = Close(4003, "something went wrong here; reconnect and resume")
HELLO_TIMEOUT = Close(4100, "no hello came in time")
UNAUTHENTICATED = Close(4101, "the token is not valid; log in again")
REVOKED = Close(4102, "the session was revoked; log in again")
TOO_FAST = Close(4103, "too many frames; slow down")
NOT_A_FRAME = Close(4200, "a frame is one object with a type")
TOO_BIG = Close(1009, "the frame is larger than FRAME_BYTES_MAX")


def may_resume(code: int) -> bool:
    """Whether a client that was closed with this code reconnects as it is."""
    return not 4100 <= code <= 4299 and code != TOO_BIG.code
