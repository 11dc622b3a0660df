"""The ports of deliveries in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from parley.core.deliveries import (
    Lane,
    LaneClaim,
)
from tests.memory.tables import Tables


class MemoryLanes:
    def __init__(self, tables: Tables) -> None:
        self._lanes = tables.lanes

    async def extend(
        self, chat_id: str, recipients: Sequence[str], first: int, last: int, claim: LaneClaim | None = None
    ) -> list[Lane]:
        new = []
        for recipient in recipients:
            lane = self._lanes.get((chat_id, recipient))
            if lane is None:
                lane = Lane(chat_id=chat_id, recipient=recipient, next_sequence=first, target=last)
                if claim is not None:
                    lane = replace(lane, claim=claim.token, due_ms=claim.until_ms)
                new.append(lane)
            self._lanes[chat_id, recipient] = replace(lane, target=max(lane.target, last))
        return new

    async def due(self, prefix: str, now_ms: int, limit: int, besides: Collection[str] = ()) -> list[Lane]:
        found = [lane for lane in self._of_kind(prefix) if lane.due_ms <= now_ms]
        found = [lane for lane in found if lane.recipient not in besides]
        return sorted(found, key=lambda lane: (lane.due_ms, lane.chat_id, lane.recipient))[:limit]

    async def next_due(self, prefix: str, after_ms: int) -> int | None:
        later = [lane.due_ms for lane in self._of_kind(prefix) if lane.due_ms > after_ms]
        return min(later, default=None)

    def _of_kind(self, prefix: str) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.recipient.startswith(prefix)]

    async def claim(self, chat_id: str, recipient: str, claim: LaneClaim, now_ms: int) -> Lane | None:
        lane = self._lanes.get((chat_id, recipient))
        if lane is None or lane.due_ms > now_ms:
            return None
        self._lanes[chat_id, recipient] = replace(lane, claim=claim.token, due_ms=claim.until_ms)
        return lane

    async def advance(self, lane: Lane, token: str) -> Lane | None:
        key = (lane.chat_id, lane.recipient)
        stored = self._lanes.get(key)
        if stored is None or stored.claim != token:
            return None
        self._lanes[key] = replace(lane, target=stored.target)
        return self._lanes[key]

    async def finish(self, lane: Lane) -> bool:
        key = (lane.chat_id, lane.recipient)
        stored = self._lanes.get(key)
        if stored is not None and (stored.target > lane.target or stored.claim != lane.claim):
            return False
        self._lanes.pop(key, None)
        return True

    def free(self) -> None:
        """As an engine of one process does it when it opens."""
        for key, lane in self._lanes.items():
            if lane.claim:
                self._lanes[key] = replace(lane, due_ms=0)

    async def forget(self, recipient: str) -> None:
        for key in [key for key in self._lanes if key[1] == recipient]:
            del self._lanes[key]
