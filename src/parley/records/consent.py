"""What a person says to others, in one record: their blocks, the invitations that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.errors import StoreUnavailable
from parley.model import PersonConsent
from parley.store.ports import Directory, Records
from parley.store.tables import CONSENTS, PutRecord, RecordChange, RemoveRecord, alone, askable

ATTEMPTS_MAX = 30

Change = Callable[[PersonConsent], PersonConsent]


class Consents:
    def __init__(self, records: Records, directory: Directory) -> None:
        self._records = records
        self._directory = directory

    async def of(self, user_ids: Sequence[str]) -> dict[str, PersonConsent]:
        """Of those of these people who have said anything."""
        found = await self._records.get(CONSENTS, [alone(user_id) for user_id in dict.fromkeys(user_ids)])
        return {one.user_id: one for one in found if one is not None}

    async def of_one(self, user_id: str) -> PersonConsent:
        return (await self.of([user_id])).get(user_id) or PersonConsent(user_id=user_id)

    async def change(self, user_id: str, change: Change) -> tuple[PersonConsent, PersonConsent]:
        """Write what `change` makes of it, durably. Returns it before and after.

        Whoever calls this then calls `Directory.fence`: what was decided by the old one may be under way.
        Before the first that a person says, it is called here: engines ask nothing of who was never fenced.
        """
        nothing = PersonConsent(user_id=user_id)
        for _ in range(ATTEMPTS_MAX):
            stored = (await self.of([user_id])).get(user_id)
            before = stored or nothing
            after = change(before)
            if after == before or not askable(user_id):
                return before, before
            write: RecordChange[PersonConsent] = PutRecord(after, before=stored)
            if after == nothing and stored is not None:
                write = RemoveRecord(alone(user_id), before=stored)
            if stored is None:
                await self._directory.fence(user_id, [])
            if await self._records.commit(CONSENTS, [write]):
                return before, after
        raise StoreUnavailable("this person is being written to by too many at once")
