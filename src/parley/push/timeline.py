"""What push knows of one message: the answers of providers, and why a device did not notify."""

from __future__ import annotations

from collections.abc import Sequence

from parley.core.push_devices import NotificationOutcome
from parley.core.timeline import ExplainedMessage, Step
from parley.model import StepName
from parley.records.push import PushOutcomes

NAMES = {
    NotificationOutcome.PUSHED: StepName.PUSHED,
    NotificationOutcome.REFUSED: StepName.PUSH_REFUSED,
    NotificationOutcome.FAILED: StepName.RETRIED,
    NotificationOutcome.SKIPPED: StepName.SKIPPED,
}
"""A notification whose provider has not answered yet is no step."""


class PushSteps:
    """A source of the timeline."""

    def __init__(self, outcomes: PushOutcomes) -> None:
        self._outcomes = outcomes

    async def steps(self, message: ExplainedMessage, user_ids: Sequence[str]) -> list[Step]:
        wanted = set(user_ids)
        return [
            Step(
                one.at_ms,
                NAMES[one.outcome],
                user_id=one.user_id,
                device_id=one.device_id,
                detail=f"{one.provider.value}: {one.detail}",
            )
            for one in await self._outcomes.of_message(message.chat_id, message.sequence)
            if one.user_id in wanted and one.outcome in NAMES
        ]
