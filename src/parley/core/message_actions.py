"""What may be done to a message after it was sent, and what is left of it: reply, edit, delete, react.

Each is an entry of its own in the same log, so one cursor covers all of it. The entry of the message is
brought up to date where it is stored, so a page of the log costs the same with edits as without. Pure.

`replay` is what all of it means: whoever applies the entries of a log in order shows what it shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from parley.core.log_hash import body_digest, without_body
from parley.errors import (
    EDIT_WINDOW_OVER,
    FORBIDDEN,
    MESSAGE_DELETED,
    NO_SUCH_MESSAGE,
    TOO_MANY_REACTIONS,
    UNDER_HOLD,
    Refusal,
)
from parley.model import Draft, Kind, Role
from parley.wire.frames import Entry

MESSAGE, EDIT, DELETE, REACTION, CHAT = (
    kind.value for kind in (Kind.MESSAGE, Kind.EDIT, Kind.DELETE, Kind.REACTION, Kind.CHAT)
)
EDIT_WINDOW = "edit_window"
"""The action of an entry that says how long messages of its chat may be edited."""
BODIED_KINDS = frozenset({MESSAGE, EDIT})
"""Entries whose content somebody wrote, and which can lose it."""
NOTED, STORED, HALF_REMOVED = "amendment_noted", "amendment_stored", "amendment_half_removed"
ACTION_LABELS = (NOTED, STORED, HALF_REMOVED)
"""Points at which tests kill a process: before the entry, behind it, and in the midst of a removal."""
NOT_YOURS = FORBIDDEN.because("this message is not yours")


encode = msgspec.json.Encoder().encode


def decide_amendment(draft: Draft, role: Role | None) -> Refusal | None:
    """Why a draft about another message is refused; None if it is not.

    In this order: there is no such message, it is not yours, it was deleted, its chat is held, it is too old,
    it has too many reactions.
    """
    target = draft.target
    if target is None:
        return NO_SUCH_MESSAGE
    if draft.kind == MESSAGE:
        return None
    if draft.kind == CHAT:
        return None if not target.is_group or role in (Role.OWNER, Role.ADMIN) else FORBIDDEN
    is_own = target.sender_id == draft.sender_id or draft.by_operator
    may_moderate = target.is_group and role in (Role.OWNER, Role.ADMIN)
    if not is_own and (draft.kind == EDIT or (draft.kind == DELETE and not may_moderate)):
        return NOT_YOURS
    if target.is_deleted:
        return MESSAGE_DELETED
    if target.is_held and draft.kind != REACTION:
        return UNDER_HOLD
    if target.is_too_old and draft.kind == EDIT:
        return EDIT_WINDOW_OVER
    if not target.has_room and draft.kind == REACTION and draft.on is not False:
        return TOO_MANY_REACTIONS
    return None


# How long a message may be edited


class EditWindow(Struct):
    """The content of an entry about it. None: as long as the server allows; 0: for ever."""

    action: str
    edit_window_seconds: int | None


decode_window = msgspec.json.Decoder(EditWindow).decode


def edit_window_content(seconds: int | None) -> str:
    return encode(EditWindow(EDIT_WINDOW, seconds)).decode()


def edit_window_in(content: str) -> EditWindow | None:
    """None if it is the content of another kind of change."""
    try:
        found = decode_window(content)
    except msgspec.DecodeError:
        return None
    return found if found.action == EDIT_WINDOW else None


# What is left of an entry


def edited(message: Entry, edit: Entry) -> Entry | None:
    """The message with the content of an edit; None if it stays as it is: deleted, or edited later."""
    if message.deleted is True or (message.edit_sequence or 0) >= edit.sequence or edit.deleted is True:
        return None
    return replace(
        message,
        content=edit.content,
        body_digest=body_digest(message),
        edited_at=edit.created_at,
        edit_sequence=edit.sequence,
    )


def tombstone(entry: Entry) -> Entry | None:
    """An entry without its body; None if it has none, or never had one."""
    if entry.kind not in BODIED_KINDS or entry.deleted is True:
        return None
    return replace(without_body(entry), deleted=True)


def amended(entry: Entry, edits: Iterable[Entry], deleted: Collection[str]) -> Entry:
    """An entry as it is once these edits are carried out, and the messages with these ids are deleted.

    The same object if that changes nothing.
    """
    subject = entry.target_id if entry.kind == EDIT else entry.message_id
    if subject in deleted:
        return tombstone(entry) or entry
    if entry.kind == MESSAGE:
        for edit in edits:
            if edit.target_id == entry.message_id:
                entry = edited(entry, edit) or entry
    return entry


# What a reader shows


class ReactionCount(Struct, frozen=True):
    """One reaction of a message, and who has it."""

    reaction: str
    count: int
    user_ids: list[str]


class MessageState(Struct):
    """A message as it is now."""

    entry: Entry
    replies: set[str] = field(default_factory=set)
    """The ids of the messages that answer it and were not deleted."""
    by_reaction: dict[str, set[str]] = field(default_factory=dict)

    @property
    def reactions(self) -> list[ReactionCount]:
        return counted(self.by_reaction)


def counted(by_reaction: Mapping[str, Collection[str]]) -> list[ReactionCount]:
    """The reactions of a message, the most frequent first."""
    found = [ReactionCount(reaction, len(people), sorted(people)) for reaction, people in by_reaction.items()]
    return sorted(found, key=lambda one: (-one.count, one.reaction))


class MessageStates:
    """The messages of a chat, brought up to date by the entries that are applied in order."""

    def __init__(self) -> None:
        self.messages: dict[str, MessageState] = {}

    def apply(self, entry: Entry) -> str | None:
        """The id of the message that an entry adds or changes; None for an entry of another kind."""
        if entry.kind == MESSAGE:
            return self._add(entry)
        state = self.messages.get(entry.target_id or "")
        if state is None:
            return None
        if entry.kind == EDIT:
            state.entry = edited(state.entry, entry) or state.entry
        elif entry.kind == DELETE:
            self._delete(state)
        elif entry.kind == REACTION and entry.reaction:
            self._react(state, entry.reaction, entry.sender_id, is_on=entry.on is not False)
        else:
            return None
        return state.entry.message_id

    def _add(self, entry: Entry) -> str:
        known = self.messages.get(entry.message_id)
        self.messages[entry.message_id] = state = known or MessageState(entry)
        state.entry = entry
        if entry.reply_to and entry.deleted is not True and entry.reply_to in self.messages:
            self.messages[entry.reply_to].replies.add(entry.message_id)
        return entry.message_id

    def _delete(self, state: MessageState) -> None:
        state.entry = tombstone(state.entry) or state.entry
        state.by_reaction.clear()
        if state.entry.reply_to and state.entry.reply_to in self.messages:
            self.messages[state.entry.reply_to].replies.discard(state.entry.message_id)

    def _react(self, state: MessageState, reaction: str, user_id: str, *, is_on: bool) -> None:
        if state.entry.deleted is True:
            return
        people = state.by_reaction.setdefault(reaction, set())
        (people.add if is_on else people.discard)(user_id)
        if not people:
            del state.by_reaction[reaction]


def replay(entries: Iterable[Entry]) -> dict[str, MessageState]:
    """The messages of a log, by their ids, after all of these entries."""
    states = MessageStates()
    for entry in entries:
        states.apply(entry)
    return states.messages
