"""Which recipients fail, as all workers know it: a record of each in the store, none of those that answer."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from parley.clock import Clock
from parley.core.recipient_health import Gate, RecipientHealth, gate_of, with_failure, with_probe
from parley.core.retry import DeliveryFailure, RetryPolicy
from parley.errors import StoreError
from parley.records.book import Book
from parley.telemetry import Metrics

RECIPIENTS_MAX = 1_000
"""More than there can be webhooks."""
CHANGES_TRIED_MAX = 10

log = structlog.get_logger("parley.delivery")


class FailingRecipients:
    """What this worker knows of them. Without a `book` nobody is paused: so it is where recipients are many.

    `refresh_seconds`: how soon it hears what other workers wrote. While the store fails it goes on with what
    it knows.
    """

    def __init__(
        self,
        book: Book[RecipientHealth] | None,
        policy: RetryPolicy,
        clock: Clock,
        metrics: Metrics,
        refresh_seconds: float = math.inf,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._book = book
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._refresh_seconds = refresh_seconds
        self._chance = chance
        self._known: dict[str, RecipientHealth] = {}
        self._changing = asyncio.Lock()
        self._refresh_at = 0.0
        self.arrived_ms: dict[str, int] = {}
        """When something last arrived at a recipient, since this worker began."""

    async def refresh(self) -> None:
        """Read them, unless that was done a short time ago."""
        now = asyncio.get_running_loop().time()
        if self._book is None or now < self._refresh_at:
            return
        async with self._changing:
            found = await self._book.page("", RECIPIENTS_MAX)
            self._known = {health.recipient: health for health in found}
            self._refresh_at = now + self._refresh_seconds
        self._count()

    def health_of(self, recipient: str) -> RecipientHealth | None:
        return self._known.get(recipient)

    def gate(self, recipient: str) -> Gate:
        return gate_of(self._known.get(recipient), self._clock(), self._policy.give_up_ms)

    def paused(self) -> set[str]:
        """Those whose queues stay where they are."""
        return {recipient for recipient in self._known if self.gate(recipient) is Gate.PAUSED}

    def next_probe_ms(self) -> int | None:
        now_ms = self._clock()
        times = [health.paused_until_ms for health in self._known.values() if health.is_paused_everywhere]
        return min((time_ms for time_ms in times if time_ms > now_ms), default=None)

    async def begin_probe(self, recipient: str) -> bool:
        """Whether this worker may try one delivery. Of several at the same time one may."""
        async with self._changing:
            before = self._known.get(recipient)
            if self._book is None or before is None or self.gate(recipient) is not Gate.PROBE:
                return False
            after = self._known[recipient] = with_probe(before, self._clock())
            if not await self._book.swap(before, after):
                self._learn(recipient, await self._book.get(recipient))
                return False
            return True

    async def end_probe(self, recipient: str) -> None:
        """Nothing was sent: another queue may be tried at once."""
        health = self._known.get(recipient)
        if health is not None:
            await self._change(
                recipient, lambda known: replace(known or health, paused_until_ms=self._clock())
            )

    async def failed(
        self, recipient: str, stream_id: str, failure: DeliveryFailure, retry_ms: int, *, is_probe: bool
    ) -> RecipientHealth | None:
        """A delivery has failed as if the recipient were away. Returns what is known of it now."""
        if self._book is None:
            return None
        now_ms, longest_ms, chance = self._clock(), self._policy.longest_ms, self._chance()
        was_paused = recipient in self._known and self._known[recipient].is_paused

        def after(known: RecipientHealth | None) -> RecipientHealth:
            return with_failure(
                known, recipient, stream_id, failure, retry_ms, now_ms, longest_ms, chance, is_probe=is_probe
            )

        health = await self._change(recipient, after)
        if health.is_paused and not was_paused:
            log.warning("a recipient is paused: it does not answer", recipient=recipient, error=health.error)
        return health

    async def answered(self, recipient: str) -> bool:
        """It works. Returns whether it was paused."""
        if self._book is not None and (recipient in self.arrived_ms or len(self.arrived_ms) < RECIPIENTS_MAX):
            self.arrived_ms[recipient] = self._clock()
        known = self._known.pop(recipient, None)
        if known is None or self._book is None:
            return False
        try:
            await self._book.remove(recipient)
        except StoreError as error:
            log.warning("a recipient still counts as failing", recipient=recipient, error=str(error))
        self._count()
        if known.is_paused:
            log.info("a recipient answers again", recipient=recipient)
        return known.is_paused

    async def _change(
        self, recipient: str, change: Callable[[RecipientHealth | None], RecipientHealth]
    ) -> RecipientHealth:
        assert self._book is not None
        async with self._changing:
            known = self._known.get(recipient)
            after = change(known)
            try:
                for _ in range(CHANGES_TRIED_MAX):
                    after = change(known)
                    if known is None:
                        known = await self._book.add(after)
                        is_done = known == after
                    else:
                        is_done = await self._book.swap(known, after)
                        known = after if is_done else await self._book.get(recipient)
                    if is_done:
                        break
            except StoreError as error:
                log.warning("a failing recipient is not noted", recipient=recipient, error=str(error))
            self._known[recipient] = after
        self._count()
        return after

    def _learn(self, recipient: str, health: RecipientHealth | None) -> None:
        if health is None:
            self._known.pop(recipient, None)
        else:
            self._known[recipient] = health

    def _count(self) -> None:
        self._metrics.webhooks_paused.set(sum(health.is_paused for health in self._known.values()))
