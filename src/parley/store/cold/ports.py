"""What an engine must add for a cold tier, and to remove bodies for good. See docs/cold-tier.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from parley.store.rows import ArchiveMark


class ColdTier(Protocol):
    """What an engine keeps of entries that are archived, and how it lets go of them. See docs/cold-tier.md.

    Positions up to a chat's `trimmed_through` are in the cold tier alone. There the engine's `Log` reads
    nothing (EntriesTrimmed), and no append, no seal and no repair writes anything, however late it comes.
    The head, its counter and recovery count them as entries. For as long as idempotency keys live, an id
    whose entry was trimmed is answered as before.
    """

    async def marks(self, chat_ids: Sequence[str]) -> dict[str, ArchiveMark]:
        """Those of the chats that exist, read strongly."""
        ...

    async def record(self, chat_id: str, mark: ArchiveMark) -> bool:
        """Replace the mark, durable before it returns; what was trimmed stays as it is.

        False, and nothing is written, unless the stored version is the one before: another archiver won.
        """
        ...

    async def needed_from(self, chat_id: str) -> int:
        """The lowest position that a consumer has not done: of a feed, of the bus, of deliveries and push.

        Above every sequence if there is none.
        """
        ...

    async def trim(self, chat_id: str, through: int) -> None:
        """Remove the positions up to here; the mark first. Durable before it returns. May be repeated.

        Nothing happens unless the log is archived that far.
        """
        ...

    async def redact(self, chat_id: str, entries: Mapping[int, bytes]) -> None:
        """Replace the JSON of these entries, which are in the engine, and nothing else of them.

        Durable before it returns. Positions that are void, or that it does not hold any more, are left out;
        those that it still holds below its mark, beside later ones, are replaced. May be repeated.
        """
        ...

    async def scrub(self) -> None:
        """What was trimmed or redacted before the call is in no file of the engine when it returns."""
        ...


class ColdStore(Protocol):
    """The ports of an engine that may let go of entries."""

    @property
    def cold_tier(self) -> ColdTier | None:
        """None: entries stay in this engine for ever."""
        ...
