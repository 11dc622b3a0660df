"""The ports of deliveries in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from msgspec.structs import replace

from parley.store.delivery.rows import (
    DeadLetter,
    DeliveryEvent,
    Lane,
    LaneClaim,
    LetterStatus,
    Selection,
    discarded_letter,
    is_selected,
    queued_letter,
)
from tests.memory.tables import Tables


class MemoryDeliveries:
    def __init__(self, tables: Tables) -> None:
        self.lanes = MemoryLanes(tables)
        self.dead_letters = MemoryDeadLetters(tables)


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


class MemoryDeadLetters:
    def __init__(self, tables: Tables) -> None:
        self._letters = tables.dead_letters

    async def add(self, letter: DeadLetter) -> bool:
        return self._letters.setdefault(letter.dlq_id, letter) is letter

    async def find(self, selection: Selection, before_id: str, limit: int) -> list[DeadLetter]:
        found = [letter for letter in self._selected(selection) if not before_id or letter.dlq_id < before_id]
        return sorted(found, key=lambda letter: letter.dlq_id, reverse=True)[:limit]

    async def count(self, selection: Selection) -> dict[str, int]:
        errors = [letter.error for letter in self._selected(selection)]
        return {error: errors.count(error) for error in set(errors)}

    async def queue(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        found = [letter for letter in self._pending(selection) if not letter.is_queued]
        for letter in found:
            self._letters[letter.dlq_id] = queued_letter(letter, job_id, event)
        return len(found)

    async def discard(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        found = self._pending(selection)
        for letter in found:
            self._letters[letter.dlq_id] = discarded_letter(letter, job_id, event)
        return len(found)

    async def queued(self, prefix: str, limit: int) -> list[DeadLetter]:
        waiting = [letter for letter in self._letters.values() if letter.is_queued]
        waiting = [letter for letter in waiting if letter.recipient.startswith(prefix)]
        waiting.sort(key=lambda letter: (letter.recipient, letter.chat_id, letter.sequence))
        lanes = groupby(waiting, key=lambda letter: (letter.recipient, letter.chat_id))
        return [letter for _, lane in lanes for letter in list(lane)[:limit]]

    async def settle(self, letter: DeadLetter) -> bool:
        stored = self._letters.get(letter.dlq_id)
        if stored is None or stored.version != letter.version:
            return False
        self._letters[letter.dlq_id] = replace(letter, version=letter.version + 1)
        return True

    async def expire(self, before_ms: int) -> int:
        old = [a for a in self._letters.values() if a.changed_ms < before_ms and not a.is_queued]
        for letter in old:
            del self._letters[letter.dlq_id]
        return len(old)

    def _pending(self, selection: Selection) -> list[DeadLetter]:
        return [a for a in self._selected(selection) if a.status is LetterStatus.PENDING]

    def _selected(self, selection: Selection) -> list[DeadLetter]:
        return [letter for letter in self._letters.values() if is_selected(letter, selection)]
