"""Which scope of an API token a frame needs."""

from __future__ import annotations

from collections.abc import Container

from parley.errors import FORBIDDEN, Refusal
from parley.model import Scope
from parley.wire import frames

SCOPES = {
    frames.Heartbeat: None,
    frames.Refresh: None,
    frames.Hello: None,
    frames.SendMessage: Scope.SEND,
    frames.EditMessage: Scope.SEND,
    frames.DeleteMessage: Scope.SEND,
    frames.React: Scope.SEND,
}
"""Which scope a frame needs of an API token, if not `read`; None for none."""


def check_frame(scopes: Container[Scope], request: frames.Request) -> Refusal | None:
    """Why a token with these scopes may not send this frame."""
    scope = SCOPES.get(type(request), Scope.READ)
    if scope is None or scope in scopes:
        return None
    return FORBIDDEN.because(f"this token does not have the scope {scope.value}")
