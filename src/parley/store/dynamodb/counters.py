"""Reads the counter of a chat, in the table or from the allocator."""

from __future__ import annotations

from typing import NamedTuple

from parley.store.dynamodb.driver import Dynamo, number
from parley.store.dynamodb.schema import COUNTERS
from parley.store.ports import Allocator


class Counter(NamedTuple):
    """`last`: the last number given, None without a counter. `written`: up to here the log has no hole."""

    last: int | None
    written: int = 0


class Counters:
    """`is_atomic`: only appends move a counter, so it never runs ahead of its log."""

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
