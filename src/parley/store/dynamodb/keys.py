"""Idempotency keys: looked up, and written outside the transactions of large batches.

In a transaction a key costs two write units, and one outside. In `atomic` the head orders all writers, so a
large batch looks its ids up before its transaction and writes their keys after it. Meanwhile the counter says
after which position keys may be missing (`keys_through`; without it, none are). Whoever appends from such a
counter, or looks for an id and does not find it, first writes the missing keys, from the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from parley import ids
from parley.clock import Clock
from parley.errors import StoreUnavailable
from parley.store.dynamodb.bundles import bundle_across, last_position, positions_in, unbundled
from parley.store.dynamodb.chat_state import LOOK_AGAIN_SECONDS, UNKEYED_MAX, unkeyed_in
from parley.store.dynamodb.driver import Dynamo, Item, number, retry_unknown
from parley.store.dynamodb.entries import entry_in, is_live, key_item, key_text, sequence_of
from parley.store.dynamodb.schema import CHATS, COUNTERS, KEYS, MESSAGES


class IdempotencyKeys:
    """`is_atomic`: large batches write their keys late, and every chat has its counter in the tables."""

    def __init__(self, dynamo: Dynamo, clock: Clock, is_atomic: bool) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self.is_atomic = is_atomic

    async def find(self, chat_id: str, keys: Iterable[bytes]) -> dict[bytes, Item]:
        """Those that are written and still count, read strongly in one request."""
        by_name = {key_text(key): key for key in keys}
        found = await self._read(chat_id, by_name)
        return {by_name[name]: item for name, item in found.items()}

    async def find_stored(self, chat_id: str, keys: Iterable[bytes]) -> dict[bytes, Item]:
        """The same for every message that is in the log, also if its key was missing."""
        wanted = set(keys)
        found = await self.find(chat_id, wanted)
        absent = wanted - found.keys()
        if absent:
            await self.catch_up(chat_id)
            found |= await self.find(chat_id, absent)  # whoever wrote them: the first look may be too old
        return found

    async def catch_up(self, chat_id: str) -> None:
        """Write every key that is missing by now: what is in the log is found after it."""
        await self.complete(chat_id, await self._unkeyed(chat_id))

    async def complete(self, chat_id: str, positions: range) -> None:
        """Write the keys that are missing of these positions."""
        if not positions:
            return
        now_ms = self._clock()
        keys = {
            cast(str, key["client_message_id"]): key
            for key in _keys_in(await self._items(chat_id, positions))
            if is_live(key, now_ms)
        }
        there = await self._read(chat_id, keys)
        await self.write([key for name, key in keys.items() if name not in there])

    async def write(self, keys: Sequence[Item]) -> None:
        """Durable when it returns. Keys of one entry are all the same: to write one again changes nothing.

        Except after its time, when another message may have the id: a writer that slept so long writes none.
        """
        live = [key for key in keys if is_live(key, self._clock())]
        await retry_unknown(lambda: self._dynamo.batch_put(KEYS, live))

    async def _read(self, chat_id: str, names: Iterable[str]) -> dict[str, Item]:
        places: list[Item] = [{"chat_id": chat_id, "client_message_id": name} for name in sorted(names)]
        return {
            cast(str, item["client_message_id"]): item
            for item in await self._dynamo.batch_get(KEYS, places)
            if is_live(item, self._clock())
        }

    async def _unkeyed(self, chat_id: str) -> range:
        """The positions whose keys may be missing by now; without a counter the last ones."""
        counter = await self._dynamo.get(COUNTERS, {"chat_id": chat_id}) or {}
        if "sequence_counter" in counter or not self.is_atomic:
            return unkeyed_in(counter)
        last = await last_position(self._dynamo, chat_id)
        return range(max(1, last - UNKEYED_MAX + 1), last + 1)

    async def _items(self, chat_id: str, positions: range) -> list[Item]:
        """The items with these positions, all of them: a page may miss what is just being committed."""
        first, last, missing = positions[0], positions[-1], set(positions)
        for pause in LOOK_AGAIN_SECONDS:
            items = await self._dynamo.query_all(
                MESSAGES,
                "chat_id = :chat AND #s BETWEEN :first AND :last",
                {":chat": chat_id, ":first": first, ":last": last},
                names={"#s": "sequence"},
            )
            if first > 1 and not (items and sequence_of(items[0]) == first):
                bundle = await bundle_across(self._dynamo, chat_id, first)
                items = items if bundle is None else [bundle, *items]
            missing = set(positions).difference(positions_in(items))
            if not missing or max(missing) <= await self._trimmed(chat_id):
                return items
            await asyncio.sleep(pause)
        raise StoreUnavailable(f"{chat_id} has nothing at {min(missing)}")

    async def _trimmed(self, chat_id: str) -> int:
        return number(await self._dynamo.get(CHATS, {"chat_id": chat_id}) or {}, "trimmed_through")


def _keys_in(items: Iterable[Item]) -> Iterator[Item]:
    """The keys of the entries in these items."""
    for item in items:
        for plain in unbundled(item):
            key = ids.client_key(str(plain.get("client_message_id", "")))
            if key is None:
                continue
            try:
                entry = entry_in(plain)
            except KeyError:  # damaged, which `parley check` tells
                continue
            if entry is not None:
                yield key_item(entry, key, sequence_of(item))
