"""What is kept of messages that were answered, edited, deleted or reacted to. Pure.

The entry of each is in the log. Beside it stands what follows from it: marks, by the message that they are
about, and notes of what is not finished, so that a crash leaves nothing half done.
"""

from __future__ import annotations

from msgspec import Struct

EDIT, REPLY, REACTION = "edit", "reply", "reaction"
THE_CHAT = 0
"""The target of what is about the chat itself: no message stands there."""
SEPARATOR = "\x1f"
"""Between the parts of a mark's name. No id has it, and no reaction."""


class AmendmentNote(Struct, frozen=True):
    """Something that is being done to a message: written before its entry, removed when all is done.

    `target`: the position of the message. `client_key`: the entry, if it is stored, is found by it.
    """

    chat_id: str
    client_key: bytes
    target: int
    since_ms: int


class MessageMark(Struct, frozen=True):
    """What an entry says about an earlier message.

    Of two marks with the same target and name the one with the higher `sequence` counts.
    """

    chat_id: str
    target: int
    name: str
    sequence: int
    is_on: bool = True

    @property
    def parts(self) -> list[str]:
        return self.name.split(SEPARATOR)


def edit_mark(chat_id: str, target: int, sequence: int) -> MessageMark:
    return MessageMark(chat_id, target, f"{EDIT}{SEPARATOR}{sequence}", sequence)


def reply_mark(chat_id: str, target: int, reply: int, sequence: int, *, is_on: bool = True) -> MessageMark:
    """`reply`: where the reply is. `sequence`: of the entry that says so, the reply or its deletion."""
    return MessageMark(chat_id, target, f"{REPLY}{SEPARATOR}{reply}", sequence, is_on)


def reaction_mark(
    chat_id: str, target: int, user_id: str, reaction: str, sequence: int, *, is_on: bool
) -> MessageMark:
    name = SEPARATOR.join((REACTION, user_id, reaction))
    return MessageMark(chat_id, target, name, sequence, is_on)
