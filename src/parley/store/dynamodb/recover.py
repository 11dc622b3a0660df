"""The recovery of a lost counter on DynamoDB, after the sources' procedure.

Look, decide, and if asked to, write and verify. Voids are written first: each is a position of its own that
nobody can write any more. The counter follows under the condition that there is still none, and the
membership gets a new revision with it, so that whoever remembers the chat looks again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence

import structlog

from parley import ids
from parley.clock import Clock, iso
from parley.errors import CounterMissingError
from parley.store.checks import Findings
from parley.store.dynamodb.actions import Update
from parley.store.dynamodb.check import NOT_SHOWN
from parley.store.dynamodb.check_log import LogCheck
from parley.store.dynamodb.client import ConditionFailed, Dynamo, Item, TransactionCanceled
from parley.store.dynamodb.counters import Counters
from parley.store.dynamodb.entries import put_void
from parley.store.dynamodb.fences import UNPUBLISHED_SHARDS, put_if_new
from parley.store.dynamodb.message_ids import tag_of
from parley.store.dynamodb.states import CHATS, COUNTERS, number
from parley.store.dynamodb.together import is_key, repeated, together
from parley.store.dynamodb.traces import Reported, holes, look, reported_in
from parley.store.ports import Allocator
from parley.store.recovery import NoSuchChat, Recovery, check_holes, decide_counter

PUBLISHED_AGAIN = 1_000
"""The mark of the bus is lost with the counter: so many last entries are published once more."""
WRITES_AT_ONCE_MAX = 16

PUT_COUNTER = (
    "SET sequence_counter = :counter, written_through = :counter, epoch = :epoch,"
    " membership_revision = :revision, created_at = if_not_exists(created_at, :now), updated_at = :now,"
    " recovered_at = :now, recovered_from_sequence = :counter,"
    " published_through = :published, unpublished = :shard"
)
NEW_REVISION = "SET membership_revision = :revision"
AUDIT = f"{NEW_REVISION}, recovered_at = :now, recovered_from_sequence = :counter"

log = structlog.get_logger("parley.store")


async def recover(
    dynamo: Dynamo,
    chat_id: str,
    clock: Clock,
    *,
    apply: bool,
    seal_holes: bool = False,
    allocator: Allocator | None = None,
    reported: dict[str, Reported] | None = None,
    random_bits: Callable[[int], int] = secrets.randbits,
) -> Recovery:
    """InconsistentCounterError when the counter is there and behind its log: that needs a person.

    `allocator`: who gives the numbers, if the counters are not in `chat_counters`; one that fell back is
    raised. `reported`: what devices and people have said, if that was looked up for many chats at once.
    """
    room = RecoveryRoom(dynamo, clock, allocator, random_bits)
    if reported is None:
        reported = await reported_in(dynamo, [chat_id])
    recovery = await room.decide(chat_id, reported.get(chat_id, Reported()), seal_holes)
    if apply:
        await room.write(recovery)
        await room.verify(recovery)
    return recovery


class RecoveryRoom:
    def __init__(
        self,
        dynamo: Dynamo,
        clock: Clock,
        allocator: Allocator | None,
        random_bits: Callable[[int], int],
    ) -> None:
        self._dynamo = dynamo
        self._clock = clock
        self._allocator = allocator
        self._random_bits = random_bits
        self._counters = Counters(dynamo, allocator, is_atomic=False)

    async def _chat(self, chat_id: str) -> Item:
        chat = await self._dynamo.get(CHATS, {"chat_id": chat_id}) if is_key(chat_id) else None
        if chat is None:
            raise NoSuchChat(f"there is no chat {chat_id}")
        return chat

    async def decide(self, chat_id: str, reported: Reported, seal_holes: bool) -> Recovery:
        chat = await self._chat(chat_id)
        counter = await self._counters.read(chat_id)
        found = await look(self._dynamo, chat, counter.last, reported)
        should_be, is_lost = decide_counter(found, may_raise=self._allocator is not None)
        voids: list[tuple[int, int]] = []
        if is_lost or seal_holes:
            first = found.trimmed + 1 if seal_holes else found.log_end + 1
            voids = check_holes(await holes(self._dynamo, chat_id, first, should_be))
        return Recovery(found, is_lost, should_be, voids, applied=False)

    # Writing

    async def write(self, recovery: Recovery) -> None:
        chat = await self._chat(recovery.found.chat_id)
        voids = list(_numbers(recovery.voids))
        await together(
            lambda at: self._write_void(recovery.found.chat_id, at, number(chat, "epoch")),
            voids,
            WRITES_AT_ONCE_MAX,
        )
        if recovery.is_lost and self._allocator is not None:
            recovery.counter = await self._allocator.restore(recovery.found.chat_id, recovery.counter)
            await self._update_chat(recovery, AUDIT)
        elif recovery.is_lost:
            await self._put_counter(recovery, number(chat, "epoch"))
        elif recovery.voids and self._allocator is None:
            await self._mark_written(recovery)
        recovery.applied = True

    async def _write_void(self, chat_id: str, sequence: int, epoch: int) -> None:
        void = put_void(chat_id, sequence, epoch)
        await repeated(lambda: put_if_new(self._dynamo, void))

    def _values(self, recovery: Recovery) -> Item:
        now_ms = self._clock()
        return {
            ":counter": recovery.counter,
            ":now": iso(now_ms),
            ":revision": ids.EVENT + ids.ulid(now_ms, self._random_bits(ids.RANDOM_BITS)),
        }

    async def _put_counter(self, recovery: Recovery, epoch: int) -> None:
        chat_id, values = recovery.found.chat_id, self._values(recovery)
        counter = values | {
            ":epoch": epoch,
            ":published": max(0, recovery.counter - PUBLISHED_AGAIN),
            ":shard": tag_of(chat_id) % UNPUBLISHED_SHARDS,
        }
        key: Item = {"chat_id": chat_id}
        actions = [
            Update(COUNTERS, key, PUT_COUNTER, counter, "attribute_not_exists(sequence_counter)"),
            Update(CHATS, key, NEW_REVISION, {":revision": values[":revision"]}, "attribute_exists(chat_id)"),
        ]
        token = f"{self._random_bits(128):032x}"
        try:
            await repeated(lambda: self._dynamo.transact(actions, token))
        except TransactionCanceled as error:
            raise CounterMissingError("the counter came back meanwhile; run this again") from error

    async def _update_chat(self, recovery: Recovery, expression: str) -> None:
        key: Item = {"chat_id": recovery.found.chat_id}
        values = self._values(recovery)
        await repeated(
            lambda: self._dynamo.update(CHATS, key, expression, values, condition="attribute_exists(chat_id)")
        )

    async def _mark_written(self, recovery: Recovery) -> None:
        """Numbers that the counter gave away are voids now: it may be trusted again."""
        key: Item = {"chat_id": recovery.found.chat_id}
        condition = "sequence_counter = :counter AND attribute_exists(written_through)"
        try:
            await repeated(
                lambda: self._dynamo.update(
                    COUNTERS,
                    key,
                    "SET written_through = :counter",
                    {":counter": recovery.counter},
                    condition=condition,
                )
            )
        except ConditionFailed:
            return  # it has moved on, or it is a counter of two_phase, which says nothing of what is written

    # Verifying

    async def verify(self, recovery: Recovery) -> None:
        """Read back what was written, then check the chat's whole log."""
        chat_id, findings = recovery.found.chat_id, Findings(not_shown=NOT_SHOWN)
        counter = await self._counters.read(chat_id)
        if counter.last is None or counter.last < recovery.counter:
            raise CounterMissingError(
                "the counter is gone again after it was written; find out who deletes it"
            )
        check = LogCheck(self._dynamo, self._counters, findings, self._clock)
        await check.check(await self._chat(chat_id), lambda: None)
        recovery.breaches = findings.breaches
        if recovery.is_lost:
            log.warning(
                "Counter recovered",
                chat_id=chat_id,
                recovered_sequence=recovery.counter,
                voids=recovery.void_count,
            )
        elif recovery.voids:
            log.warning("Holes sealed", chat_id=chat_id, voids=recovery.void_count)


def _numbers(stretches: Sequence[tuple[int, int]]) -> Iterator[int]:
    for first, last in stretches:
        yield from range(first, last + 1)
