"""The ports `AccountAdmin` and `AuditLog` on DynamoDB.

An append checks the head of its chat and the revision of the chat's membership, but not the account of its
sender: that would cost every message another item. So whatever takes a right away from a person first writes
their account, and then gives each of their chats a new revision. An append under way fails its condition,
reads the account and is refused. In a chat that they come into later, the account is read anyway.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from parley.clock import Clock
from parley.errors import LAST_OPERATOR, NO_SUCH_USER, Refused, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import AccountDeletion, AccountState, User, UserPage
from parley.store.dynamodb.accounts import (
    ACTIVE,
    DELETED,
    IS_ACTIVE,
    IS_NOT_DELETED,
    REVISION,
    account_attributes,
    user_in,
)
from parley.store.dynamodb.driver import (
    Action,
    ConditionCheck,
    Delete,
    Dynamo,
    Item,
    Put,
    TransactionCanceled,
    UpdateItem,
    is_valid_key,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.store.dynamodb.scans import table_pages
from parley.store.dynamodb.schema import (
    CHATS,
    DELETIONS,
    SESSIONS,
    USER_SESSIONS,
    USERNAMES,
    USERS,
    item_count,
)
from parley.store.rows import StoreCounts
from parley.store.rules import USERS_LOOKED_AT_MAX, emptied, folded, is_found_by

ATTEMPTS_MAX = 10
ENDED_AT_ONCE_MAX = 8
USERS_PER_SCAN = 1_000
SET_STATE = f"SET account_state = :state ADD {REVISION} :one"
SET_ACCOUNT = (
    "SET account_state = :state, username = :username, password_hash = :none, display_name = :display_name,"
    " about = :about, is_operator = :is_operator, last_seen_privacy = :last_seen_privacy,"
    " send_read_receipts = :send_read_receipts, who_may_add = :who_may_add,"
    " do_not_disturb = :do_not_disturb, is_bot = :is_bot, external_id = :none"
    f" REMOVE last_seen ADD {REVISION} :one"
)

Fence = Callable[[str], Awaitable[None]]


class DynamoAccountAdmin:
    """`fence`: see `Directory`."""

    def __init__(self, dynamo: Dynamo, clock: Clock, make_ids: Ids, fence: Fence) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self._ids = make_ids
        self._fence = fence

    # People

    async def find_users(self, query: str, after: str, limit: int) -> UserPage:
        wanted, found, looked_at = folded(query), list[User](), 0
        start: Item | None = {"user_id": after} if is_valid_key(after) else None
        while looked_at < USERS_LOOKED_AT_MAX:
            page = await self._dynamo.scan(USERS, start=start, limit=USERS_PER_SCAN)
            for user in map(user_in, page.items):
                if is_found_by(wanted, user.username, user.display_name):
                    found.append(user)
                if len(found) == limit:
                    return UserPage(found, user.user_id)
            looked_at, start = looked_at + len(page.items), page.next_key
            if start is None:
                return UserPage(found, None)
        return UserPage(found, cast("str | None", start and start["user_id"]))

    async def set_state(self, user_id: str, state: AccountState, witness_id: str) -> User:
        for _ in range(ATTEMPTS_MAX):
            user = await self._user(user_id)
            if user.state is AccountState.DELETED:
                raise Refused(NO_SUCH_USER)
            values: Item = {":state": state.value, ":one": 1, **DELETED}
            actions: list[Action] = [
                UpdateItem(USERS, {"user_id": user_id}, SET_STATE, values, IS_NOT_DELETED)
            ]
            if state is not AccountState.ACTIVE:
                actions += await self._check_operators(user, witness_id)
            if await self._transact(actions):
                if state is not AccountState.ACTIVE:
                    await self._fence(user_id)
                return await self._user(user_id)
        raise StoreUnavailable("this account is being written to by too many at once")

    async def delete_user(self, user_id: str, witness_id: str, now_ms: int) -> User:
        for _ in range(ATTEMPTS_MAX):
            user = await self._user(user_id)
            if user.state is AccountState.DELETED or await self._transact(
                [*_empty(user, now_ms), *await self._check_operators(user, witness_id)]
            ):
                await self._fence(user_id)
                return await self._user(user_id)
        raise StoreUnavailable("this account is being written to by too many at once")

    async def _user(self, user_id: str) -> User:
        item = await self._dynamo.get(USERS, {"user_id": user_id}) if is_valid_key(user_id) else None
        if item is None:
            raise Refused(NO_SUCH_USER)
        return user_in(item)

    async def _check_operators(self, user: User, witness_id: str) -> list[Action]:
        """The condition that there is an operator without this person: the witness."""
        if not user.is_operator or user.state is not AccountState.ACTIVE:
            return []
        witness: Item = {"user_id": witness_id}
        item = await self._dynamo.get(USERS, witness) if is_valid_key(witness_id) else None
        found = user_in(item) if item is not None and witness_id != user.user_id else None
        if found is None or not found.is_operator or found.state is not AccountState.ACTIVE:
            raise Refused(LAST_OPERATOR)
        is_operator: Item = {":yes": True, **ACTIVE}
        return [ConditionCheck(USERS, witness, f"{IS_ACTIVE} AND is_operator = :yes", is_operator)]

    async def _transact(self, actions: list[Action]) -> bool:
        """Whether its conditions held; if not, nothing was written."""
        token = self._ids.next(EVENT, self._clock())
        try:
            await retry_unknown(lambda: self._dynamo.transact(actions, token))
        except TransactionCanceled:
            return False
        return True

    # Deletions and sessions

    async def deletions(self) -> list[AccountDeletion]:
        found = [
            AccountDeletion(cast(str, item["user_id"]), number(item, "since_ms"))
            async for items in table_pages(self._dynamo, DELETIONS)
            for item in items
        ]
        return sorted(found, key=lambda deletion: deletion.since_ms)

    async def counts(self) -> StoreCounts:
        return StoreCounts(await item_count(self._dynamo, USERS), await item_count(self._dynamo, CHATS))

    async def finish_deletion(self, user_id: str) -> None:
        await retry_unknown(lambda: self._dynamo.delete(DELETIONS, {"user_id": user_id}))

    async def end_expired_sessions(self, now_ms: int) -> int:
        ended, start = 0, cast("Item | None", None)
        while True:
            page = await self._dynamo.scan(
                SESSIONS,
                filter="expires_at_ms <= :now",
                values={":now": now_ms},
                projection="token_hash, user_id, session_id",
                start=start,
            )
            results = await map_concurrently(
                lambda item: self._end_expired(item, now_ms), page.items, ENDED_AT_ONCE_MAX
            )
            ended, start = ended + sum(results), page.next_key
            if start is None:
                return ended

    async def _end_expired(self, session: Item, now_ms: int) -> bool:
        """Not one that was used again meanwhile."""
        place: Item = {"user_id": session["user_id"], "session_id": session["session_id"]}
        return await self._transact(
            [
                Delete(
                    SESSIONS,
                    {"token_hash": session["token_hash"]},
                    "expires_at_ms <= :now",
                    {":now": now_ms},
                ),
                Delete(USER_SESSIONS, place),
            ]
        )


def _empty(user: User, now_ms: int) -> list[Action]:
    """The account as it is left, its name free for others, and the mark that there is more to do."""
    empty = emptied(user)
    values: Item = {f":{name}": value for name, value in account_attributes(empty).items()}
    values |= {
        ":state": empty.state.value,
        ":username": empty.username,
        ":none": "",
        ":old": user.username,
        ":one": 1,
    }
    return [
        Delete(USERNAMES, {"username": user.username}, "user_id = :user", {":user": user.user_id}),
        Put(USERNAMES, {"username": empty.username, "user_id": user.user_id}),
        UpdateItem(USERS, {"user_id": user.user_id}, SET_ACCOUNT, values, "username = :old"),
        Put(DELETIONS, {"user_id": user.user_id, "since_ms": now_ms}),
    ]
