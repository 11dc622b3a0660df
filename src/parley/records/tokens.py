"""The tokens of programs, and whose account belongs to a person of another system."""

from __future__ import annotations

from parley.model import ApiToken, ExternalId
from parley.records.book import Book
from parley.store.ports import Records
from parley.store.tables import API_TOKENS, EXTERNAL_IDS, alone, listed


class ApiTokens(Book[ApiToken]):
    """There are few of them."""

    def __init__(self, records: Records) -> None:
        super().__init__(records, API_TOKENS)

    async def note_used(self, token_id: str, now_ms: int) -> None:
        """It was used then, durably. Never moves back, and brings no removed token back."""
        await self._records.raise_to(API_TOKENS, listed(token_id), now_ms)


class ExternalIds:
    """Each is written once, and never changed."""

    def __init__(self, records: Records) -> None:
        self._ids = Book(records, EXTERNAL_IDS, at=alone)

    async def claim(self, key: str, user_id: str) -> str:
        """Durable before it returns. The user id that this key belongs to: the first that was ever given."""
        return (await self._ids.add(ExternalId(key, user_id))).user_id

    async def find(self, key: str) -> str | None:
        """The user id that this key belongs to. The account itself may not have been added."""
        found = await self._ids.get(key)
        return None if found is None else found.user_id
