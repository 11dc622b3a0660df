"""Tells a person's connections of invitations to chats, and of their end."""

from __future__ import annotations

from parley.ephemeral.ports import Signals
from parley.ephemeral.signals import InvitationEndedSignal, InvitationSignal
from parley.people.audience import Audience
from parley.wire.frames import InvitationEnded, InvitationFrame


class InvitationNotifier:
    def __init__(self, signals: Signals, audience: Audience) -> None:
        self._audience = audience
        self._ends = [
            signals.subscribe(InvitationSignal, self._invited),
            signals.subscribe(InvitationEndedSignal, self._ended),
        ]

    def close(self) -> None:
        for end in self._ends:
            end()

    def _invited(self, signal: InvitationSignal) -> None:
        frame = InvitationFrame(
            chat_id=signal.chat_id,
            title=signal.title,
            by=signal.by,
            role=signal.role.value,
            invited_at=signal.invited_at,
            expires_at=signal.expires_at,
        )
        self._audience.tell_people([signal.user_id], frame)

    def _ended(self, signal: InvitationEndedSignal) -> None:
        self._audience.tell_people([signal.user_id], InvitationEnded(chat_id=signal.chat_id))
