"""What the counter of a chat says, wherever it is kept."""

from __future__ import annotations

from typing import NamedTuple

from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.states import COUNTERS, number
from parley.store.ports import Allocator


class Counter(NamedTuple):
    """`last`: the last number given, None without a counter. `written`: so far, nothing can be missing."""

    last: int | None
    written: int = 0


class Counters:
    """`is_atomic`: nobody but appends moves a counter, so that it never runs ahead of its log."""

    def __init__(self, dynamo: Dynamo, allocator: Allocator | None, is_atomic: bool) -> None:
        self._dynamo = dynamo
        self.allocator = allocator
        self.is_atomic = is_atomic

    async def read(self, chat_id: str) -> Counter:
        """Read strongly."""
        if self.allocator is not None:
            return Counter(await self.allocator.last(chat_id))
        item = await self._dynamo.get(COUNTERS, {"chat_id": chat_id})
        last = item.get("sequence_counter") if item is not None else None
        if item is None or not isinstance(last, int):
            return Counter(None)
        return Counter(last, min(number(item, "written_through"), last))
