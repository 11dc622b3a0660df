"""Whether a draft becomes an entry: the only place that knows the order in which a send is answered.

    1. the sender has stored this id before     → answer with the original, whatever has changed since
    2. the sender is no member                  → not_a_member
    3. the sender's account is not active       → account_disabled
    4. the other person has blocked the sender  → blocked
    5. the other person's account is deleted    → user_deleted
    6. someone else has stored this id          → duplicate_id
    7. the predecessor is not stored            → out_of_turn
    8. the group does not let the sender post,
       or not yet                               → announcement_only, slow_mode
    9. the change is not allowed                → forbidden, blocked, bad_request, not_found
       the message that it is about cannot be
       answered, edited, deleted, reacted to    → not_found, forbidden, message_deleted, under_hold,
                                                  edit_window_over, too_many_reactions
       a file that it refers to may not be used → not_found
   10. the chat's counter is lost or behind     → counter_missing, counter_inconsistent
   11. none of these                            → place it at the next position

An engine gathers facts, calls `decide_append`, and carries out the decision. Facts that cost a lookup may be
unknown; the decision names one (`Missing`) only if it depends on it. So a new draft costs no lookup of its
own id: it is placed, and the conditions of the write fail if the id was not new.
"""

from __future__ import annotations

from enum import Enum

from msgspec import UNSET, Struct

from parley.core.log_hash import body_digest, draft_digest
from parley.core.message_actions import decide_amendment
from parley.core.permissions import ChangeFacts, JoinFacts, decide_change, joins_alone, may_join_alone
from parley.core.posting import decide_pace, decide_posting, is_slowed
from parley.errors import (
    ACCOUNT_DISABLED,
    BLOCKED,
    DUPLICATE_ID,
    NO_SUCH_ATTACHMENT,
    NOT_A_MEMBER,
    OUT_OF_TURN,
    USER_DELETED,
    Refusal,
)
from parley.model import AccountState, Action, Appended, Draft, Kind, Role
from parley.wire.frames import Entry

__all__ = [
    "NO_CHAT",
    "AppendFacts",
    "ChangeFacts",
    "Decision",
    "JoinFacts",
    "Missing",
    "StoredBy",
    "Verdict",
    "answer_again",
    "decide_append",
    "stored_by",
]


class StoredBy(Enum):
    """Who has used a client id in this chat, in the log or earlier in the same batch."""

    UNKNOWN = "unknown"
    NOBODY = "nobody"
    SENDER = "sender"
    OTHER = "other"


class Verdict(Enum):
    PLACE = "place"
    """Write it at the next position."""
    ANSWER = "answer"
    """Answer with the original, see `answer_again`."""


class Missing(Enum):
    """A fact that the decision depends on: look it up and call again."""

    ORIGINAL = "original"
    PREDECESSOR = "predecessor"
    JOIN = "join"
    LAST_SENT = "last_sent"


Decision = Verdict | Missing | Refusal


class AppendFacts(Struct, kw_only=True, gc=False):
    """What is known about a draft, its sender and its chat."""

    role: Role | None
    """The sender's; None for a sender who is not a member."""
    account: AccountState = AccountState.ACTIVE
    """The sender's, if they are a member."""
    is_blocked: bool = False
    """By the other person of a direct chat."""
    is_peer_deleted: bool = False
    """The account of the other person of a direct chat."""
    original: StoredBy = StoredBy.UNKNOWN
    """Who has used the draft's own id."""
    predecessor: StoredBy = StoredBy.UNKNOWN
    """Who has used the id that the draft names as its predecessor."""
    change: ChangeFacts | None = None
    """Given for a draft that is a change."""
    trouble: Refusal | None = None
    """Why the chat's counter cannot allocate."""
    announcement_only: bool = False
    """Only owners and admins post in the chat."""
    slow_mode_seconds: int = 0
    """How long its members wait between two messages."""
    since_last_ms: int | None = None
    """How long ago the sender's last message was; None: not looked up. Only slow mode asks for it."""


NO_CHAT = AppendFacts(role=None, original=StoredBy.NOBODY, change=ChangeFacts(join=JoinFacts()))
"""A chat that does not exist looks like one that the sender is not in."""

_UNKNOWN, _NOBODY, _SENDER, _OTHER = StoredBy.UNKNOWN, StoredBy.NOBODY, StoredBy.SENDER, StoredBy.OTHER
_PLACE, _ANSWER = Verdict.PLACE, Verdict.ANSWER
_ACTIVE = AccountState.ACTIVE
_MESSAGE = Kind.MESSAGE.value


