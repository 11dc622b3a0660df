"""The `Allocator` on the counters in DynamoDB: one UpdateItem adds to a counter and returns it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from parley.clock import Clock, iso
from parley.core.log_limits import LineLimit
from parley.errors import CounterMissingError, InconsistentCounterError, OutcomeUnknown, StoreUnavailable
from parley.store.dynamodb.driver import CONNECTIONS_MAX, ConditionFailed, Dynamo, Item, backoff_seconds
from parley.store.dynamodb.schema import COUNTERS

DEADLINE_SECONDS = 2.5
REQUESTS_AT_ONCE_MAX = 32
assert REQUESTS_AT_ONCE_MAX < CONNECTIONS_MAX, (
    "many chats at once leave connections for the rest of the store"
)

CREATE = "SET sequence_counter = :counter, created_at = if_not_exists(created_at, :now), updated_at = :now"
ALLOCATE = "ADD sequence_counter :count SET updated_at = :now"
RESTORE = f"{CREATE}, recovered_at = :now, recovered_from_sequence = :counter"
IS_MISSING = "attribute_not_exists(sequence_counter)"
IS_NOT_BEHIND = "attribute_exists(sequence_counter) AND sequence_counter >= :floor"

log = structlog.get_logger("parley.sequencing")


class DynamoAllocator:
    """If a response is lost, its numbers are lost too, and the next attempt takes others."""

    def __init__(
        self,
        dynamo: Dynamo,
        *,
        clock: Clock,
        random: Callable[[], float],
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._dynamo = dynamo
        self._deadline_seconds = deadline_seconds
        self._gate = asyncio.Semaphore(REQUESTS_AT_ONCE_MAX)
        self._clock = clock
        self._random = random
        self._lines = LineLimit()

    async def create(self, chat_id: str) -> None:
        try:
            await self._update(chat_id, CREATE, {":counter": 0}, IS_MISSING)
        except ConditionFailed:
            return  # it exists, perhaps from an attempt whose response was lost

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        if count < 1:
            raise ValueError("count must be at least 1")
        try:
            updated = await self._update(chat_id, ALLOCATE, {":count": count, ":floor": floor}, IS_NOT_BEHIND)
        except ConditionFailed as failed:
            counter = _counter_in(failed.item)
            if counter is None:
                raise CounterMissingError(f"{chat_id} has no counter in DynamoDB") from failed
            raise InconsistentCounterError(counter, floor) from failed
        last = _counter_in(updated)
        assert last is not None, "UPDATED_NEW returns what was added to"
        return last

    async def last(self, chat_id: str) -> int | None:
        return _counter_in(await self._dynamo.get(COUNTERS, {"chat_id": chat_id}))

    async def restore(self, chat_id: str, at_least: int) -> int:
        is_lower = f"{IS_MISSING} OR sequence_counter < :counter"
        try:
            await self._update(chat_id, RESTORE, {":counter": at_least}, is_lower)
        except ConditionFailed as failed:
            counter = _counter_in(failed.item)
            assert counter is not None, "the condition holds for a missing counter"
            return counter
        return at_least

    async def close(self) -> None:
        """The client belongs to the store."""

    async def _update(self, chat_id: str, expression: str, values: Item, condition: str) -> Item:
        """Repeat while the outcome is unknown. A gap, which will be sealed, is better than a failed send."""
        values = {**values, ":now": iso(self._clock())}
        failures = 0
        try:
            async with asyncio.timeout(self._deadline_seconds), self._gate:
                while True:
                    try:
                        return await self._dynamo.update(
                            COUNTERS,
                            {"chat_id": chat_id},
                            expression,
                            values,
                            condition=condition,
                            returns="UPDATED_NEW",
                        )
                    except OutcomeUnknown as unknown:
                        failures += 1
                        now = asyncio.get_running_loop().time()
                        if (more := self._lines.admit("allocation repeated", now)) is not None:
                            log.warning("allocation repeated", reason=str(unknown), **more)
                        await asyncio.sleep(backoff_seconds(failures, self._random()))
        except TimeoutError as late:
            raise StoreUnavailable(f"DynamoDB gave no answer in {self._deadline_seconds:g} s") from late


def _counter_in(item: Item | None) -> int | None:
    counter = item.get("sequence_counter") if item is not None else None
    return counter if isinstance(counter, int) else None
