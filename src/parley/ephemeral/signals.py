"""Signals: short-lived facts about people that one node publishes to all others. They may be lost.

Signals are values. Only an engine that crosses processes encodes them.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from parley.model import ReceiptKind, Role


class TypingSignal(Struct, frozen=True, tag="typed"):
    """A member types in a chat, or stopped: then `shown_ms` is 0. Users in `hidden_from` do not get it."""

    chat_id: str
    user_id: str
    shown_ms: int
    hidden_from: list[str] = []


class ReceiptSignal(Struct, frozen=True, tag="receipted"):
    """A member's position in a chat rose.

    The member's own devices always get it. `is_public`: so do other members, except those in `hidden_from`.
    `is_named`: they see which member it is.
    """

    chat_id: str
    user_id: str
    kind: ReceiptKind
    up_to: int
    at: str
    is_public: bool
    is_named: bool = True
    hidden_from: list[str] = []


class UserChangedSignal(Struct, frozen=True, tag="person_changed"):
    """A user's settings, contacts or blocks changed."""

    user_id: str


class MuteSignal(Struct, frozen=True, tag="muted"):
    """A member muted or unmuted a chat for themself."""

    chat_id: str
    user_id: str
    until: str | None


class InvitationSignal(Struct, frozen=True, tag="invited"):
    """A person was invited to a chat."""

    user_id: str
    chat_id: str
    title: str | None
    by: str
    role: Role
    invited_at: str
    expires_at: str


class InvitationEndedSignal(Struct, frozen=True, tag="uninvited"):
    """An invitation was declined or withdrawn, or made room for newer ones."""

    user_id: str
    chat_id: str


Signal = (
    TypingSignal | ReceiptSignal | UserChangedSignal | MuteSignal | InvitationSignal | InvitationEndedSignal
)
SomeSignal = TypeVar(
    "SomeSignal",
    TypingSignal,
    ReceiptSignal,
    UserChangedSignal,
    MuteSignal,
    InvitationSignal,
    InvitationEndedSignal,
)
