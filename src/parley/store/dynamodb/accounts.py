"""The `Accounts` port on DynamoDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from parley.clock import Clock
from parley.errors import OutcomeUnknown
from parley.ids import EVENT, Ids
from parley.model import AccountState, Privacy, Session, User
from parley.store.dynamodb.driver import (
    Action,
    ConditionFailed,
    Delete,
    Dynamo,
    Item,
    Put,
    TransactionCanceled,
    is_valid_key,
    map_concurrently,
    number,
    retry_unknown,
)
from parley.store.dynamodb.schema import SESSIONS, USER_SESSIONS, USERNAMES, USERS
from parley.store.dynamodb.session_reads import SessionReads
from parley.store.rows import quiet_hours, quiet_text

ENDED_AT_ONCE_MAX = 8
UPDATE_USER = (
    "SET display_name = :display_name, about = :about, is_operator = :is_operator,"
    " last_seen_privacy = :last_seen_privacy, send_read_receipts = :send_read_receipts,"
    " who_may_add = :who_may_add, do_not_disturb = :do_not_disturb, is_bot = :is_bot"
)


REVISION = "consent_revision"
"""Of a person's item; see `consents`."""
IS_NOT_DELETED = (
    "attribute_exists(user_id) AND (attribute_not_exists(account_state) OR account_state <> :deleted)"
)
IS_ACTIVE = "attribute_exists(user_id) AND (attribute_not_exists(account_state) OR account_state = :active)"
DELETED: Item = {":deleted": AccountState.DELETED.value}
ACTIVE: Item = {":active": AccountState.ACTIVE.value}


class DynamoAccounts:
    def __init__(self, dynamo: Dynamo, clock: Clock, make_ids: Ids) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self._ids = make_ids
        self._session_reads = SessionReads(dynamo)

    async def close(self) -> None:
        await self._session_reads.close()

    async def add_user(self, user: User, password_hash: str) -> bool:
        actions: list[Action] = [
            Put(
                USERNAMES,
                {"username": user.username, "user_id": user.user_id},
                "attribute_not_exists(username)",
            ),
            Put(USERS, user_item(user, password_hash), "attribute_not_exists(user_id)"),
        ]
        try:
            await self._transact(actions)
        except TransactionCanceled:
            return False  # an attempt whose answer was lost is answered again, by its token
        except OutcomeUnknown:
            owner = await self._user_id_of(user.username)
            if owner is None:
                raise
            return owner == user.user_id
        return True

    async def _transact(self, actions: list[Action]) -> None:
        token = self._ids.next(EVENT, self._clock())
        await retry_unknown(lambda: self._dynamo.transact(actions, token))

    async def _user_id_of(self, username: str) -> str | None:
        if not is_valid_key(username):
            return None
        found = await self._dynamo.get(USERNAMES, {"username": username})
        return cast(str, found["user_id"]) if found is not None else None

    async def user(self, user_id: str) -> User | None:
        item = await self._user_item(user_id)
        return user_in(item) if item is not None else None

    async def _user_item(self, user_id: str) -> Item | None:
        return await self._dynamo.get(USERS, {"user_id": user_id}) if is_valid_key(user_id) else None

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        asked = [user_id for user_id in dict.fromkeys(user_ids) if is_valid_key(user_id)]
        items = await self._dynamo.batch_get(USERS, [{"user_id": user_id} for user_id in asked])
        found = {cast(str, item["user_id"]): item for item in items}
        return {user_id: user_in(found[user_id]) for user_id in asked if user_id in found}

    async def user_by_name(self, username: str) -> tuple[User, str] | None:
        user_id = await self._user_id_of(username)
        item = await self._user_item(user_id) if user_id is not None else None
        return (user_in(item), cast(str, item["password_hash"])) if item is not None else None

    async def update_user(self, user: User, password_hash: str | None = None) -> None:
        expression, values = (
            UPDATE_USER,
            {f":{name}": value for name, value in account_attributes(user).items()},
        )
        if password_hash is not None:
            expression, values = f"{expression}, password_hash = :hash", values | {":hash": password_hash}
        expression, values = f"{expression} ADD {REVISION} :one", values | {":one": 1}
        key: Item = {"user_id": user.user_id}
        try:
            await retry_unknown(
                lambda: self._dynamo.update(
                    USERS, key, expression, values | DELETED, condition=IS_NOT_DELETED
                )
            )
        except ConditionFailed:
            return  # the person does not exist, or not any more

    # Sessions

    async def add_session(self, session: Session, token_hash: bytes) -> None:
        place: Item = {"user_id": session.user_id, "session_id": session.session_id, "token_hash": token_hash}
        await self._transact([Put(SESSIONS, session_item(session, token_hash)), Put(USER_SESSIONS, place)])

    async def session_by_token(self, token_hash: bytes, *, is_recheck: bool = False) -> Session | None:
        if not token_hash:
            return None
        if is_recheck:
            item = await self._session_reads.read(token_hash)
        else:
            item = await self._dynamo.get(SESSIONS, {"token_hash": token_hash})
        return session_in(item) if item is not None else None

    async def sessions(self, user_id: str) -> list[Session]:
        if not is_valid_key(user_id):
            return []
        places = await self._dynamo.query_all(USER_SESSIONS, "user_id = :user", {":user": user_id})
        keys: list[Item] = [{"token_hash": place["token_hash"]} for place in places]
        found = [session_in(item) for item in await self._dynamo.batch_get(SESSIONS, keys)]
        return sorted(found, key=lambda session: -session.last_used_at_ms)

    async def end_sessions(self, user_id: str, session_ids: Sequence[str]) -> list[str]:
        wanted = [
            session_id for session_id in dict.fromkeys(session_ids) if is_valid_key(user_id, session_id)
        ]
        keys: list[Item] = [{"user_id": user_id, "session_id": session_id} for session_id in wanted]
        places = {place["session_id"]: place for place in await self._dynamo.batch_get(USER_SESSIONS, keys)}
        there = [session_id for session_id in wanted if session_id in places]
        ended = await map_concurrently(lambda one: self._end(places[one]), there, ENDED_AT_ONCE_MAX)
        return [session_id for session_id, was_ended in zip(there, ended, strict=True) if was_ended]

    async def _end(self, place: Item) -> bool:
        """Delete a session. Returns whether it existed."""
        key: Item = {"user_id": place["user_id"], "session_id": place["session_id"]}
        actions: list[Action] = [
            Delete(USER_SESSIONS, key, "attribute_exists(user_id)"),
            Delete(SESSIONS, {"token_hash": place["token_hash"]}),
        ]
        try:
            await self._transact(actions)
        except TransactionCanceled:
            return False
        return True


