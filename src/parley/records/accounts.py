"""People: each in one record, found by id, and by a username that is taken once.

A name and the account that has it are two partitions, so no commit writes both. Whoever takes a name writes
the whole account into the record of the name first; then the account itself; then the name alone. So an
account exists once its name is taken, all or nothing: whoever finds a name that is not finished, because its
node has died, finishes it. Where the id belongs to another account by then, the name is freed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from parley.clock import from_iso
from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.model import AccountState, User
from parley.records.raised import RaisedLater
from parley.store.ports import Directory, Records
from parley.store.tables import (
    OPERATORS,
    PEOPLE,
    USERNAMES,
    Operator,
    PersonRecord,
    PutRecord,
    RemoveRecord,
    TakenName,
    alone,
    listed,
    user_of,
)

ATTEMPTS_MAX = 30
CONTENDED = "this account is being written to by too many at once"


class Accounts:
    def __init__(self, records: Records, directory: Directory, raised: RaisedLater) -> None:
        self._records = records
        self._directory = directory
        self._raised = raised

    async def add_user(self, user: User, password_hash: str) -> bool:
        """Durable before it returns; False, and nothing changes, when the username or the id is taken.

        They are also taken if this user was added before. An addition that was cut short is finished as it
        was begun.
        """
        seen_ms = from_iso(user.last_seen) if user.last_seen is not None else 0
        person = PersonRecord(
            user=replace(user, last_seen=None), password_hash=password_hash, last_seen_ms=seen_ms
        )
        name = TakenName(username=user.username, user_id=user.user_id, person=person)
        try:
            is_taken_by_us = await self._records.commit(USERNAMES, [PutRecord(name, before=None)])
        except OutcomeUnknown:
            found = await self._name(user.username)
            if found is None:
                raise
            is_taken_by_us = found == name
        if is_taken_by_us:
            await self._finish(name, person)
            return await self._has(user.user_id, user.username)
        found = await self._name(user.username)
        if found is None or found.person is None:
            return False
        return await self._finish(found, found.person) and found.user_id == user.user_id

    async def _finish(self, name: TakenName, person: PersonRecord) -> bool:
        """Write the account of somebody who has taken a name. Returns whether this call has."""
        is_written = await self._records.commit(PEOPLE, [PutRecord(person, before=None)])
        if not is_written and not await self._has(name.user_id, name.username):
            await self._records.commit(USERNAMES, [RemoveRecord(USERNAMES.key(name), before=name)])
            return False
        await self.list_operator(person.user)
        alone_now = TakenName(username=name.username, user_id=name.user_id)
        await self._records.commit(USERNAMES, [PutRecord(alone_now, before=name)])
        return is_written

    async def _has(self, user_id: str, username: str) -> bool:
        person = await self.person(user_id)
        return person is not None and person.user.username == username

    async def _name(self, username: str) -> TakenName | None:
        (found,) = await self._records.get(USERNAMES, [alone(username)])
        return found

    async def person(self, user_id: str) -> PersonRecord | None:
        """All that is kept of a person."""
        (found,) = await self._records.get(PEOPLE, [alone(user_id)])
        return found

    async def user(self, user_id: str) -> User | None:
        """A person by id."""
        found = await self.person(user_id)
        return user_of(found) if found is not None else None

    async def user_by_name(self, username: str) -> tuple[User, str] | None:
        """A person by exact username, with the password's hash."""
        name = await self._name(username)
        if name is None:
            return None
        if name.person is not None:
            await self._finish(name, name.person)
        found = await self.person(name.user_id)
        if found is None or found.user.username != username:
            return None
        return user_of(found), found.password_hash

    async def profiles(self, user_ids: Sequence[str]) -> dict[str, User]:
        """The profiles of these people, for those who exist."""
        asked = list(dict.fromkeys(user_ids))
        found = await self._records.get(PEOPLE, [alone(user_id) for user_id in asked])
        return {one.user.user_id: user_of(one) for one in found if one is not None}

    async def update_user(self, user: User, password_hash: str | None = None) -> None:
        """Replace what a person may change, and the hash only if one is given.

        Keeps `last_seen`, `state` and `external_id`. A deleted account stays as it is.
        """

        for _ in range(ATTEMPTS_MAX):
            before = await self.person(user.user_id)
            if before is None or before.user.state is AccountState.DELETED:
                return
            if before.user.is_operator and not user.is_operator:
                await self.unlist_operator(user.user_id)
            after = replace(
                user,
                username=before.user.username,
                created_at=before.user.created_at,
                last_seen=None,
                state=before.user.state,
                external_id=before.user.external_id,
            )
            kept_hash = before.password_hash if password_hash is None else password_hash
            if await self.swap(before, replace(before, user=after, password_hash=kept_hash)):
                await self.list_operator(after)
                if before.user.who_may_add is not after.who_may_add:
                    await self._directory.fence(user.user_id, [])
                return
        raise StoreUnavailable(CONTENDED)

    async def swap(self, before: PersonRecord, after: PersonRecord) -> bool:
        """Replace a person, durably; False, and nothing changes, if they are not `before` any more."""
        if after == before:
            return True
        return await self._records.commit(PEOPLE, [PutRecord(replace(after, last_seen_ms=0), before=before)])

    async def free_name(self, username: str, user_id: str) -> None:
        """Others may take it, if this person has it."""
        name = await self._name(username)
        if name is not None and name.user_id == user_id:
            await self._records.commit(USERNAMES, [RemoveRecord(alone(username), before=name)])

    async def take_name(self, username: str, user_id: str) -> None:
        """One that nobody else can have."""
        name = TakenName(username=username, user_id=user_id)
        await self._records.commit(USERNAMES, [PutRecord(name)])

    # Who is an active operator: in one list, so that the last one is known

    async def list_operator(self, user: User) -> None:
        """An operator is on the list while their account is active, and nobody else is.

        A person goes from the list before they are no operator, and comes to it after they are one.
        """
        if not user.is_operator or user.state is not AccountState.ACTIVE:
            return
        operator = Operator(user_id=user.user_id)
        await self._records.commit(OPERATORS, [PutRecord(operator, before=None)])
        person = await self.person(user.user_id)  # it may have changed since
        if person is None or not person.user.is_operator or person.user.state is not AccountState.ACTIVE:
            await self.unlist_operator(user.user_id)

    async def unlist_operator(self, user_id: str) -> None:
        (found,) = await self._records.get(OPERATORS, [listed(user_id)])
        if found is not None:
            await self._records.commit(OPERATORS, [RemoveRecord(listed(user_id), before=found)])

    def note_seen(self, user_id: str, now_ms: int) -> None:
        """A person was online then; durable a moment later."""
        self._raised.note(PEOPLE, alone(user_id), now_ms)
