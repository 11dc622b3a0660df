"""The events that a webhook may be added for."""

from __future__ import annotations

from typing import Literal

EventName = Literal[
    "message.created",
    "message.edited",
    "message.deleted",
    "message.reacted",
    "member.changed",
    "chat.changed",
    "receipt.delivered",
    "receipt.read",
    "account.created",
    "account.enabled",
    "account.disabled",
    "account.deleted",
]
