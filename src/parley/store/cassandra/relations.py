"""The `Relations` port on Cassandra. A person's contacts and blocks are in one partition: see `consents`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from parley.concurrency import map_concurrently
from parley.errors import NO_SUCH_USER, Refused, StoreUnavailable
from parley.model import RelatedUser, Relation, Relationship, User, Visibility
from parley.store.cassandra.chat_state import ATTEMPTS_MAX, CassandraChatStates
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Statement
from parley.store.cassandra.consents import READ_KIND, READ_ONE, READ_REVISION, Consents
from parley.store.cassandra.people import read_people
from parley.store.cassandra.schema import DIRECT_CHATS, RELATIONS
from parley.store.rules import RELATIONS_MAX, TOO_MANY_RELATED, direct_key

COUNT = {Relation.CONTACT: "contacts", Relation.BLOCK: "blocks"}
PEOPLE_AT_ONCE_MAX = 32

PUT = f"INSERT INTO {RELATIONS} (user_id, kind, other_id, record) VALUES (?, ?, ?, ?)"
DELETE = f"DELETE FROM {RELATIONS} WHERE user_id = ? AND kind = ? AND other_id = ?"
READ_DIRECT = f"SELECT chat_id, revision FROM {DIRECT_CHATS} WHERE direct_key = ?"
MOVE_DIRECT = f"UPDATE {DIRECT_CHATS} SET revision = ? WHERE direct_key = ? IF revision = ?"

ChatIdsOf = Callable[[str], Awaitable[list[str]]]


class CassandraRelations:
    def __init__(
        self, cassandra: Cassandra, states: CassandraChatStates, consents: Consents, chat_ids_of: ChatIdsOf
    ) -> None:
        self._cassandra = cassandra
        self._states = states
        self._consents = consents
        self._chat_ids_of = chat_ids_of

    async def set_relation(
        self, user_id: str, other_id: str, relation: Relation, since: str | None
    ) -> str | None:
        if not is_key(user_id, other_id):
            if since is None:
                return None
            raise Refused(NO_SUCH_USER)
        if since is not None and len(await self.profiles([user_id, other_id])) < len({user_id, other_id}):
            raise Refused(NO_SUCH_USER)
        for _ in range(ATTEMPTS_MAX):
            person = await self._cassandra.row(READ_REVISION, user_id) or {}
            before = await self._cassandra.row(READ_ONE, user_id, relation.value, other_id)
            held = None if before is None else before["record"]
            if (held is None) != (since is None):
                count = (person.get(COUNT[relation]) or 0) + (1 if since is not None else -1)
                if count > RELATIONS_MAX[relation]:
                    raise Refused(TOO_MANY_RELATED[relation])
                change = _change(user_id, other_id, relation, since, count)
                if not await self._consents.write(user_id, person.get("revision"), *change):
                    continue
                held = since
            if since is not None and relation is Relation.BLOCK:
                await self._end_what_is_under_way(user_id, other_id)
            return held
        raise StoreUnavailable("this person's relations are being written to by too many at once")

    async def _end_what_is_under_way(self, user_id: str, other_id: str) -> None:
        """The block is durable. What was decided before it was must fail: their chat, and chats to come."""
        await self._consents.end_joining(user_id)
        key, revision = direct_key([user_id, other_id]), self._consents.make_revision()
        for _ in range(ATTEMPTS_MAX):
            found = await self._cassandra.row(READ_DIRECT, key) or {}
            attempt = (MOVE_DIRECT, (revision, key, found.get("revision")))

            async def is_done() -> bool:
                now = await self._cassandra.row(READ_DIRECT, key, is_serial=True)
                return now is not None and now["revision"] == revision

            cas = await self._cassandra.resolve(lambda: self._cassandra.cas(attempt), is_done)  # noqa: B023
            if cas.is_applied:
                now = await self._cassandra.row(READ_DIRECT, key) or {}
                if now.get("chat_id") is not None:
                    await self._states.fence(now["chat_id"], self._consents.make_revision())
                return
        raise StoreUnavailable("the chat of these two is being written to by too many at once")

    # Reading

    async def related(
        self, user_id: str, relation: Relation, after_user_id: str, limit: int
    ) -> list[RelatedUser]:
        if not is_key(user_id) or limit < 1:
            return []
        cql = f"{READ_KIND} AND other_id > ? LIMIT ?"
        rows = await self._cassandra.rows(cql, user_id, relation.value, after_user_id, limit)
        return [RelatedUser(row["other_id"], row["record"]) for row in rows]

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        return await read_people(self._cassandra, user_ids)

    async def visibility(self, user_ids: Sequence[str]) -> dict[str, Visibility]:
        people = await self.profiles(user_ids)
        blocked = await map_concurrently(self._blocked_by, people, PEOPLE_AT_ONCE_MAX)
        return {
            user_id: Visibility(user.send_read_receipts, some, user.is_bot)
            for (user_id, user), some in zip(people.items(), blocked, strict=True)
        }

    async def _blocked_by(self, user_id: str) -> frozenset[str]:
        rows = await self._cassandra.rows(READ_KIND, user_id, Relation.BLOCK.value)
        return frozenset(row["other_id"] for row in rows)

    async def relationships(
        self, viewer_id: str, user_ids: Sequence[str], acquainted: bool = False
    ) -> dict[str, Relationship]:
        people = await self.profiles(user_ids)
        chats = set[str]()
        if not acquainted and any(user_id != viewer_id for user_id in people):
            chats = set(await self._chat_ids_of(viewer_id))

        async def relate(user: User) -> Relationship:
            return await self._relationship(viewer_id, user, acquainted, chats)

        found = await map_concurrently(relate, people.values(), PEOPLE_AT_ONCE_MAX)
        return dict(zip(people, found, strict=True))

    async def _relationship(
        self, viewer_id: str, user: User, acquainted: bool, chats: Iterable[str]
    ) -> Relationship:
        has, user_id, contact, block = self._consents.has, user.user_id, Relation.CONTACT, Relation.BLOCK
        is_contact = await has(viewer_id, contact, user_id)
        has_contact = await has(user_id, contact, viewer_id)
        is_acquainted = acquainted or user_id == viewer_id or (is_contact and has_contact)
        if not is_acquainted and chats:
            is_acquainted = not set(chats).isdisjoint(await self._chat_ids_of(user_id))
        return Relationship(
            user=user,
            is_contact=is_contact,
            has_contact=has_contact,
            is_blocked=await has(viewer_id, block, user_id),
            has_blocked=await has(user_id, block, viewer_id),
            is_acquainted=is_acquainted,
        )


def _change(
    user_id: str, other_id: str, relation: Relation, since: str | None, count: int
) -> list[Statement]:
    counted = f"UPDATE {RELATIONS} SET {COUNT[relation]} = ? WHERE user_id = ?"
    if since is None:
        return [(DELETE, (user_id, relation.value, other_id)), (counted, (count, user_id))]
    return [(PUT, (user_id, relation.value, other_id, since)), (counted, (count, user_id))]
