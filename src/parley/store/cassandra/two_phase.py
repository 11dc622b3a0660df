"""Sequencing `two_phase`: numbers are taken first, from any allocator, and written at second.

The conditional batch that writes them compares the revision of the membership, and each position and each
key must be new. A change of the membership comes after everything that was written before it. An ack is
given when its position is visible: when every number below it is written or sealed.

A number is written into the open bucket only. One that belongs to the next bucket waits until this one is
full, that is until all its numbers are resolved; then whoever comes first opens the next.
"""

from __future__ import annotations

import asyncio

from parley.errors import (
    OutcomeUnknown,
    Refusal,
    StoreUnavailable,
)
from parley.model import AccountState, StoredEntry
from parley.store.cassandra.append import AppendPlan, AppendPlanner, CassandraAppend
from parley.store.cassandra.batches import ChatBatches, Withdrawn
from parley.store.cassandra.chat_state import CassandraChatState
from parley.store.cassandra.prefixes import CassandraPrefixes
from parley.store.chat_append import Attempt, is_restricted
from parley.store.log_telemetry import log_races
from parley.store.ports import Allocator
from parley.store.two_phase import (
    ROUNDS_MAX,
    VISIBLE_LOOK_SECONDS,
    VISIBLE_LOOK_SECONDS_MAX,
    FaultPoint,
    allocate,
    seal_given_up,
    taken,
    write_visibly,
)
from parley.telemetry import Metrics

CassandraAttempt = Attempt[AppendPlan]


