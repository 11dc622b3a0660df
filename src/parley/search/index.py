"""The index behind searches. It is beside the log: what is lost of it is made again from there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from parley.core.search import HitPlace, IndexBatch


class IndexPosition(Struct, frozen=True):
    """How far the log of a chat is indexed. `at`: the time of its newest message there."""

    epoch: int = 0
    through: int = 0
    at: int = 0


class SearchIndex(Protocol):
    """Texts of messages by chat and position. Everything but `open` may be called at the same time.

    StoreUnavailable when it does not answer. A file that is damaged is replaced by an empty one: from then on
    no chat has a position.
    """

    async def positions(self, chat_ids: Sequence[str] | None = None) -> dict[str, IndexPosition]:
        """How far each of these chats is indexed, or every chat; a chat that is not has none."""
        ...

    async def apply(self, chat_id: str, batch: IndexBatch) -> bool:
        """Change a chat's index. False, and nothing is done, if it is not at `batch.after` of its epoch."""
        ...

    async def reset(self, chat_id: str, epoch: int | None) -> None:
        """Forget a chat, and begin with this epoch at 0; None: it does not belong here any more."""
        ...

    async def collect(self) -> None:
        """Remove what is left of chats that were forgotten when the process died."""
        ...

    async def remove(self, chat_id: str, sequences: Iterable[int]) -> None:
        """Take these messages out. When it returns, their texts are in no file of the index."""
        ...

    async def sequences(self, chat_id: str, after: int, through: int) -> list[int]:
        """The messages in the index in this range, ascending."""
        ...

    async def find(
        self, expression: str, chat_ids: Sequence[str], before: HitPlace | None, limit: int
    ) -> list[HitPlace]:
        """The newest messages of these chats that match, below a place. Refused: it took too long."""
        ...

    async def match(self, expression: str, texts: Sequence[str]) -> list[str | None]:
        """A snippet of each text that matches, None for each other one, by the rules of the index itself."""
        ...
