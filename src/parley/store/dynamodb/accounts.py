"""The `Accounts` port on DynamoDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from parley.clock import Clock
from parley.errors import OutcomeUnknown
from parley.ids import EVENT, Ids
from parley.model import Privacy, Session, User
from parley.store.dynamodb.actions import Action, Delete, Put
from parley.store.dynamodb.changes import USERS
from parley.store.dynamodb.client import ConditionFailed, Dynamo, Item, TransactionCanceled
from parley.store.dynamodb.cursor_writing import SESSIONS
from parley.store.dynamodb.states import number
from parley.store.dynamodb.together import is_key, repeated, together

USERNAMES = "usernames"
USER_SESSIONS = "user_sessions"
ENDED_AT_ONCE_MAX = 8
UPDATE_USER = (
    "SET display_name = :display_name, about = :about, is_operator = :is_operator,"
    " last_seen_privacy = :last_seen_privacy, send_read_receipts = :send_read_receipts"
)


class DynamoAccounts:
    def __init__(self, dynamo: Dynamo, clock: Clock, make_ids: Ids) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self._ids = make_ids

    async def add_user(self, user: User, password_hash: str) -> bool:
        actions: list[Action] = [
            Put(
                USERNAMES,
                {"username": user.username, "user_id": user.user_id},
                "attribute_not_exists(username)",
            ),
            Put(USERS, _user_item(user, password_hash), "attribute_not_exists(user_id)"),
        ]
        try:
            await self._transact(actions)
        except (TransactionCanceled, OutcomeUnknown) as error:
            owner = await self._user_id_of(user.username)
            if owner is None and isinstance(error, OutcomeUnknown):
                raise
            return owner == user.user_id  # ours: by an attempt whose answer was lost
        return True

    async def _transact(self, actions: list[Action]) -> None:
        token = self._ids.next(EVENT, self._clock())
        await repeated(lambda: self._dynamo.transact(actions, token))

    async def _user_id_of(self, username: str) -> str | None:
        if not is_key(username):
            return None
        found = await self._dynamo.get(USERNAMES, {"username": username})
        return cast(str, found["user_id"]) if found is not None else None

    async def user(self, user_id: str) -> User | None:
        item = await self._user_item(user_id)
        return user_in(item) if item is not None else None

    async def _user_item(self, user_id: str) -> Item | None:
        return await self._dynamo.get(USERS, {"user_id": user_id}) if is_key(user_id) else None

    async def user_by_name(self, username: str) -> tuple[User, str] | None:
        user_id = await self._user_id_of(username)
        item = await self._user_item(user_id) if user_id is not None else None
        return (user_in(item), cast(str, item["password_hash"])) if item is not None else None

    async def update_user(self, user: User, password_hash: str | None = None) -> None:
        expression, values = UPDATE_USER, {f":{name}": value for name, value in _own(user).items()}
        if password_hash is not None:
            expression, values = f"{expression}, password_hash = :hash", values | {":hash": password_hash}
        key: Item = {"user_id": user.user_id}
        try:
            await repeated(
                lambda: self._dynamo.update(
                    USERS, key, expression, values, condition="attribute_exists(user_id)"
                )
            )
        except ConditionFailed:
            return  # nobody is there to be changed

    # Sessions

    async def add_session(self, session: Session, token_hash: bytes) -> None:
        place: Item = {"user_id": session.user_id, "session_id": session.session_id, "token_hash": token_hash}
        await self._transact([Put(SESSIONS, _session_item(session, token_hash)), Put(USER_SESSIONS, place)])

    async def session_by_token(self, token_hash: bytes) -> Session | None:
        item = await self._dynamo.get(SESSIONS, {"token_hash": token_hash}) if token_hash else None
        return _session(item) if item is not None else None

    async def sessions(self, user_id: str) -> list[Session]:
        if not is_key(user_id):
            return []
        places = await self._dynamo.query_all(USER_SESSIONS, "user_id = :user", {":user": user_id})
        keys: list[Item] = [{"token_hash": place["token_hash"]} for place in places]
        found = [_session(item) for item in await self._dynamo.batch_get(SESSIONS, keys)]
        return sorted(found, key=lambda session: -session.last_used_at_ms)

    async def end_sessions(self, user_id: str, session_ids: Sequence[str]) -> list[str]:
        wanted = [session_id for session_id in dict.fromkeys(session_ids) if is_key(user_id, session_id)]
        keys: list[Item] = [{"user_id": user_id, "session_id": session_id} for session_id in wanted]
        places = {place["session_id"]: place for place in await self._dynamo.batch_get(USER_SESSIONS, keys)}
        there = [session_id for session_id in wanted if session_id in places]
        ended = await together(lambda one: self._end(places[one]), there, ENDED_AT_ONCE_MAX)
        return [session_id for session_id, was_ended in zip(there, ended, strict=True) if was_ended]

    async def _end(self, place: Item) -> bool:
        """Whether it was there until now."""
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


def _own(user: User) -> Item:
    """What a person may change, or an operator for them."""
    return {
        "display_name": user.display_name,
        "about": user.about,
        "is_operator": user.is_operator,
        "last_seen_privacy": user.last_seen_privacy.value,
        "send_read_receipts": user.send_read_receipts,
    }


def _user_item(user: User, password_hash: str) -> Item:
    seen: Item = {"last_seen": user.last_seen} if user.last_seen is not None else {}
    return seen | {
        "user_id": user.user_id,
        "username": user.username,
        "password_hash": password_hash,
        "created_at": user.created_at,
        **_own(user),
    }


def user_in(item: Item) -> User:
    """A person by their item; those of version 1 have no settings."""
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
    )


def _session_item(session: Session, token_hash: bytes) -> Item:
    return {
        "token_hash": token_hash,
        "session_id": session.session_id,
        "user_id": session.user_id,
        "device_id": session.device_id,
        "device_name": session.device_name,
        "created_at_ms": session.created_at_ms,
        "last_used_at_ms": session.last_used_at_ms,
        "expires_at_ms": session.expires_at_ms,
    }


def _session(item: Item) -> Session:
    return Session(
        session_id=cast(str, item["session_id"]),
        user_id=cast(str, item["user_id"]),
        device_id=cast(str, item["device_id"]),
        device_name=cast(str, item["device_name"]),
        created_at_ms=number(item, "created_at_ms"),
        last_used_at_ms=number(item, "last_used_at_ms"),
        expires_at_ms=number(item, "expires_at_ms"),
    )