class CassandraTwoPhaseAppends:
    def __init__(
        self,
        *,
        planner: AppendPlanner,
        batches: ChatBatches,
        allocator: Allocator,
        prefixes: CassandraPrefixes,
        metrics: Metrics,
        fault_point: FaultPoint,
        append_seconds: float,
    ) -> None:
        self._planner = planner
        self._states = planner.states
        self._batches = batches
        self._allocator = allocator
        self._prefixes = prefixes
        self._metrics = metrics
        self._fault_point = fault_point
        self._append_seconds = append_seconds

    async def append(self, append: CassandraAppend, state: CassandraChatState) -> None:
        give_up_at = asyncio.get_running_loop().time() + self._append_seconds

        async def write() -> None:
            await self._write_all(append, state, give_up_at)

        await write_visibly(write, self._prefixes, append, state, give_up_at)

    async def _write_all(self, append: CassandraAppend, state: CassandraChatState, give_up_at: float) -> None:
        """Each run of drafts takes its numbers, and again if they were sealed."""
        for _ in range(ROUNDS_MAX + len(append.drafts)):
            if not append.todo:
                return
            plan = await self._planner.plan(append, state, in_bucket=False)
            assert plan is not None, "numbers need not be in the open bucket"
            if plan.indices:
                await self._allocate_and_write(append, state, plan, give_up_at)
            else:
                append.settle(state, plan.twins)
        if append.todo:
            raise StoreUnavailable("its numbers were sealed too often")

    async def _allocate_and_write(
        self, append: CassandraAppend, state: CassandraChatState, plan: AppendPlan, give_up_at: float
    ) -> None:
        numbers = await self._allocate(state, len(plan.indices))
        if isinstance(numbers, Refusal):  # decide again: some of them may be retries after all
            append.trouble = numbers
            append.put_back([*plan.indices, *(twin.index for twin in plan.twins)])
            return
        drafts = [append.drafts[index] for index in plan.indices]
        async with taken(numbers, self._prefixes, state, drafts, self._fault_point):
            for part in self._parts(append, state, plan, numbers):
                await self._write(append, state, part, give_up_at)

    async def _allocate(self, state: CassandraChatState, count: int) -> list[int] | Refusal:
        async def read_end() -> int:
            await self._states.refresh_fence(state)
            return await self._states.last_position(state)

        return await allocate(self._allocator, self._metrics, state, count, read_end)

    def _parts(
        self, append: CassandraAppend, state: CassandraChatState, plan: AppendPlan, numbers: list[int]
    ) -> list[CassandraAttempt]:
        """Those of each bucket are written together, with the drafts that depend on them."""
        by_bucket: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            by_bucket.setdefault(self._states.bucket_of(number), []).append(place)
        parts = []
        for places in by_bucket.values():
            indices = [plan.indices[place] for place in places]
            twins = [twin for twin in plan.twins if twin.first in indices]
            part = AppendPlan(plan.membership, plan.head, plan.bucket, indices, twins, plan.newcomer)
            placed = self._planner.place(append, state, indices, [numbers[place] for place in places])
            parts.append(CassandraAttempt(part, placed))
        return parts

    async def _write(
        self, append: CassandraAppend, state: CassandraChatState, attempt: CassandraAttempt, give_up_at: float
    ) -> None:
        """Until every number is an entry or a void, or was written by another append."""
        for _ in range(ROUNDS_MAX):
            if attempt.placed and attempt.must_be_last and state.head > attempt.last:
                attempt.give_up(append)
            if not attempt.placed:
                await seal_given_up(self._prefixes, append, state, attempt.voids, self._metrics)
                append.settle(state, attempt.plan.twins)
                return
            if not await self._reach_bucket(append, state, attempt, give_up_at):
                continue
            self._fault_point("before_write")
            try:
                is_written = await self._commit(state, attempt)
            except Withdrawn:
                attempt.give_up(append)
                continue
            except OutcomeUnknown:
                append.leave_open(one.index for one in attempt.placed)
                append.settle(state, attempt.plan.twins)
                state.is_stale = True
                raise
            if is_written:
                self._fault_point("after_commit_before_ack")
                self._settle(append, state, attempt)
                return
            append.conflicts += 1
            await self._reconsider(append, state, attempt)
        raise StoreUnavailable("the conditions of its write failed too often")

    async def _reach_bucket(
        self, append: CassandraAppend, state: CassandraChatState, attempt: CassandraAttempt, give_up_at: float
    ) -> bool:
        """Wait until the bucket of these numbers is open; False if it is closed again: they were sealed."""
        bucket, pause = self._states.bucket_of(attempt.first), VISIBLE_LOOK_SECONDS
        while state.bucket < bucket:
            if await self._prefixes.advance(state) >= self._states.end_of(state.bucket):
                await self._states.roll(state)
                continue
            append.positions += await self._prefixes.seal_old(state)
            if asyncio.get_running_loop().time() > give_up_at:
                raise StoreUnavailable("another node has taken a lower number and not written it yet")
            await asyncio.sleep(pause)
            pause = min(pause * 2, VISIBLE_LOOK_SECONDS_MAX)
        if state.bucket > bucket:
            attempt.sort(append, late=_indices(attempt), taken=_indices(attempt))
            attempt.voids = []
            return False
        return True

    async def _commit(self, state: CassandraChatState, attempt: CassandraAttempt) -> bool:
        sets: dict[str, object] = {"resolved_through": state.resolved}
        conditions: dict[str, object] = {}
        if state.head < attempt.last:
            sets["last_sequence"] = attempt.last
            conditions["last_sequence <"] = attempt.last
        attempt.plan.bucket = state.bucket
        cas = await self._batches.commit(state, attempt.plan, attempt.placed, sets, conditions, attempt.voids)
        return cas.is_applied

    def _settle(self, append: CassandraAppend, state: CassandraChatState, attempt: CassandraAttempt) -> None:
        state.head = max(state.head, attempt.last)
        append.positions += [StoredEntry(void, None) for void in attempt.voids]
        self._metrics.gaps.add(len(attempt.voids), len(attempt.voids) + len(attempt.placed))
        append.settle(state, attempt.plan.twins, attempt.placed)

    async def _reconsider(
        self, append: CassandraAppend, state: CassandraChatState, attempt: CassandraAttempt
    ) -> None:
        """What is left to write after a condition failed, and which numbers are given up."""
        await self._states.refresh(state)
        if state.bucket == self._states.bucket_of(attempt.first):
            await self._sort_out(append, state, attempt)
        if attempt.placed and state.revision != attempt.plan.membership.revision:
            await self._decide_again(append, state, attempt)

    async def _sort_out(
        self, append: CassandraAppend, state: CassandraChatState, attempt: CassandraAttempt
    ) -> None:
        """Take out what is stored already or was sealed."""
        placed = attempt.placed
        there = set(await self._states.positions(state.chat_id, attempt.first - 1, attempt.last))
        there |= set(range(attempt.first, state.trimmed + 1))
        sealed = {one.index for one in placed if one.entry.sequence in there}
        keys = [one.draft.client_key for one in placed if one.draft.client_key is not None]
        append.originals |= await self._planner.rows.keys(state, keys)
        stored = [one for one in placed if one.draft.client_key in append.originals]
        own = [one for one in stored if self._is_own(append, one.index)]
        await self._planner.answer(append, state, [one.index for one in own])
        for one in own:
            log_races([one.draft], [one.entry.sequence], [append.outcomes[one.index]])
        attempt.voids = [void for void in attempt.voids if void not in there]
        out = {one.index for one in stored}
        attempt.sort(append, out=out, late=sealed - out, taken=sealed)

    def _is_own(self, append: CassandraAppend, index: int) -> bool:
        """Whether its sender has stored it; the id of somebody else is refused when it is decided again."""
        draft = append.drafts[index]
        assert draft.client_key is not None
        return append.originals[draft.client_key].sender_id == draft.sender_id

    async def _decide_again(
        self, append: CassandraAppend, state: CassandraChatState, attempt: CassandraAttempt
    ) -> None:
        """A sender who was a member before the number and still is writes there; others are decided again."""
        placed = attempt.placed
        people = await self._states.membership(state, [one.draft.sender_id for one in placed])
        senders = {
            user_id
            for user_id in people.roles.keys() & {one.draft.sender_id for one in placed}
            if people.account(user_id) is AccountState.ACTIVE
            and not people.is_peer_deleted(user_id, state.pair)
        }
        joined = await self._states.joined(state.chat_id, senders)
        attempt.plan.membership = people
        free = {one: at for one, at in joined.items() if not is_restricted(state, people.roles.get(one))}
        attempt.keep_members(append, free)


def _indices(attempt: CassandraAttempt) -> set[int]:
    return {one.index for one in attempt.placed}
