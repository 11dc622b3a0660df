"""Sequencing `atomic`: the head, the entries and their keys in one conditional batch.

Its condition is the head that was planned for. A node that loses a race learns the new head from the refusal
and tries again. This node's appends to a chat take turns, so only other nodes race with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.store.cassandra.append import AppendPlan, AppendPlanner, CassandraAppend
from parley.store.cassandra.batches import ChatBatches, Withdrawn
from parley.store.cassandra.chat_state import CassandraChatState
from parley.store.cassandra.client import Cas
from parley.store.cassandra.prefixes import CassandraPrefixes
from parley.store.two_phase import FaultPoint
from parley.telemetry import Metrics

RACE_PAUSE_SECONDS_MAX = 0.05


class CassandraAtomicAppends:
    def __init__(
        self,
        *,
        planner: AppendPlanner,
        batches: ChatBatches,
        prefixes: CassandraPrefixes,
        metrics: Metrics,
        random: Callable[[], float],
        fault_point: FaultPoint,
        append_seconds: float,
    ) -> None:
        self._planner = planner
        self._states = planner.states
        self._batches = batches
        self._prefixes = prefixes
        self._metrics = metrics
        self._random = random
        self._fault_point = fault_point
        self._append_seconds = append_seconds

    async def append(self, append: CassandraAppend, state: CassandraChatState) -> None:
        append.epoch = state.epoch
        time = asyncio.get_running_loop().time
        give_up_at = time() + self._append_seconds
        async with state.lock:
            while append.todo:
                if time() > give_up_at:
                    raise StoreUnavailable("too many nodes write to this chat at once")
                if state.stray_through is not None:
                    await self.seal_strays(state)
                plan = await self._planner.plan(append, state, in_bucket=True)
                if plan is None:
                    await self._states.roll(state)
                elif plan.indices:
                    await self._write(append, state, plan)
                else:
                    append.settle(state, plan.twins)

    async def _write(self, append: CassandraAppend, state: CassandraChatState, plan: AppendPlan) -> None:
        numbers = list(range(plan.head + 1, plan.head + 1 + len(plan.indices)))
        placed = self._planner.place(append, state, plan.indices, numbers)
        self._fault_point("before_write")
        started = self._metrics.now()
        sets = {"sequence_counter": numbers[-1], "written_through": numbers[-1]}
        conditions = {"sequence_counter =": plan.head, "written_through =": plan.head}
        try:
            cas = await self._batches.commit(state, plan, placed, sets, conditions)
        except Withdrawn:
            append.put_back(plan.indices)
            append.settle(state, plan.twins)
        except OutcomeUnknown:
            append.leave_open(plan.indices)
            append.settle(state, plan.twins)
            state.is_stale = True
            raise
        else:
            if not cas.is_applied:
                await self._learn(append, state, plan, cas)
                return
            self._metrics.time_allocation(self._metrics.now() - started)
            self._metrics.gaps.add(0, len(placed))
            self._fault_point("after_commit_before_ack")
            state.head = state.counter = numbers[-1]
            append.settle(state, plan.twins, placed)

    async def _learn(
        self, append: CassandraAppend, state: CassandraChatState, plan: AppendPlan, cas: Cas
    ) -> None:
        """Nothing was written: somebody else was faster, or has changed the membership."""
        append.conflicts += 1
        append.put_back(plan.indices)
        append.settle(state, plan.twins)
        before = (state.bucket, state.head, state.revision)
        await self._states.refresh(state)
        if before == (state.bucket, state.head, state.revision):
            # Neither the head nor the membership: a position is taken, so the counter is behind its log.
            last = await self._states.last_position(state)
            await self._states.compare(state, last)
        await asyncio.sleep(self._random() * RACE_PAUSE_SECONDS_MAX)

    async def seal_strays(self, state: CassandraChatState) -> None:
        """Voids at the numbers that the counter gave away, so that readers go on and the counter is whole."""
        through = state.stray_through or 0
        await self._prefixes.fill(state, state.head, through)
        await self._prefixes.mark_whole(state, through)
        await self._states.refresh(state)
