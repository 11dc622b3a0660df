"""Who may do what in a chat, as decisions over roles."""

from __future__ import annotations

from parley.errors import BAD_REQUEST, FORBIDDEN, NOT_A_MEMBER, NOT_FOUND, Refusal
from parley.model import Action, Change, ChatType, Role

RANK = {Role.MEMBER: 0, Role.ADMIN: 1, Role.OWNER: 2}

DIRECT_IS_FIXED = BAD_REQUEST.because("a direct chat keeps its two people and has no title")
ALREADY_MEMBER = BAD_REQUEST.because("this person is a member already")
NO_SUCH_MEMBER = NOT_FOUND.because("this person is not a member")
LAST_OWNER = FORBIDDEN.because("the last owner makes somebody else owner before leaving")


def decide_change(
    change: Change,
    actor_id: str,
    actor: Role | None,
    target: Role | None,
    chat_type: ChatType,
    owners: int,
    open_to_join: bool,
) -> Refusal | None:
    """Whether `actor` may do this now; roles are those in force at the change's own position."""
    joins_alone = (
        open_to_join
        and change.action is Action.JOINED
        and change.user_id == actor_id
        and change.role is Role.MEMBER
    )
    if actor is None and not joins_alone:
        return NOT_A_MEMBER
    if chat_type is ChatType.DIRECT:
        return None if change.action is Action.READ_RECEIPTS else DIRECT_IS_FIXED
    match change.action:
        case Action.JOINED:
            if target is not None:
                return ALREADY_MEMBER
            return None if joins_alone else _outranks(actor, change.role, at_least=Role.ADMIN)
        case Action.RENAMED | Action.READ_RECEIPTS:
            return None if actor is not None and RANK[actor] >= RANK[Role.ADMIN] else FORBIDDEN
        case Action.LEFT | Action.REMOVED | Action.ROLE:
            return _decide_about_member(change, actor_id, actor, target, owners)


def _decide_about_member(
    change: Change, actor_id: str, actor: Role | None, target: Role | None, owners: int
) -> Refusal | None:
    if target is None:
        return NO_SUCH_MEMBER
    stays_owner = change.action is Action.ROLE and change.role is Role.OWNER
    if target is Role.OWNER and owners == 1 and not stays_owner:
        return LAST_OWNER
    if change.user_id == actor_id and change.action in {Action.LEFT, Action.REMOVED}:
        return None
    if change.action is Action.LEFT:
        return FORBIDDEN
    if change.action is Action.ROLE:
        return None if actor is Role.OWNER else FORBIDDEN
    return _outranks(actor, target, at_least=Role.ADMIN)


def _outranks(actor: Role | None, other: Role, at_least: Role) -> Refusal | None:
    """An admin acts on members; an owner acts on anybody."""
    if actor is None or RANK[actor] < RANK[at_least]:
        return FORBIDDEN
    return None if actor is Role.OWNER or RANK[actor] > RANK[other] else FORBIDDEN
