"""Changes of a chat's members, title and settings, in the transaction of their entry."""

from __future__ import annotations

from typing import Any

from parley.clock import from_iso
from parley.core.append import ChangeFacts, JoinFacts
from parley.core.permissions import NO_USER
from parley.model import AccountState, Action, Change, Draft
from parley.store.sqlite.chat_state import Execute, SqliteChatState
from parley.store.sqlite.consents import end_invitation, newcomers
from parley.store.sqlite.writer import Transaction

JOIN_STATE = (
    "INSERT INTO delivery_state (user_id, chat_id, change) VALUES (?, ?, ?)"
    " ON CONFLICT DO UPDATE SET has_left = 0, change = excluded.change"
)
LEAVE_STATE = (
    "INSERT INTO delivery_state (user_id, chat_id, has_left, left_sequence, change) VALUES (?, ?, 1, ?, ?)"
    " ON CONFLICT DO UPDATE SET has_left = 1, left_sequence = excluded.left_sequence,"
    " change = excluded.change"
)


def change_facts(
    execute: Execute, change: Change, state: SqliteChatState, *, by_operator: bool
) -> ChangeFacts:
    """What a change depends on, as of the open transaction."""
    target = state.sender(execute, change.user_id) if change.user_id else None
    is_deleted = target is not None and target.facts.account is AccountState.DELETED
    return ChangeFacts(
        chat_type=state.chat_type,
        open_to_join=state.open_to_join,
        owners=_count(execute, "chat_id = ? AND role = 'owner'", state.chat_id),
        members=_count(execute, "chat_id = ?", state.chat_id) if is_deleted or by_operator else 0,
        target=target.facts.role if target else None,
        is_target_deleted=is_deleted,
    )


def join_facts(execute: Execute, draft: Draft, state: SqliteChatState, now: str) -> JoinFacts:
    """What a join depends on, besides the other facts."""
    assert draft.change is not None
    user_id = draft.change.user_id
    person = newcomers(execute, draft.sender_id, [user_id]).get(user_id)
    if person is None:
        return NO_USER
    members = _count(execute, "chat_id = ?", state.chat_id)
    return person.facts_in(state.chat_id, members, from_iso(now))


def _count(execute: Execute, where: str, value: str) -> int:
    count: Any = execute(f"SELECT count(*) FROM chat_memberships WHERE {where}", (value,)).get
    return int(count)


def _is_unasked(execute: Execute, draft: Draft) -> bool:
    """Whether the sender adds a person who does not have the sender as a contact."""
    assert draft.change is not None
    user_id = draft.change.user_id
    is_own = user_id == draft.sender_id
    return not is_own and newcomers(execute, draft.sender_id, [user_id])[user_id].is_unasked


def apply(transaction: Transaction, draft: Draft, state: SqliteChatState, sequence: int, now: str) -> None:
    """Carry out a change that was allowed, in the transaction of its entry."""
    change = draft.change
    assert change is not None
    execute, chat_id, user_id = transaction.execute, draft.chat_id, change.user_id
    match change.action:
        case Action.JOINED:
            execute(
                "INSERT INTO chat_memberships"
                " (chat_id, user_id, role, joined_at, joined_sequence, is_unasked) VALUES (?, ?, ?, ?, ?, ?)",
                (chat_id, user_id, change.role.value, now, sequence, _is_unasked(execute, draft)),
            )
            end_invitation(transaction, user_id, chat_id)
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
        case Action.POSTING:
            if change.announcement_only is not None:
                state.announcement_only = change.announcement_only
            if change.slow_mode_seconds is not None:
                state.slow_mode_seconds = change.slow_mode_seconds
            execute(
                "UPDATE chats SET announcement_only = ?, slow_mode_seconds = ?, updated_at = ?"
                " WHERE chat_id = ?",
                (int(state.announcement_only), state.slow_mode_seconds, now, chat_id),
            )
            state.senders.clear()
            state.sent = None
    state.senders.pop(user_id, None)
