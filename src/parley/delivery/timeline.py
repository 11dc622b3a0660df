"""What deliveries know of one message: its retries, and what became of its dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from parley import ids
from parley.core.deliveries import DeliveryEvent, Selection
from parley.core.timeline import ExplainedMessage, Step
from parley.delivery.attempts import DEAD_LETTERED, FAILED
from parley.delivery.ports import DeliveryKind
from parley.delivery.replays import DELIVERED
from parley.delivery.tallies import DISCARD, REPLAY
from parley.model import StepName
from parley.records.deliveries import DeliveryRecords

DEAD_LETTERS_PER_READ = 100
QUEUES_LOOKED_AT_MAX = 1_000
FOREVER_MS = 1 << 62
NAMES = {
    FAILED: StepName.RETRIED,
    DEAD_LETTERED: StepName.DEAD_LETTERED,
    REPLAY: StepName.REPLAYED,
    DELIVERED: StepName.REPLAYED,
    DISCARD: StepName.DISCARDED,
}
"""The step that an event of a delivery is; other events are none."""
SAID = {REPLAY: "replay ordered", DELIVERED: "arrived"}


class DeliverySteps:
    """A source of the timeline."""

    def __init__(self, store: DeliveryRecords, kinds: Sequence[DeliveryKind]) -> None:
        self._store = store
        self._kinds = kinds

    async def steps(self, message: ExplainedMessage, user_ids: Sequence[str]) -> list[Step]:
        return [*await self._of_dead_letters(message), *await self._of_queues(message)]

    async def _of_dead_letters(self, message: ExplainedMessage) -> list[Step]:
        """They sort by the times of their messages, so those of one message are next to each other."""
        first = ids.DEAD_LETTER + ids.ulid(message.created_ms, 0)
        before = ids.DEAD_LETTER + ids.ulid(message.created_ms + 1, 0)
        found: list[Step] = []
        while True:
            dead_letters = await self._store.dead_letters.find(
                Selection(chat_id=message.chat_id), before, DEAD_LETTERS_PER_READ
            )
            for dead_letter in dead_letters:
                if dead_letter.sequence == message.sequence:
                    found += _steps(dead_letter.recipient, dead_letter.history)
            if len(dead_letters) < DEAD_LETTERS_PER_READ or dead_letters[-1].dlq_id < first:
                return found
            before = dead_letters[-1].dlq_id

    async def _of_queues(self, message: ExplainedMessage) -> list[Step]:
        """What is still tried. The attempts of a queue are those of the message in front."""
        return [
            step
            for kind in self._kinds
            for queue in await self._store.queues.due(kind.prefix, FOREVER_MS, QUEUES_LOOKED_AT_MAX)
            if queue.chat_id == message.chat_id and queue.next_sequence == message.sequence
            for step in _steps(queue.recipient, queue.attempts)
        ]


def _steps(recipient: str, history: Sequence[DeliveryEvent]) -> list[Step]:
    """The attempt before a dead letter was not retried: it is told with the dead letter."""
    steps: list[Step] = []
    told = [event for event in history if event.action in NAMES]
    for before, event in zip((None, *told), told, strict=False):
        said = [SAID.get(event.action, ""), event.error, event.detail]
        if event.action == DEAD_LETTERED and before is not None and before.action == FAILED:
            steps.pop()
            said.append(before.detail)
        if event.actor:
            said.append(f"by {event.actor}")
        detail = f"{recipient}: {', '.join(part for part in said if part)}"
        steps.append(Step(event.at_ms, NAMES[event.action], detail=detail))
    return steps
