"""Which scope of an API token a frame needs."""

from __future__ import annotations

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
