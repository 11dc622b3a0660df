"""The events that a webhook may be added for."""

from __future__ import annotations

from enum import StrEnum


class EventName(StrEnum):
    """Entries of chats, then what is in no chat's log."""

    MESSAGE_CREATED = "message.created"
    MESSAGE_EDITED = "message.edited"
    MESSAGE_DELETED = "message.deleted"
    MESSAGE_REACTED = "message.reacted"
    MEMBER_CHANGED = "member.changed"
    CHAT_CHANGED = "chat.changed"
    RECEIPT_DELIVERED = "receipt.delivered"
    RECEIPT_READ = "receipt.read"
    ACCOUNT_CREATED = "account.created"
    ACCOUNT_ENABLED = "account.enabled"
    ACCOUNT_DISABLED = "account.disabled"
    ACCOUNT_DELETED = "account.deleted"
