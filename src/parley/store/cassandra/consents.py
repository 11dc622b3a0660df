"""What a person says to being put into a chat, and how that is kept until they are in it.

A person's partition of `relations` has a revision. Everything that decides about their consent moves it:
their settings, contacts and blocks, the state of their account, and every chat that they are put into. Who
puts them into one first writes a row `joining` there, on the condition of the revision that was decided by;
then the chat; then the row goes. Whatever takes the consent away moves the revision, so no new row is
written, and gives each chat with a row there a new revision: a write under way fails its condition, and is
decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from parley.concurrency import map_concurrently
from parley.core.consent import ConsentFacts
from parley.core.permissions import JoinFacts
from parley.errors import StoreUnavailable
from parley.model import AccountState, Relation
from parley.store.cassandra.chat_state import ATTEMPTS_MAX, READ_MEMBER, CassandraChatStates
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.connection import Statement
from parley.store.cassandra.effects import END_JOINING, JOINING
from parley.store.cassandra.people import read_people
from parley.store.cassandra.schema import DELIVERY, RELATIONS

PEOPLE_AT_ONCE_MAX = 32
JOINING_SECONDS_MAX = 600
"""No write takes longer. What a node that died has left behind goes by itself."""

READ_REVISION = f"SELECT revision, contacts, blocks FROM {RELATIONS} WHERE user_id = ? LIMIT 1"
READ_ONE = f"SELECT record FROM {RELATIONS} WHERE user_id = ? AND kind = ? AND other_id = ?"
READ_KIND = f"SELECT other_id, record FROM {RELATIONS} WHERE user_id = ? AND kind = ?"
READ_PLACES = f"SELECT chat_id, has_left, is_unasked FROM {DELIVERY} WHERE user_id = ?"
MOVE = f"UPDATE {RELATIONS} SET revision = ? WHERE user_id = ? IF revision = ?"
PUT_JOINING = (
    f"INSERT INTO {RELATIONS} (user_id, kind, other_id, record) VALUES (?, '{JOINING}', ?, ?)"
    f" USING TTL {JOINING_SECONDS_MAX}"
)


class Joiner(NamedTuple):
    """A person who may be added: what they say to it, and as of which revision."""

    user_id: str
    facts: JoinFacts
    """Those about the person, not about the chat."""
    revision: str | None

    @property
    def is_unasked(self) -> bool:
        return not self.facts.consent.is_contact


class Consents:
    """`make_revision`: one that no other write has."""

    def __init__(
        self, cassandra: Cassandra, states: CassandraChatStates, make_revision: Callable[[], str]
    ) -> None:
        self._cassandra = cassandra
        self._states = states
        self.make_revision = make_revision

    async def newcomers(self, actor_id: str, user_ids: Iterable[str]) -> dict[str, Joiner]:
        """Those who exist and are not deleted, in their order."""
        asked = [user_id for user_id in dict.fromkeys(user_ids) if is_key(user_id)]
        found = await map_concurrently(
            lambda user_id: self._newcomer(actor_id, user_id), asked, PEOPLE_AT_ONCE_MAX
        )
        return {one.user_id: one for one in found if one is not None}

    async def _newcomer(self, actor_id: str, user_id: str) -> Joiner | None:
        """The revision is read before what it covers. Chats that they are about to be in count, too."""
        revision = await self.revision(user_id)
        user = (await read_people(self._cassandra, [user_id])).get(user_id)
        if user is None or user.state is AccountState.DELETED:
            return None
        joining = await self._cassandra.rows(READ_KIND, user_id, JOINING)
        places = await self._cassandra.rows(READ_PLACES, user_id)
        current = {place["chat_id"]: place["is_unasked"] for place in places if place["has_left"] is False}
        current = {row["other_id"]: True for row in joining} | current
        consent = ConsentFacts(
            who_may_add=user.who_may_add,
            is_contact=await self.has(user_id, Relation.CONTACT, actor_id),
            has_blocked=await self.has(user_id, Relation.BLOCK, actor_id),
            unasked_chats=sum(map(bool, current.values())),
        )
        is_disabled = user.state is AccountState.DISABLED
        facts = JoinFacts(user_chats=len(current), is_disabled=is_disabled, consent=consent)
        return Joiner(user_id, facts, revision)

    async def revision(self, user_id: str) -> str | None:
        row = await self._cassandra.row(READ_REVISION, user_id)
        return None if row is None else row["revision"]

    async def has(self, user_id: str, relation: Relation, other_id: str) -> bool:
        if not is_key(user_id, other_id):
            return False
        return await self._cassandra.row(READ_ONE, user_id, relation.value, other_id) is not None

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

    async def is_joining(self, user_id: str, chat_id: str) -> bool:
        return await self._cassandra.row(READ_ONE, user_id, JOINING, chat_id, is_serial=True) is not None

    async def has_joined(self, user_id: str, chat_id: str) -> bool:
        """Whether they are in a chat, by now and by all that was committed there."""
        await self._states.load(chat_id)
        row = await self._cassandra.row(READ_MEMBER, chat_id, user_id)
        return row is not None and row["role"] is not None

    async def end_joining(self, user_id: str) -> None:
        """Whatever is about to put them into a chat by what was true before fails."""
        rows = await self._cassandra.rows(READ_KIND, user_id, JOINING, is_serial=True)
        for row in rows:
            await self._states.fence(row["other_id"], self.make_revision())
            await self.release(user_id, row["other_id"], row["record"])