def decide_append(draft: Draft, facts: AppendFacts) -> Decision:
    """Place the draft, answer with its original, refuse it, or look up what is missing."""
    original = facts.original if draft.client_key is not None else _NOBODY
    if original is _SENDER:
        return _ANSWER
    decision = _decide_new(draft, facts, original)
    if original is _UNKNOWN and type(decision) is Refusal:
        return Missing.ORIGINAL
    return decision


def _decide_new(draft: Draft, facts: AppendFacts, original: StoredBy) -> Decision:
    """The steps from 2 on, as if the sender had not stored this id."""
    change = draft.change
    if facts.role is None:
        may_join = _may_join(draft, facts)
        if not may_join:
            return NOT_A_MEMBER if may_join is False else Missing.JOIN
    if not draft.by_operator:
        if facts.account is not _ACTIVE and not _leaves_for_good(draft, facts):
            return ACCOUNT_DISABLED
        if facts.is_blocked:
            return BLOCKED
        if facts.is_peer_deleted:
            return USER_DELETED
    if original is _OTHER:
        return DUPLICATE_ID
    if draft.after_key is not None and facts.predecessor is not _SENDER:
        return Missing.PREDECESSOR if facts.predecessor is _UNKNOWN else OUT_OF_TURN
    if (facts.announcement_only or facts.slow_mode_seconds) and not draft.by_operator:
        restricted = _decide_restricted(draft, facts)
        if restricted is not None:
            return restricted
    if change is not None:
        assert facts.change is not None
        refusal = decide_change(
            change, draft.sender_id, facts.role, facts.change, by_operator=draft.by_operator
        )
        if refusal is not None:
            return refusal
        if change.action is Action.JOINED and facts.change.join is None:
            return Missing.JOIN
    elif draft.kind != _MESSAGE or draft.reply_to is not None:
        refusal = decide_amendment(draft, facts.role)
        if refusal is not None:
            return refusal
    if draft.attachments and _lacks_files(draft):
        return NO_SUCH_ATTACHMENT
    return facts.trouble or _PLACE


def _decide_restricted(draft: Draft, facts: AppendFacts) -> Refusal | Missing | None:
    """Step 8, in a group that is announcement-only or in slow mode."""
    refusal = decide_posting(draft, facts.role, facts.announcement_only)
    if refusal is None and is_slowed(draft, facts.role, facts.slow_mode_seconds):
        if facts.since_last_ms is None:
            return Missing.LAST_SENT
        refusal = decide_pace(facts.slow_mode_seconds, facts.since_last_ms)
    return refusal


def _may_join(draft: Draft, facts: AppendFacts) -> bool | None:
    """The one thing that a person who is no member may do, if the chat is open or they were invited."""
    if draft.change is None or not joins_alone(draft.change, draft.sender_id):
        return False
    assert facts.change is not None
    return may_join_alone(draft.change, facts.change)


def _leaves_for_good(draft: Draft, facts: AppendFacts) -> bool:
    """Whether a deleted account leaves a group, or makes another member its owner before that."""
    change = draft.change
    if facts.account is not AccountState.DELETED or change is None:
        return False
    if change.action is Action.LEFT:
        return change.user_id == draft.sender_id
    return change.action is Action.ROLE and change.role is Role.OWNER


def _lacks_files(draft: Draft) -> bool:
    """Whether it refers to a file that is not there, or not its sender's to use."""
    return len(draft.files) < len(draft.attachments)


def stored_by(sender_id: str | None, draft: Draft) -> StoredBy:
    """The fact about an id that was looked up: `sender_id` is who stored it, None if it is free."""
    if sender_id is None:
        return _NOBODY
    return _SENDER if sender_id == draft.sender_id else _OTHER


def answer_again(draft: Draft, original: Entry) -> Appended:
    """The original's position; `conflict` when the retry says something else, which is not stored.

    An original that was edited or deleted since is compared by the digest of what was sent.
    """
    if original.body_digest:
        is_same = _lacks_files(draft) or body_digest(original) == draft_digest(draft)
    else:
        is_same = (original.content, original.content_type) == (draft.content, draft.content_type)
        is_same = is_same and tuple(file.attachment_id for file in original.attachments or ()) == (
            draft.attachments
        )
    about = (draft.kind, draft.target_id, draft.on)
    is_same = is_same and about == (original.kind, original.target_id or None, _on(original))
    return Appended(
        message_id=original.message_id,
        sequence=original.sequence,
        epoch=original.epoch,
        created_at=original.created_at,
        deduplicated=True,
        conflict=not is_same,
    )


def _on(entry: Entry) -> bool | None:
    return None if entry.on is UNSET else entry.on
