"""What an engine must add so that messages can be answered, edited, deleted and reacted to.

The entry of each is in the log. Beside it an engine keeps what follows from it: marks, by the message that
they are about, and notes of what is not finished, so that a crash leaves nothing half done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

EDIT, REPLY, REACTION, WINDOW = "edit", "reply", "reaction", "window"
THE_CHAT = 0
"""The target of a mark that is about the chat itself: no message stands there."""
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

    target: int
    name: str
    sequence: int
    is_on: bool = True

    @property
    def parts(self) -> list[str]:
        return self.name.split(SEPARATOR)


def edit_mark(target: int, sequence: int) -> MessageMark:
    return MessageMark(target, f"{EDIT}{SEPARATOR}{sequence}", sequence)


def reply_mark(target: int, reply: int, sequence: int, *, is_on: bool = True) -> MessageMark:
    """`reply`: where the reply is. `sequence`: of the entry that says so, the reply or its deletion."""
    return MessageMark(target, f"{REPLY}{SEPARATOR}{reply}", sequence, is_on)


def reaction_mark(target: int, user_id: str, reaction: str, sequence: int, *, is_on: bool) -> MessageMark:
    name = SEPARATOR.join((REACTION, user_id, reaction))
    return MessageMark(target, name, sequence, is_on)


def window_mark(seconds: int | None, sequence: int) -> MessageMark:
    """How long messages of the chat may be edited; None: as long as the server allows."""
    return MessageMark(THE_CHAT, f"{WINDOW}{SEPARATOR}{'' if seconds is None else seconds}", sequence)


def window_in(marks: Sequence[MessageMark]) -> int | None:
    """What the newest of a chat's own marks says."""
    found = [mark for mark in marks if mark.parts[0] == WINDOW]
    newest = max(found, key=lambda mark: mark.sequence, default=None)
    return int(newest.parts[1]) if newest is not None and newest.parts[1] else None


class Amendments(Protocol):
    """Messages that were answered, edited, deleted or reacted to."""

    async def begin(self, note: AmendmentNote) -> None:
        """Durable before it returns. May be repeated."""
        ...

    async def under_way(self, chat_id: str | None = None) -> list[AmendmentNote]:
        """What has begun and is not finished, in one chat or in all, read strongly."""
        ...

    async def mark(self, chat_id: str, marks: Sequence[MessageMark]) -> None:
        """Durable before it returns. A mark that is older than the stored one changes nothing."""
        ...

    async def finish(self, note: AmendmentNote) -> None:
        """The note is gone, durably. May be repeated."""
        ...

    async def marks(self, chat_id: str, target: int) -> list[MessageMark]:
        """Everything about a message, read strongly, in the order of the names."""
        ...

    async def replace(self, chat_id: str, sequence: int, before: bytes, after: bytes) -> bool:
        """Put another JSON in place of an entry that the engine holds, and nothing else of it.

        Durable before it returns. False, and nothing is written, if it is not the same as `before` any more.
        A message that is deleted no longer counts as unread.
        """
        ...

    async def scrub(self, traces: Sequence[bytes]) -> None:
        """What was replaced before the call is in no file of the engine when it returns.

        `traces`: the bytes before each body, up to its quotation mark. By them a copy that was left behind
        is found; what has no body any more ends with another quotation mark there.
        """
        ...
