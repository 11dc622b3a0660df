"""The `Invitations` port on DynamoDB.

An invitation stands in two tables, by person and by chat, written and deleted in the same transaction. A new
one moves the person's revision (see `consents`), so it is not written after they have blocked the inviter,
and of two at the same time the second counts the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from parley.clock import Clock
from parley.core.consent import TOO_MANY_INVITED, ConsentFacts
from parley.core.permissions import ALREADY_MEMBER
from parley.dynamodb import (
    Action,
    ConditionCheck,
    Delete,
    Dynamo,
    Item,
    Put,
    TransactionCanceled,
    UpdateItem,
    is_valid_key,
    retry_unknown,
)
from parley.errors import BLOCKED, NO_SUCH_USER, Refused, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import AccountState, Invitation, Role
from parley.store.dynamodb.consents import (
    BLOCKED_SINCE,
    MOVE_CONSENT,
    newcomers,
    relation_key,
)
from parley.store.dynamodb.people import (
    EXISTS,
    NAMES,
    REVISION,
    USERS,
    account_state,
    person_key,
    read_person,
)
from parley.store.dynamodb.schema import CHAT_INVITATIONS, INVITATIONS, MEMBERSHIPS, RELATIONS
from parley.store.rules import expired_invitations
from parley.wire.limits import INVITATIONS_MAX, INVITATIONS_PER_INVITER_MAX

ATTEMPTS_MAX = 10
ENDED_AT_ONCE_MAX = 40
"""More invitations than this are not over by a single new one."""


class DynamoInvitations:
    def __init__(self, dynamo: Dynamo, clock: Clock, make_ids: Ids) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self._ids = make_ids

    async def consents(self, actor_id: str, user_ids: Sequence[str]) -> dict[str, ConsentFacts]:
        found = await newcomers(self._dynamo, actor_id, user_ids)
        return {user_id: newcomer.facts.consent for user_id, newcomer in found.items()}

    async def invite(self, invitation: Invitation) -> list[str]:
        for _ in range(ATTEMPTS_MAX):
            actions, ended = await self._actions(invitation)
            try:
                await self._transact(actions)
            except TransactionCanceled:
                continue  # something has changed since it was read
            return ended
        raise StoreUnavailable("this person is being written to by too many at once")

    async def _transact(self, actions: list[Action]) -> None:
        token = self._ids.next(EVENT, self._clock())
        await retry_unknown(lambda: self._dynamo.transact(actions, token))

    async def _actions(self, invitation: Invitation) -> tuple[list[Action], list[str]]:
        """The transaction, and the chats whose invitations it ends because they are too many."""
        user_id, chat_id = invitation.user_id, invitation.chat_id
        user = await read_person(self._dynamo, user_id)
        if user is None or account_state(user) is AccountState.DELETED:
            raise Refused(NO_SUCH_USER)
        relation = await self._dynamo.get(RELATIONS, relation_key(user_id, invitation.invited_by)) or {}
        if BLOCKED_SINCE in relation:
            raise Refused(BLOCKED)
        member: Item = {"chat_id": chat_id, "user_id": user_id}
        if await self._dynamo.get(MEMBERSHIPS, member) is not None:
            raise Refused(ALREADY_MEMBER)
        stored = await self._dynamo.query_all(INVITATIONS, "user_id = :user", {":user": user_id})
        found = [invitation_in(item) for item in stored]
        expired = expired_invitations(self._clock())
        others = [one for one in found if one.chat_id != chat_id and one.invited_at > expired]
        if sum(one.invited_by == invitation.invited_by for one in others) >= INVITATIONS_PER_INVITER_MAX:
            raise Refused(TOO_MANY_INVITED)
        waiting = sorted([*others, invitation], key=lambda one: (one.invited_at, one.chat_id))
        ended = sorted(one.chat_id for one in waiting[:-INVITATIONS_MAX])[:ENDED_AT_ONCE_MAX]
        over = [one.chat_id for one in found if one.chat_id != chat_id and one.invited_at <= expired]
        actions: list[Action] = [
            _move_revision(user_id, user),
            ConditionCheck(MEMBERSHIPS, member, "attribute_not_exists(chat_id)"),
            *(Put(table, invitation_item(invitation)) for table in (INVITATIONS, CHAT_INVITATIONS)),
        ]
        for old in [*ended, *over][:ENDED_AT_ONCE_MAX]:
            actions += delete_invitation(user_id, old)
        return actions, ended

    async def invitation(self, user_id: str, chat_id: str) -> Invitation | None:
        if not is_valid_key(user_id, chat_id):
            return None
        item = await self._dynamo.get(INVITATIONS, {"user_id": user_id, "chat_id": chat_id})
        return pending_in(item, self._clock())

    async def of_user(self, user_id: str, after_chat_id: str, limit: int) -> list[Invitation]:
        return await self._listed(INVITATIONS, "user_id", user_id, "chat_id", after_chat_id, limit)

    async def of_chat(self, chat_id: str, after_user_id: str, limit: int) -> list[Invitation]:
        return await self._listed(CHAT_INVITATIONS, "chat_id", chat_id, "user_id", after_user_id, limit)

    async def _listed(
        self, table: str, name: str, value: str, order: str, after: str, limit: int
    ) -> list[Invitation]:
        if not is_valid_key(value):
            return []
        found: list[Invitation] = []
        start: Item | None = {name: value, order: after} if is_valid_key(after) else None
        while len(found) < limit:
            page = await self._dynamo.query(
                table,
                f"{name} = :value",
                {":value": value, ":expired": expired_invitations(self._clock())},
                filter="invited_at > :expired",
                limit=limit - len(found),
                start=start,
            )
            found += [invitation_in(item) for item in page.items]
            start = page.next_key
            if start is None:
                break
        return found

    async def end(self, user_id: str, chat_id: str) -> bool:
        found = await self.invitation(user_id, chat_id)
        if found is None:
            return False
        try:
            await self._transact(delete_invitation(user_id, chat_id, found.role))
        except TransactionCanceled:
            return False  # it was accepted, or ended by another, meanwhile
        return True


def delete_invitation(user_id: str, chat_id: str, role: Role | None = None) -> list[Action]:
    """An invitation ends, if there is one. With a role: only if there is one, with this role."""
    key: Item = {"user_id": user_id, "chat_id": chat_id}
    if role is None:
        return [Delete(INVITATIONS, key), Delete(CHAT_INVITATIONS, key)]
    condition, values = "#role = :role", Item({":role": role.value})
    return [Delete(INVITATIONS, key, condition, values, {"#role": "role"}), Delete(CHAT_INVITATIONS, key)]


def pending_in(item: Item | None, now_ms: int) -> Invitation | None:
    """The invitation of an item, unless it has expired."""
    found = invitation_in(item) if item is not None else None
    return found if found is not None and found.invited_at > expired_invitations(now_ms) else None


def _move_revision(user_id: str, user: Item) -> Action:
    values: Item = {":one": 1}
    condition = f"{EXISTS} AND attribute_not_exists({REVISION})"
    if user.get(REVISION) is not None:
        condition, values[":seen"] = f"{EXISTS} AND {REVISION} = :seen", user[REVISION]
    return UpdateItem(USERS, person_key(user_id), MOVE_CONSENT, values, condition, NAMES)


def invitation_item(invitation: Invitation) -> Item:
    return {
        "user_id": invitation.user_id,
        "chat_id": invitation.chat_id,
        "invited_by": invitation.invited_by,
        "role": invitation.role.value,
        "invited_at": invitation.invited_at,
    }


def invitation_in(item: Item) -> Invitation:
    return Invitation(
        user_id=cast(str, item["user_id"]),
        chat_id=cast(str, item["chat_id"]),
        invited_by=cast(str, item["invited_by"]),
        role=Role(cast(str, item["role"])),
        invited_at=cast(str, item["invited_at"]),
    )
