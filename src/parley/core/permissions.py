"""Who may do what in a chat, as decisions over roles."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from parley.core.consent import ConsentFacts, decide_adding
from parley.errors import ACCOUNT_DISABLED, BAD_REQUEST, FORBIDDEN, NO_SUCH_USER, NOT_FOUND, Refusal
from parley.model import Action, Change, ChatType, Role
from parley.wire.limits import CHAT_MEMBERS_MAX, USER_CHATS_MAX

RANK = {Role.MEMBER: 0, Role.ADMIN: 1, Role.OWNER: 2}

DIRECT_IS_FIXED = BAD_REQUEST.because("a direct chat keeps its two people and has no title")
ALREADY_MEMBER = BAD_REQUEST.because("this person is already a member")
NO_SUCH_MEMBER = NOT_FOUND.because("this person is not a member")
LAST_OWNER = FORBIDDEN.because("the last owner must make another member owner first")
CHAT_FULL = BAD_REQUEST.because(f"a chat has at most {CHAT_MEMBERS_MAX} members")
ID_CHARS_SHOWN_MAX = 64
TOO_MANY_CHATS = BAD_REQUEST.because(f"a person can be in at most {USER_CHATS_MAX} chats")


class JoinFacts(Struct, frozen=True):
    """What the limits of a chat and of a person depend on when the person joins."""

    user_exists: bool = True
    """Also False for a deleted account."""
    chat_members: int = 0
    user_chats: int = 0
    is_disabled: bool = False
    consent: ConsentFacts = ConsentFacts()
    """Of the person who is added to the member who adds them."""
    invited_as: Role | None = None
    """The role in the person's pending invitation to this chat."""


NO_USER = JoinFacts(user_exists=False)


class ChangeFacts(Struct, kw_only=True):
    """What a change depends on, as of its own position in the log."""

    chat_type: ChatType = ChatType.GROUP
    open_to_join: bool = False
    owners: int = 0
    members: int = 0
    target: Role | None = None
    """The role of the person whom the change is about."""
    is_target_deleted: bool = False
    """Their account is deleted."""
    join: JoinFacts | None = None
    """None: not looked up yet. Only a join depends on it."""


def joins_alone(change: Change, actor_id: str) -> bool:
    """Whether a person wants to join by themself; they need not be a member yet."""
    return change.action is Action.JOINED and change.user_id == actor_id


def may_join_alone(change: Change, facts: ChangeFacts) -> bool | None:
    """Whether the chat is open, or the person was invited to it; None while it is unknown."""
    if facts.open_to_join and change.role is Role.MEMBER:
        return True
    return None if facts.join is None else facts.join.invited_as is change.role


def decide_change(
    change: Change, actor_id: str, actor: Role | None, facts: ChangeFacts, *, by_operator: bool = False
) -> Refusal | None:
    """Why a member, or a person who joins an open group, may not do this now; None when they may.

    While `facts.join` is unknown, None only means that nothing else forbids the join. `by_operator`: as an
    owner may, whoever the actor is; and the last member may be removed.
    """
    if by_operator:
        actor = Role.OWNER
    if facts.chat_type is ChatType.DIRECT:
        return None if change.action is Action.READ_RECEIPTS else DIRECT_IS_FIXED
    match change.action:
        case Action.JOINED:
            return _decide_join(change, actor_id, actor, facts)
        case Action.RENAMED | Action.READ_RECEIPTS | Action.POSTING:
            return None if actor is not None and RANK[actor] >= RANK[Role.ADMIN] else FORBIDDEN
        case Action.LEFT | Action.REMOVED | Action.ROLE:
            return _decide_about_member(change, actor_id, actor, facts, by_operator)


def _decide_join(change: Change, actor_id: str, actor: Role | None, facts: ChangeFacts) -> Refusal | None:
    if facts.target is not None:
        return ALREADY_MEMBER
    is_alone = joins_alone(change, actor_id)
    if not is_alone and not _outranks(actor, change.role):
        return FORBIDDEN
    if facts.join is None:
        return None
    if not facts.join.user_exists:
        return NO_SUCH_USER
    if facts.join.is_disabled and change.user_id == actor_id:
        return ACCOUNT_DISABLED
    refusal = None if is_alone else decide_adding(facts.join.consent)
    if refusal is not None:
        return refusal
    if facts.join.chat_members >= CHAT_MEMBERS_MAX:
        return CHAT_FULL
    return TOO_MANY_CHATS if facts.join.user_chats >= USER_CHATS_MAX else None


def decide_creation(creator_id: str, people: Mapping[str, JoinFacts]) -> Refusal | None:
    """Why a chat may not be created with these people, its creator among them; None when it may."""
    for user_id, facts in people.items():
        if not facts.user_exists:
            return no_user(user_id)
    if people[creator_id].is_disabled:
        return ACCOUNT_DISABLED
    for user_id, facts in people.items():
        refusal = None if user_id == creator_id else decide_adding(facts.consent)
        if refusal is not None:
            return refusal
    is_full = any(facts.user_chats >= USER_CHATS_MAX for facts in people.values())
    return TOO_MANY_CHATS if is_full else None


def no_user(user_id: str) -> Refusal:
    """The refusal for a user who does not exist."""
    return NOT_FOUND.because(f"there is no user {user_id[:ID_CHARS_SHOWN_MAX]}")


def decide_withdrawal(actor: Role, invited_as: Role) -> Refusal | None:
    """Why a member may not take back, or see, an invitation for this role; None when they may."""
    return None if _outranks(actor, invited_as) else FORBIDDEN


def _decide_about_member(
    change: Change, actor_id: str, actor: Role | None, facts: ChangeFacts, by_operator: bool
) -> Refusal | None:
    target = facts.target
    if target is None:
        return NO_SUCH_MEMBER
    stays_owner = change.action is Action.ROLE and change.role is Role.OWNER
    leaves_nobody = (facts.is_target_deleted or by_operator) and facts.members == 1
    if target is Role.OWNER and facts.owners == 1 and not stays_owner and not leaves_nobody:
        return LAST_OWNER
    if change.user_id == actor_id and change.action in {Action.LEFT, Action.REMOVED}:
        return None
    if change.action is Action.LEFT:
        return FORBIDDEN
    may = actor is Role.OWNER if change.action is Action.ROLE else _outranks(actor, target)
    return None if may else FORBIDDEN


def _outranks(actor: Role | None, other: Role) -> bool:
    """An admin may act on members, an owner on every member, admin and owner."""
    if actor is None or RANK[actor] < RANK[Role.ADMIN]:
        return False
    return actor is Role.OWNER or RANK[actor] > RANK[other]