def account_attributes(user: User) -> Item:
    """The attributes that the person, or an operator, may change."""
    return {
        "display_name": user.display_name,
        "about": user.about,
        "is_operator": user.is_operator,
        "last_seen_privacy": user.last_seen_privacy.value,
        "send_read_receipts": user.send_read_receipts,
        "who_may_add": user.who_may_add.value,
        "do_not_disturb": quiet_text(user.do_not_disturb),
        "is_bot": user.is_bot,
    }


def user_item(user: User, password_hash: str) -> Item:
    seen: Item = {"last_seen": user.last_seen} if user.last_seen is not None else {}
    return seen | {
        "user_id": user.user_id,
        "username": user.username,
        "password_hash": password_hash,
        "created_at": user.created_at,
        "external_id": user.external_id,
        **account_attributes(user),
    }


def user_in(item: Item) -> User:
    """The person of an item. Items of older versions lack settings, or the state."""
    return User(
        user_id=cast(str, item["user_id"]),
        username=cast(str, item["username"]),
        display_name=cast(str, item["display_name"]),
        about=cast(str, item["about"]),
        is_operator=bool(item["is_operator"]),
        created_at=cast(str, item["created_at"]),
        last_seen_privacy=Privacy(cast(str, item.get("last_seen_privacy", Privacy.EVERYONE))),
        send_read_receipts=bool(item.get("send_read_receipts", True)),
        last_seen=cast("str | None", item.get("last_seen")),
        state=account_state(item),
        who_may_add=Privacy(cast(str, item.get("who_may_add", Privacy.EVERYONE))),
        do_not_disturb=quiet_hours(cast(str, quiet)) if (quiet := item.get("do_not_disturb")) else None,
        is_bot=bool(item.get("is_bot", False)),
        external_id=cast(str, item.get("external_id", "")),
    )


def account_state(user: Item) -> AccountState:
    return AccountState(cast(str, user.get("account_state", AccountState.ACTIVE)))


def session_item(session: Session, token_hash: bytes) -> Item:
    return {
        "token_hash": token_hash,
        "session_id": session.session_id,
        "user_id": session.user_id,
        "device_id": session.device_id,
        "device_name": session.device_name,
        "created_at_ms": session.created_at_ms,
        "last_used_at_ms": session.last_used_at_ms,
        "expires_at_ms": session.expires_at_ms,
        "origin": session.origin,
    }


def session_in(item: Item) -> Session:
    return Session(
        session_id=cast(str, item["session_id"]),
        user_id=cast(str, item["user_id"]),
        device_id=cast(str, item["device_id"]),
        device_name=cast(str, item["device_name"]),
        created_at_ms=number(item, "created_at_ms"),
        last_used_at_ms=number(item, "last_used_at_ms"),
        expires_at_ms=number(item, "expires_at_ms"),
        origin=cast(str, item.get("origin", "")),
    )
