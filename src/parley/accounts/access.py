"""What whoever shows a token may do, whatever kind of token it is."""

from __future__ import annotations

from msgspec import Struct

from parley.errors import FORBIDDEN, Refusal
from parley.model import PageKind, Scope, Session

HTTP_DEVICE = "http"
"""The device of requests by a token that belongs to no device."""
OTHER_CHAT = FORBIDDEN.because("this token is bound to one chat, and this is not about it")


class Access(Struct, frozen=True, kw_only=True):
    """`scopes`: None for all that the person may do. `chat_id`: the only chat that it is for, or empty.

    `makers`: who made the token of a program, as in `ApiToken`. `is_device_bound`: whether it belongs to the
    device of its session. `may_operate`: whether it counts for what only operators may do, if the person is
    one. `ends_at_ms`: its sockets close then. `page`: which page in a browser has it, with the time when the
    person last proved who they are, and whether nothing can be changed with it.
    """

    session: Session
    scopes: frozenset[Scope] | None = None
    chat_id: str = ""
    makers: tuple[str, ...] = ()
    is_device_bound: bool = True
    may_operate: bool = True
    ends_at_ms: int | None = None
    page: PageKind | None = None
    password_at_ms: int = 0
    is_read_only: bool = False

    def refusal(self, scope: Scope, chat_id: str | None = None) -> Refusal | None:
        """Why it is not enough for something that needs this scope, about this chat."""
        if self.scopes is not None and scope not in self.scopes:
            return FORBIDDEN.because(f"this token does not have the scope {scope.value}")
        if self.chat_id and chat_id != self.chat_id:
            return OTHER_CHAT
        return None
