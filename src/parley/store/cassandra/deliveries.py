"""The ports of deliveries on Cassandra: lanes, dead letters, webhooks.

Each row is one record, and every change of one compares it as a whole.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from parley.concurrency import map_concurrently
from parley.core.deliveries import (
    Lane,
    LaneClaim,
)
from parley.store.cassandra.client import Cassandra
from parley.store.cassandra.json_rows import JsonRows
from parley.store.cassandra.schema import LANES

SHARDS = 16
WRITES_AT_ONCE_MAX = 16


class CassandraLanes:
    """In shards by a hash of their chat, each sorted by recipient."""

    def __init__(self, cassandra: Cassandra) -> None:
        self._lanes = JsonRows(cassandra, LANES, ("shard_no", "recipient", "chat_id"), Lane)

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: LaneClaim | None = None
    ) -> list[Lane]:
        token, due_ms = (claim.token, claim.until_ms) if claim is not None else ("", 0)

        async def extend_one(recipient: str) -> Lane | None:
            new = Lane(
                chat_id=chat_id,
                recipient=recipient,
                next_sequence=first,
                target=last,
                due_ms=due_ms,
                claim=token,
            )

            def raised(lane: Lane | None) -> Lane:
                return new if lane is None else replace(lane, target=max(lane.target, last))

            after = await self._lanes.change(*_lane_key(chat_id, recipient), change=raised)
            return after if after == new else None

        found = await map_concurrently(extend_one, recipients, WRITES_AT_ONCE_MAX)
        return [lane for lane in found if lane is not None]

    async def due(self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()) -> list[Lane]:
        found = [lane for lane in await self._of_kind(prefix) if lane.due_ms <= now_ms]
        found = [lane for lane in found if lane.recipient not in besides]
        return sorted(found, key=lambda lane: (lane.due_ms, lane.chat_id, lane.recipient))[:limit]

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        later = [lane.due_ms for lane in await self._of_kind(prefix) if lane.due_ms > after_ms]
        return min(later, default=None)

    async def _of_kind(self, prefix: str) -> list[Lane]:
        shards = await asyncio.gather(*(self._lanes.all(shard) for shard in range(SHARDS)))
        return [lane for lanes in shards for lane in lanes if lane.recipient.startswith(prefix)]

    async def of_chat(self, chat_id: str) -> list[Lane]:
        return [lane for lane in await self._lanes.all(_shard_of(chat_id)) if lane.chat_id == chat_id]

    async def put(self, lane: Lane) -> None:
        """As it is, whatever is there."""
        await self._lanes.change(*_lane_key(lane.chat_id, lane.recipient), change=lambda _: lane)

    async def claim(self, chat_id: str, recipient: str, claim: LaneClaim, now_ms: int) -> Lane | None:
        before = await self._lanes.get(*_lane_key(chat_id, recipient))
        if before is None or before.due_ms > now_ms:
            return None
        after = replace(before, claim=claim.token, due_ms=claim.until_ms)
        is_done = await self._lanes.swap(*_lane_key(chat_id, recipient), before=before, after=after)
        return before if is_done else await self._claim_again(chat_id, recipient, claim, now_ms, before)

    async def _claim_again(
        self, chat_id: str, recipient: str, claim: LaneClaim, now_ms: int, before: Lane
    ) -> Lane | None:
        """Another claim was faster; or the target has risen, which does not matter."""
        now = await self._lanes.get(*_lane_key(chat_id, recipient))
        if now is None or now.claim != before.claim:
            return None
        return await self.claim(chat_id, recipient, claim, now_ms)

    async def advance(self, lane: Lane, token: str) -> Lane | None:
        def advanced(stored: Lane | None) -> Lane | None:
            if stored is None:
                return None
            after = replace(lane, target=stored.target)
            return after if stored.claim == token or stored == after else None

        return await self._lanes.change(*_lane_key(lane.chat_id, lane.recipient), change=advanced)

    async def finish(self, lane: Lane) -> bool:
        key = _lane_key(lane.chat_id, lane.recipient)
        while True:
            stored = await self._lanes.get(*key)
            if stored is None:
                return True
            if stored.target > lane.target or stored.claim != lane.claim:
                return False
            if await self._lanes.swap(*key, before=stored, after=None):
                return True

    async def forget(self, recipient: str) -> None:
        for lane in await self._of_kind(recipient):
            key = _lane_key(lane.chat_id, lane.recipient)
            stored: Lane | None = lane if lane.recipient == recipient else None
            while stored is not None and not await self._lanes.swap(*key, before=stored, after=None):
                stored = await self._lanes.get(*key)


def _lane_key(chat_id: str, recipient: str) -> tuple[int, str, str]:
    return _shard_of(chat_id), recipient, chat_id


def _shard_of(name: str) -> int:
    return zlib.crc32(name.encode()) % SHARDS
