"""What a person says to being put into a chat, and how that is kept until they are in it.

A person's partition of `joining` has a revision. Everything that decides about their consent moves it: their
settings, contacts and blocks, the state of their account (`Directory.fence`), and every chat that they are
put into. Who puts them into one first writes a row there, on the condition of the revision that was decided
by; then the chat; then the row goes. Whatever takes the consent away moves the revision, so no new row is
written, and gives each chat with a row there a new revision: a write under way fails its condition, and is
decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from parley.concurrency import map_concurrently
from parley.errors import StoreUnavailable
from parley.model import User
from parley.store.cassandra.chat_state import ATTEMPTS_MAX, CassandraChatStates
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Statement
from parley.store.cassandra.effects import END_JOINING
from parley.store.cassandra.people import read_people
from parley.store.cassandra.schema import DELIVERY, JOINING
from parley.store.consent import Newcomer, newcomers
from parley.store.ports import Records

PEOPLE_AT_ONCE_MAX = 32
JOINING_SECONDS_MAX = 600
"""No write takes longer. What a node that died has left behind goes by itself."""

READ_REVISION = f"SELECT revision FROM {JOINING} WHERE user_id = ? LIMIT 1"
READ_ALL_JOINING = f"SELECT chat_id, joining FROM {JOINING} WHERE user_id = ?"
READ_PLACES = f"SELECT chat_id, has_left, is_unasked FROM {DELIVERY} WHERE user_id = ?"
MOVE = f"UPDATE {JOINING} SET revision = ? WHERE user_id = ? IF revision = ?"
PUT_JOINING = (
    f"INSERT INTO {JOINING} (user_id, chat_id, joining) VALUES (?, ?, ?) USING TTL {JOINING_SECONDS_MAX}"
)

Joiner = Newcomer["str | None"]


class CassandraConsents:
    """`make_revision`: one that no other write has."""

    def __init__(
        self,
        cassandra: Cassandra,
        states: CassandraChatStates,
        records: Records,
        make_revision: Callable[[], str],
    ) -> None:
        self._cassandra = cassandra
        self._states = states
        self._records = records
        self.make_revision = make_revision

    async def newcomers(self, actor_id: str, user_ids: Iterable[str]) -> dict[str, Joiner]:
        """Those who exist and are not deleted, in their order. The revision is read before what it covers."""
        asked = [user_id for user_id in dict.fromkeys(user_ids) if is_key(user_id)]
        found = await map_concurrently(self._person, asked, PEOPLE_AT_ONCE_MAX)
        people = {user_id: one for user_id, one in zip(asked, found, strict=True) if one is not None}
        return await newcomers(self._records, actor_id, people, self._count_chats)

    async def _person(self, user_id: str) -> tuple[User, str | None] | None:
        revision = await self.revision(user_id)
        user = (await read_people(self._cassandra, [user_id])).get(user_id)
        return None if user is None else (user, revision)

    async def _count_chats(self, user_id: str) -> tuple[int, int]:
        """Chats that they are about to be in count, too."""
        joining = await self._cassandra.rows(READ_ALL_JOINING, user_id)
        places = await self._cassandra.rows(READ_PLACES, user_id)
        current = {row["chat_id"]: True for row in joining if row["chat_id"] is not None}
        current |= {place["chat_id"]: place["is_unasked"] for place in places if place["has_left"] is False}
        return len(current), sum(map(bool, current.values()))

    async def revision(self, user_id: str) -> str | None:
        row = await self._cassandra.row(READ_REVISION, user_id)
        return None if row is None else row["revision"]

    async def write(self, user_id: str, revision: str | None, *statements: Statement) -> bool:
        """Write to a person's partition and move the revision. False, and nothing, if that is another now."""
        after = self.make_revision()
        batch: list[Statement] = [(MOVE, (after, user_id, revision)), *statements]

        async def is_done() -> bool:
            """False also if another writer has moved it on: then it is decided again, harmlessly."""
            found = await self._cassandra.row(READ_REVISION, user_id, is_serial=True)
            return found is not None and found["revision"] == after

        return (await self._cassandra.resolve(lambda: self._cassandra.cas(*batch), is_done)).is_applied

    async def reserve(self, newcomer: Joiner, chat_id: str, joining: str) -> bool:
        """They will be put into a chat, as was decided; False if something has changed since."""
        row = (newcomer.user_id, chat_id, joining)
        return await self.write(newcomer.user_id, newcomer.revision, (PUT_JOINING, row))

    async def release(self, user_id: str, chat_id: str, joining: str) -> None:
        """They will not."""
        await self._cassandra.cas((END_JOINING, (user_id, chat_id, joining)))

    async def move(self, user_id: str) -> None:
        """Something that decides about their consent was written elsewhere."""
        for _ in range(ATTEMPTS_MAX):
            if await self.write(user_id, await self.revision(user_id)):
                return await self.end_joining(user_id)
        raise StoreUnavailable("this person's relations are being written to by too many at once")

    async def end_joining(self, user_id: str) -> None:
        """Whatever is about to put them into a chat by what was true before fails."""
        rows = await self._cassandra.rows(READ_ALL_JOINING, user_id, is_serial=True)
        for row in rows:
            if row["chat_id"] is not None:  # a partition with a revision alone is a row, too
                await self._states.fence(row["chat_id"], self.make_revision())
                await self._states.load(row["chat_id"])  # what was written before has its effects
                await self.release(user_id, row["chat_id"], row["joining"])
