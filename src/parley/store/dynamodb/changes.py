"""Changes of a chat's members, title and settings, in the transaction of their entry."""

from __future__ import annotations

from typing import NamedTuple

from parley.core.append import ChangeFacts, JoinFacts
from parley.core.permissions import NO_USER
from parley.model import Action as ChangeAction
from parley.model import Change, Draft, Role
from parley.store.dynamodb.chat_state import DynamoChatState, KnownMembers
from parley.store.dynamodb.consents import IS_UNASKED, DynamoConsents, end_invitation, still_says
from parley.store.dynamodb.driver import Action, Delete, Item, Put, UpdateItem
from parley.store.dynamodb.schema import CHATS, DELIVERY, MEMBERSHIPS


def change_facts(change: Change, state: DynamoChatState, membership: KnownMembers) -> ChangeFacts:
    """What a change depends on, under one revision of the membership."""
    return ChangeFacts(
        chat_type=state.chat_type,
        open_to_join=state.open_to_join,
        owners=state.owners,
        members=state.members,
        target=membership.roles.get(change.user_id),
        is_target_deleted=membership.is_deleted(change.user_id),
    )


class JoinWrites(NamedTuple):
    """What a join writes and checks besides the rows of its member."""

    is_unasked: bool
    actions: list[Action]


async def join_facts(
    consents: DynamoConsents, draft: Draft, state: DynamoChatState, now_ms: int
) -> tuple[JoinFacts, JoinWrites | None]:
    """What a join depends on, besides the other facts, and what its transaction checks and writes."""
    assert draft.change is not None
    user_id, chat_id = draft.change.user_id, state.chat_id
    person = (await consents.newcomers(draft.sender_id, [user_id])).get(user_id)
    if person is None:
        return NO_USER, None
    is_unasked = person.is_unasked and user_id != draft.sender_id
    actions = [still_says(person), *end_invitation(person, chat_id)]
    return person.facts_in(chat_id, state.members, now_ms), JoinWrites(is_unasked, actions)


class ChangeWrites(NamedTuple):
    """The writes of a change: attributes of the chat's item, and the rows of the member."""

    chat: Item
    rows: list[Action]


def change_writes(
    draft: Draft,
    state: DynamoChatState,
    roles: dict[str, Role],
    join: JoinWrites | None,
    sequence: int,
    now: str,
) -> ChangeWrites:
    """The writes of a change, for the transaction of its entry."""
    change = draft.change
    assert change is not None
    if change.action is ChangeAction.RENAMED:
        return ChangeWrites({"name": change.title, "updated_at": now}, [])
    if change.action is ChangeAction.READ_RECEIPTS:
        assert change.read_receipts is not None
        return ChangeWrites({"read_receipts": change.read_receipts.value, "updated_at": now}, [])
    if change.action is ChangeAction.POSTING:
        return ChangeWrites(_posting(change) | {"updated_at": now}, [])
    target = roles.get(change.user_id)
    counts: Item = {"updated_at": now}
    after = change.role if change.action in (ChangeAction.JOINED, ChangeAction.ROLE) else None
    counts["member_count"] = state.members + (after is not None) - (target is not None)
    counts["owner_count"] = state.owners + (after is Role.OWNER) - (target is Role.OWNER)
    return ChangeWrites(counts, _rows(state.chat_id, change, join, sequence, now))


def _posting(change: Change) -> Item:
    wanted: Item = {
        "announcement_only": change.announcement_only,
        "slow_mode_seconds": change.slow_mode_seconds,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _rows(chat_id: str, change: Change, join: JoinWrites | None, sequence: int, now: str) -> list[Action]:
    member: Item = {"chat_id": chat_id, "user_id": change.user_id}
    place: Item = {"user_id": change.user_id, "chat_id": chat_id}
    match change.action:
        case ChangeAction.JOINED:
            assert join is not None
            row = member | {"role": change.role.value, "joined_at": now, "joined_sequence": sequence}
            joined: Item = {":left": False, ":one": 1, ":unasked": join.is_unasked}
            return [
                Put(MEMBERSHIPS, row, "attribute_not_exists(chat_id)"),
                UpdateItem(
                    DELIVERY,
                    place,
                    f"SET has_left = :left, {IS_UNASKED} = :unasked ADD revision :one",
                    joined,
                ),
                *join.actions,
            ]
        case ChangeAction.LEFT | ChangeAction.REMOVED:
            left: Item = {":left": True, ":at": sequence, ":one": 1}
            return [
                Delete(MEMBERSHIPS, member, "attribute_exists(chat_id)"),
                UpdateItem(
                    DELIVERY, place, "SET has_left = :left, left_sequence = :at ADD revision :one", left
                ),
            ]
        case _:
            values: Item = {":role": change.role.value}
            names = {"#role": "role"}
            return [
                UpdateItem(
                    MEMBERSHIPS, member, "SET #role = :role", values, "attribute_exists(chat_id)", names
                )
            ]


def set_clauses(attributes: Item, values: Item) -> tuple[str, dict[str, str]]:
    """SET clauses of an update and their aliases (`name` is a reserved word). Adds their values."""
    names = {f"#n{number}": name for number, name in enumerate(attributes)}
    values |= {f":n{number}": value for number, value in enumerate(attributes.values())}
    return "".join(f", #n{number} = :n{number}" for number in range(len(attributes))), names


def update_chat(chat_id: str, attributes: Item) -> UpdateItem:
    """Set attributes of a chat's own item."""
    values: Item = {}
    clauses, names = set_clauses(attributes, values)
    expression = f"SET {clauses.removeprefix(', ')}"
    return UpdateItem(CHATS, {"chat_id": chat_id}, expression, values, "attribute_exists(chat_id)", names)
