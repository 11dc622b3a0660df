"""Changes of a chat's members, title and settings, decided and done at their own position of the log."""

from __future__ import annotations

from typing import Any, cast

from parley.core.permissions import decide_change
from parley.errors import NO_SUCH_USER, Refusal
from parley.model import Action, Change, Draft
from parley.store.rules import CHAT_FULL, TOO_MANY_CHATS
from parley.store.sqlite.states import ChatState, Execute, Person
from parley.store.sqlite.writer import Transaction
from parley.wire.limits import CHAT_MEMBERS_MAX, USER_CHATS_MAX

JOIN_STATE = (
    "INSERT INTO delivery_state (user_id, chat_id, change) VALUES (?, ?, ?)"
    " ON CONFLICT DO UPDATE SET has_left = 0, change = excluded.change"
)
LEAVE_STATE = (
    "INSERT INTO delivery_state (user_id, chat_id, has_left, left_sequence, change) VALUES (?, ?, 1, ?, ?)"
    " ON CONFLICT DO UPDATE SET has_left = 1, left_sequence = excluded.left_sequence,"
    " change = excluded.change"
)


def decide(execute: Execute, draft: Draft, state: ChatState, actor: Person | None) -> int | Refusal:
    """The actor's number, or why the change may not be made at this position."""
    change = draft.change
    assert change is not None
    target = state.person(execute, change.user_id) if change.user_id else None
    refusal = decide_change(
        change,
        draft.sender_id,
        actor.role if actor else None,
        target.role if target else None,
        state.chat_type,
        _count(execute, "chat_id = ? AND role = 'owner'", state.chat_id),
        state.open_to_join,
    )
    if refusal is not None:
        return refusal
    if change.action is Action.JOINED:
        return _decide_join(execute, change, draft.sender_id, state)
    assert actor is not None
    return actor.number


def _decide_join(execute: Execute, change: Change, actor_id: str, state: ChatState) -> int | Refusal:
    numbers: dict[str, int] = dict(
        cast(
            Any,
            execute("SELECT user_id, user_no FROM users WHERE user_id IN (?, ?)", (actor_id, change.user_id)),
        )
    )
    if change.user_id not in numbers:
        return NO_SUCH_USER
    if _count(execute, "chat_id = ?", state.chat_id) >= CHAT_MEMBERS_MAX:
        return CHAT_FULL
    if _count(execute, "user_id = ?", change.user_id) >= USER_CHATS_MAX:
        return TOO_MANY_CHATS
    return int(numbers[actor_id])


def _count(execute: Execute, where: str, value: str) -> int:
    count: Any = execute(f"SELECT count(*) FROM chat_memberships WHERE {where}", (value,)).get
    return int(count)


def apply(transaction: Transaction, draft: Draft, state: ChatState, sequence: int, now: str) -> None:
    """Do what was decided, in the transaction of its own entry."""
    change = draft.change
    assert change is not None
    execute, chat_id, user_id = transaction.execute, draft.chat_id, change.user_id
    match change.action:
        case Action.JOINED:
            execute(
                "INSERT INTO chat_memberships (chat_id, user_id, role, joined_at, joined_sequence)"
                " VALUES (?, ?, ?, ?, ?)",
                (chat_id, user_id, change.role.value, now, sequence),
            )
            execute(JOIN_STATE, (user_id, chat_id, transaction.change))
        case Action.LEFT | Action.REMOVED:
            execute("DELETE FROM chat_memberships WHERE chat_id = ? AND user_id = ?", (chat_id, user_id))
            execute(LEAVE_STATE, (user_id, chat_id, sequence, transaction.change))
        case Action.ROLE:
            execute(
                "UPDATE chat_memberships SET role = ? WHERE chat_id = ? AND user_id = ?",
                (change.role.value, chat_id, user_id),
            )
        case Action.RENAMED:
            execute(
                "UPDATE chats SET name = ?, updated_at = ? WHERE chat_id = ?", (change.title, now, chat_id)
            )
        case Action.READ_RECEIPTS:
            assert change.read_receipts is not None
            execute(
                "UPDATE chats SET read_receipts = ?, updated_at = ? WHERE chat_id = ?",
                (change.read_receipts.value, now, chat_id),
            )
    state.people.pop(user_id, None)
