"""Replays of dead letters."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from itertools import groupby

import structlog
from msgspec.structs import replace

from parley.clock import Clock
from parley.core.deliveries import DeadLetter, DeadLetterStatus, DeliveryEvent, with_events
from parley.core.retry import DeliveryFailure, Fault, RetryPolicy
from parley.delivery.attempts import Attempts, begun, poison, without_begun
from parley.delivery.ports import Channel, DeliveryKind, Source
from parley.errors import StoreError
from parley.records.deliveries import DeliveryRecords
from parley.telemetry import Metrics

REPLAYS_PER_SECOND_MAX = 200
QUEUES_AT_ONCE_MAX = 8
"""Recipients and chats whose dead letters are replayed at the same time."""
DEAD_LETTERS_PER_ROUND = 50
"""Of each recipient and chat."""
LOOK_SECONDS = 1.0
"""How soon a replay begins that a command asked for."""
DEATHS_MAX = 2
"""Processes that died over a dead letter, beside the first, of which nobody knows what it died over."""
DELIVERED = "replayed"
GONE = DeliveryFailure(Fault.MALFORMED, "the message is not in the log any more")
NOBODY = DeliveryFailure(
    Fault.NO_RECIPIENT, "the recipient was removed, or wants nothing of this chat any more"
)

log = structlog.get_logger("parley.delivery")


class Replays:
    """Delivers queued dead letters: in the order of each chat, throttled, each marked when it has arrived.

    One process of a cluster does it at a time. `holder` names it. A dead letter that may have killed the
    process before this one is noted before it is tried. If more die over it, it is pending again, as poison.
    """

    def __init__(
        self,
        *,
        kind: DeliveryKind,
        source: Source,
        store: DeliveryRecords,
        channel: Channel,
        policy: RetryPolicy,
        clock: Clock,
        metrics: Metrics,
        holder: str,
        look_seconds: float = LOOK_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._kind = kind
        self._source = source
        self._dead_letters = store.dead_letters
        self._channel = channel
        self._attempts = Attempts(policy, clock, holder, chance)
        self._clock = clock
        self._metrics = metrics
        self._look_seconds = look_seconds
        self._free_at = 0.0
        self._is_first_round = True
        self._one_suspect = asyncio.Lock()

    async def run(self) -> None:
        """Until cancelled."""
        self._is_first_round = True
        while True:
            try:
                is_more = await self.replay_some()
            except StoreError as error:
                log.warning("dead letters cannot be read", error=str(error))
                is_more = False
            except Exception as error:  # a fault of one dead letter must not end the replays of all
                log.error("a replay failed", exc_info=error)
                is_more = False
            if not is_more:
                await asyncio.sleep(self._look_seconds)

    async def replay_some(self) -> bool:
        """A few of every recipient and chat. Returns whether any was replayed."""
        queued = await self._dead_letters.queued(self._kind.prefix, DEAD_LETTERS_PER_ROUND)
        queues = groupby(queued, key=lambda dead_letter: (dead_letter.recipient, dead_letter.chat_id))
        room, failing = asyncio.Semaphore(QUEUES_AT_ONCE_MAX), set[str]()
        work = [self._replay_queue(list(dead_letters), room, failing) for _, dead_letters in queues]
        done = await asyncio.gather(*work, return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error
        self._is_first_round = False
        return any(done)

    async def _replay_queue(
        self, dead_letters: Iterable[DeadLetter], room: asyncio.Semaphore, failing: set[str]
    ) -> bool:
        """In order: when one must wait, the others of its chat wait too.

        `failing`: recipients of which one failed in this round. They are left in peace until the next, so
        one that is away in many chats does not delay the others.
        """
        is_any = False
        async with room:
            for place, dead_letter in enumerate(dead_letters):
                if dead_letter.due_ms > self._clock() or dead_letter.recipient in failing:
                    break
                await self._throttle()
                is_any = True
                is_suspect = dead_letter.error == Fault.POISON or (self._is_first_round and not place)
                replay = self._replay_suspect if is_suspect else self._replay
                if not await replay(dead_letter):
                    failing.add(dead_letter.recipient)
                    break
        return is_any

    async def _throttle(self) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + 1 / REPLAYS_PER_SECOND_MAX
        await asyncio.sleep(self._free_at - now)

    async def _replay_suspect(self, dead_letter: DeadLetter) -> bool:
        """A dead letter that is known to kill, or was in front when another process ended.

        The first time several may be tried at once; those that were when that process died too, one by one.
        """
        is_poison = dead_letter.error == Fault.POISON
        failure = poison(dead_letter.history, 1 if is_poison else DEATHS_MAX)
        if failure is not None:
            return await self._settle(dead_letter, failure)
        async with self._one_suspect if is_poison or begun(dead_letter.history) else contextlib.nullcontext():
            dead_letter = replace(dead_letter, history=self._attempts.begun(dead_letter.history))
            if not await self._dead_letters.settle(dead_letter):
                return True  # somebody was faster
            return await self._replay(replace(dead_letter, version=dead_letter.version + 1))

    async def _replay(self, dead_letter: DeadLetter) -> bool:
        """Returns whether the next one of its chat may follow."""
        return await self._settle(dead_letter, await self._try(dead_letter))

    async def _settle(self, dead_letter: DeadLetter, failure: DeliveryFailure | None) -> bool:
        now_ms = self._clock()
        if failure is None:
            self._metrics.delivery_outcomes.labels("replayed").inc()
            arrived = replace(
                dead_letter,
                status=DeadLetterStatus.REPLAYED,
                is_queued=False,
                last_attempt_ms=now_ms,
                changed_ms=now_ms,
                history=with_events(without_begun(dead_letter.history), DeliveryEvent(now_ms, DELIVERED)),
            )
            await self._dead_letters.settle(arrived)
            return True
        failed = self._attempts.failed(
            failure, dead_letter.history, retry_count=dead_letter.retry_count, crashes=dead_letter.crashes
        )
        tried = replace(
            dead_letter,
            error=failure.fault.value,
            detail=failure.detail,
            last_attempt_ms=now_ms,
            crashes=failed.crashes,
            history=failed.history,
        )
        if failed.wait_ms is None:
            await self._dead_letters.settle(replace(tried, is_queued=False, changed_ms=now_ms))
            return True
        due_ms = now_ms + failed.wait_ms
        await self._dead_letters.settle(
            replace(tried, retry_count=dead_letter.retry_count + 1, due_ms=due_ms)
        )
        return False

    async def _try(self, dead_letter: DeadLetter) -> DeliveryFailure | None:
        recipient = await self._channel.recipient(dead_letter.recipient, dead_letter.chat_id)
        if recipient is None:
            return NOBODY
        wires, _ = await self._source.read(dead_letter.chat_id, dead_letter.sequence - 1, 1)
        wire = wires.get(dead_letter.sequence)
        if wire is None:
            return GONE
        return (
            await self._attempts.attempt(
                recipient, dead_letter.recipient, wire, dead_letter.crashes, is_replay=True
            )
        ).failure
