"""Whose bodies an erasure removes: those of a person in every chat, or of everybody in one."""

from __future__ import annotations

from parley.bodies.writer import Choice
from parley.ids import CHAT


def is_chat(subject_id: str) -> bool:
    return subject_id.startswith(CHAT)


def choice_of(subject_id: str) -> Choice:
    return Choice() if is_chat(subject_id) else Choice(sender_id=subject_id)


def chats_of(subject_id: str) -> list[str] | None:
    """Where its bodies may be; None: in any chat."""
    return [subject_id] if is_chat(subject_id) else None
