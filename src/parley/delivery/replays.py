"""Replays of dead letters, and their end after 30 days."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from itertools import groupby

import structlog
from msgspec.structs import replace

from parley import ids
from parley.clock import MS_PER_DAY, Clock, iso
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy, after_failure
from parley.delivery.attempts import FAILED, Attempts, read_wires
from parley.delivery.ports import Channel
from parley.errors import StoreError
from parley.model import AuditRecord
from parley.store.delivery.ports import DeliveryStore
from parley.store.delivery.rows import DeadLetter, DeliveryEvent, LetterStatus, Selection
from parley.store.ports import AuditLog, Log
from parley.telemetry import Metrics

REPLAYS_PER_SECOND_MAX = 200
LANES_AT_ONCE_MAX = 8
"""Recipients and chats whose letters are replayed at the same time."""
LETTERS_PER_ROUND = 50
"""Of each recipient and chat."""
LOOK_SECONDS = 1.0
"""How soon a replay begins that a command asked for."""
COUNT_SECONDS = 5.0
KEEP_DAYS = 30
EXPIRE_SECONDS = 3_600.0
DELIVERED = "replayed"
SERVER = "server"
"""The actor of what the server does by itself."""
GONE = DeliveryFailure(Fault.MALFORMED, "the message is not in the log any more")
NOBODY = DeliveryFailure(
    Fault.NO_RECIPIENT, "the recipient was removed, or wants nothing of this chat any more"
)

log = structlog.get_logger("parley.delivery")


class Replays:
    """Delivers queued dead letters: in the order of each chat, throttled, each marked when it has arrived."""

    def __init__(
        self,
        logs: Log,
        store: DeliveryStore,
        channel: Channel,
        policy: RetryPolicy,
        clock: Clock,
        metrics: Metrics,
        audit: AuditLog,
        make_ids: ids.Ids,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._audit = audit
        self._ids = make_ids
        self._log = logs
        self._letters = store.dead_letters
        self._channel = channel
        self._attempts = Attempts(channel, policy, clock)
        self._policy = policy
        self._clock = clock
        self._metrics = metrics
        self._chance = chance
        self._free_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._replay_regularly())
            tasks.create_task(self._count_regularly())
            tasks.create_task(self._expire_regularly())

    async def _replay_regularly(self) -> None:
        while True:
            try:
                is_more = await self.replay_some()
            except StoreError as error:
                log.warning("dead letters cannot be read", error=str(error))
                is_more = False
            except Exception as error:  # a fault of one letter must not end the replays of all
                log.error("a replay failed", exc_info=error)
                is_more = False
            if not is_more:
                await asyncio.sleep(LOOK_SECONDS)

    async def _count_regularly(self) -> None:
        while True:
            try:
                counts = await self._letters.count(Selection(status=LetterStatus.PENDING))
                self._metrics.dlq_size.set(sum(counts.values()))
            except StoreError as error:
                log.warning("dead letters cannot be counted", error=str(error))
            await asyncio.sleep(COUNT_SECONDS)

    async def _expire_regularly(self) -> None:
        while True:
            try:
                await self.expire()
            except StoreError as error:
                log.warning("dead letters cannot be expired", error=str(error))
            await asyncio.sleep(EXPIRE_SECONDS)

    async def expire(self) -> int:
        """Delete dead letters whose status was set 30 days ago; the audit log says how many."""
        now_ms = self._clock()
        expired = await self._letters.expire(now_ms - KEEP_DAYS * MS_PER_DAY)
        if expired:
            record = AuditRecord(
                audit_id=self._ids.next(ids.AUDIT, now_ms),
                at=iso(now_ms),
                actor=SERVER,
                action="dlq.expire",
                target_id="",
                detail=f"{expired} after {KEEP_DAYS} days",
                outcome="done",
            )
            await self._audit.record(record)
        return expired

    async def replay_some(self) -> bool:
        """A few of every recipient and chat. Returns whether any was replayed."""
        queued = await self._letters.queued(LETTERS_PER_ROUND)
        lanes = groupby(queued, key=lambda letter: (letter.recipient, letter.chat_id))
        room, failing = asyncio.Semaphore(LANES_AT_ONCE_MAX), set[str]()
        work = [self._replay_lane(list(letters), room, failing) for _, letters in lanes]
        done = await asyncio.gather(*work, return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error
        return any(done)

    async def _replay_lane(
        self, letters: Iterable[DeadLetter], room: asyncio.Semaphore, failing: set[str]
    ) -> bool:
        """In order: when one must wait, the others of its chat wait too.

        `failing`: recipients of which one failed in this round. They are left in peace until the next, so
        one that is away in many chats does not delay the others.
        """
        is_any = False
        async with room:
            for letter in letters:
                if letter.due_ms > self._clock() or letter.recipient in failing:
                    break
                await self._throttle()
                is_any = True
                if not await self._replay(letter):
                    failing.add(letter.recipient)
                    break
        return is_any

    async def _throttle(self) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + 1 / REPLAYS_PER_SECOND_MAX
        await asyncio.sleep(self._free_at - now)

    async def _replay(self, letter: DeadLetter) -> bool:
        """Returns whether the next one of its chat may follow."""
        failure = await self._try(letter)
        now_ms = self._clock()
        if failure is None:
            self._metrics.delivery_outcomes.labels("replayed").inc()
            arrived = replace(
                letter,
                status=LetterStatus.REPLAYED,
                is_queued=False,
                last_attempt_ms=now_ms,
                changed_ms=now_ms,
                history=(*letter.history, DeliveryEvent(now_ms, DELIVERED)),
            )
            await self._letters.settle(arrived)
            return True
        event = DeliveryEvent(now_ms, FAILED, failure.fault.value, failure.detail)
        wait_ms = after_failure(failure, letter.retry_count, self._policy, self._chance())
        tried = replace(
            letter,
            error=failure.fault.value,
            detail=failure.detail,
            last_attempt_ms=now_ms,
            crashes=letter.crashes + (failure.fault is Fault.CRASHED),
            history=(*letter.history, event),
        )
        if wait_ms is None:
            await self._letters.settle(replace(tried, is_queued=False, changed_ms=now_ms))
            return True
        due_ms = now_ms + wait_ms
        await self._letters.settle(replace(tried, retry_count=letter.retry_count + 1, due_ms=due_ms))
        return False

    async def _try(self, letter: DeadLetter) -> DeliveryFailure | None:
        if letter.recipient not in await self._channel.recipients(letter.chat_id):
            return NOBODY
        wires, _ = await read_wires(self._log, letter.chat_id, letter.sequence - 1, 1)
        wire = wires.get(letter.sequence)
        if wire is None:
            return GONE
        return await self._attempts.attempt(letter.recipient, wire, letter.crashes, is_replay=True)
