"""Changes of a chat's members, title and settings, decided and done at their own position of the log."""

from __future__ import annotations

from typing import NamedTuple

from parley.core.permissions import decide_change
from parley.errors import NO_SUCH_USER, Refusal
from parley.model import Action as Deed
from parley.model import Change, Draft, Role
from parley.store.dynamodb.actions import Action, Delete, Put, Update
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.states import MEMBERSHIPS, ChatState, Known
from parley.store.dynamodb.together import is_key
from parley.store.dynamodb.values import Item
from parley.store.rules import CHAT_FULL, TOO_MANY_CHATS
from parley.wire.limits import CHAT_MEMBERS_MAX, USER_CHATS_MAX

USERS = "users"
DELIVERY = "delivery_state"


async def decide(dynamo: Dynamo, draft: Draft, state: ChatState, known: Known) -> Refusal | None:
    """Why the change may not be made under this revision; None when it may."""
    change = draft.change
    assert change is not None
    refusal = decide_change(
        change,
        draft.sender_id,
        known.roles.get(draft.sender_id),
        known.roles.get(change.user_id),
        state.chat_type,
        state.owners,
        state.open_to_join,
    )
    if refusal is not None or change.action is not Deed.JOINED:
        return refusal
    if not is_key(change.user_id) or await dynamo.get(USERS, {"user_id": change.user_id}) is None:
        return NO_SUCH_USER
    if state.members >= CHAT_MEMBERS_MAX:
        return CHAT_FULL
    return TOO_MANY_CHATS if await chats_of(dynamo, change.user_id) >= USER_CHATS_MAX else None


async def chats_of(dynamo: Dynamo, user_id: str) -> int:
    """How many chats a person is in, at most one more than allowed."""
    return await dynamo.count(
        DELIVERY,
        "user_id = :user",
        {":user": user_id, ":left": True},
        filter="has_left <> :left",
        maximum=USER_CHATS_MAX + 1,
    )


def is_about_members(draft: Draft) -> bool:
    """Whether it gives the membership a new revision."""
    return draft.change is not None and draft.change.action not in (Deed.RENAMED, Deed.READ_RECEIPTS)


class Deeds(NamedTuple):
    """What a change does: attributes of the chat's own item, and the rows of its member."""

    chat: Item
    rows: list[Action]


def deeds_of(draft: Draft, state: ChatState, roles: dict[str, Role], sequence: int, now: str) -> Deeds:
    """What makes the change true, for the transaction of its own entry."""
    change = draft.change
    assert change is not None
    if change.action is Deed.RENAMED:
        return Deeds({"name": change.title, "updated_at": now}, [])
    if change.action is Deed.READ_RECEIPTS:
        assert change.read_receipts is not None
        return Deeds({"read_receipts": change.read_receipts.value, "updated_at": now}, [])
    target = roles.get(change.user_id)
    counts: Item = {"updated_at": now}
    after = change.role if change.action in (Deed.JOINED, Deed.ROLE) else None
    counts["member_count"] = state.members + (after is not None) - (target is not None)
    counts["owner_count"] = state.owners + (after is Role.OWNER) - (target is Role.OWNER)
    return Deeds(counts, _rows(state.chat_id, change, sequence, now))


def _rows(chat_id: str, change: Change, sequence: int, now: str) -> list[Action]:
    member: Item = {"chat_id": chat_id, "user_id": change.user_id}
    place: Item = {"user_id": change.user_id, "chat_id": chat_id}
    match change.action:
        case Deed.JOINED:
            row = member | {"role": change.role.value, "joined_at": now, "joined_sequence": sequence}
            return [
                Put(MEMBERSHIPS, row, "attribute_not_exists(chat_id)"),
                Update(
                    DELIVERY, place, "SET has_left = :left ADD revision :one", {":left": False, ":one": 1}
                ),
            ]
        case Deed.LEFT | Deed.REMOVED:
            left: Item = {":left": True, ":at": sequence, ":one": 1}
            return [
                Delete(MEMBERSHIPS, member, "attribute_exists(chat_id)"),
                Update(DELIVERY, place, "SET has_left = :left, left_sequence = :at ADD revision :one", left),
            ]
        case _:
            values: Item = {":role": change.role.value}
            names = {"#role": "role"}
            return [
                Update(MEMBERSHIPS, member, "SET #role = :role", values, "attribute_exists(chat_id)", names)
            ]
