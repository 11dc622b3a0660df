"""The ports of deliveries in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from msgspec.structs import replace

from parley.store.delivery.rows import DeadLetter, DeliveryEvent, Lane, LetterStatus, Selection, Webhook
from tests.memory.tables import Tables


class MemoryDeliveries:
    def __init__(self, tables: Tables) -> None:
        self.lanes = MemoryLanes(tables)
        self.dead_letters = MemoryDeadLetters(tables)
        self.webhooks = MemoryWebhooks(tables)


class MemoryLanes:
    def __init__(self, tables: Tables) -> None:
        self._lanes = tables.lanes

    async def extend(self, chat_id: str, recipients: Sequence[str], first: int, last: int) -> None:
        for recipient in recipients:
            new = Lane(chat_id=chat_id, recipient=recipient, next_sequence=first, target=last)
            lane = self._lanes.get((chat_id, recipient), new)
            self._lanes[chat_id, recipient] = replace(lane, target=max(lane.target, last))

    async def due(self, now_ms: int, limit: int, besides: Collection[str] = ()) -> list[Lane]:
        found = [lane for lane in self._lanes.values() if lane.due_ms <= now_ms]
        found = [lane for lane in found if lane.recipient not in besides]
        return sorted(found, key=lambda lane: (lane.due_ms, lane.chat_id, lane.recipient))[:limit]

    async def next_due(self, after_ms: int) -> int | None:
        return min((lane.due_ms for lane in self._lanes.values() if lane.due_ms > after_ms), default=None)

    async def advance(self, lane: Lane) -> bool:
        key = (lane.chat_id, lane.recipient)
        if key not in self._lanes:
            return False
        self._lanes[key] = replace(lane, target=max(lane.target, self._lanes[key].target))
        return True

    async def finish(self, chat_id: str, recipient: str, through: int) -> bool:
        lane = self._lanes.get((chat_id, recipient))
        if lane is not None and lane.target > through:
            return False
        self._lanes.pop((chat_id, recipient), None)
        return True

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
            self._letters[letter.dlq_id] = replace(
                letter,
                is_queued=True,
                due_ms=0,
                retry_count=0,
                crashes=0,
                job_id=job_id,
                version=letter.version + 1,
                history=(*letter.history, event),
            )
        return len(found)

    async def discard(self, selection: Selection, job_id: str, event: DeliveryEvent) -> int:
        found = self._pending(selection)
        for letter in found:
            self._letters[letter.dlq_id] = replace(
                letter,
                is_queued=False,
                status=LetterStatus.FAILED,
                changed_ms=event.at_ms,
                job_id=job_id,
                version=letter.version + 1,
                history=(*letter.history, event),
            )
        return len(found)

    async def queued(self, limit: int) -> list[DeadLetter]:
        waiting = [letter for letter in self._letters.values() if letter.is_queued]
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
        return [letter for letter in self._letters.values() if _is_selected(letter, selection)]


class MemoryWebhooks:
    def __init__(self, tables: Tables) -> None:
        self._webhooks = tables.webhooks

    async def add(self, webhook: Webhook) -> None:
        self._webhooks[webhook.webhook_id] = webhook

    async def all(self) -> list[Webhook]:
        return [self._webhooks[webhook_id] for webhook_id in sorted(self._webhooks)]

    async def remove(self, webhook_id: str) -> bool:
        return self._webhooks.pop(webhook_id, None) is not None


def _is_selected(letter: DeadLetter, selection: Selection) -> bool:
    same = [
        (selection.status, letter.status),
        (selection.is_queued, letter.is_queued),
        (selection.error, letter.error),
        (selection.topic, letter.source_topic),
        (selection.chat_id, letter.chat_id),
        (selection.recipient, letter.recipient),
        (selection.job_id, letter.job_id),
    ]
    after, before = selection.after_ms, selection.before_ms
    return (
        all(wanted is None or wanted == found for wanted, found in same)
        and (selection.ids is None or letter.dlq_id in selection.ids)
        and (after is None or letter.dlq_ms >= after)
        and (before is None or letter.dlq_ms < before)
    )
