"""Sequencing `atomic`: the head is compared and advanced in the same transaction as the entries.

No gap can form, and a position that the head covers and that does not exist was given away by somebody else
(a counter of two_phase, or a hand): nobody will write it, so it is sealed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.clock import iso
from parley.errors import OutcomeUnknown, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import Persisted
from parley.store.counting import count_sealed
from parley.store.dynamodb.actions import Action, Check, Update
from parley.store.dynamodb.appending import Desk, Placed, Run, Work, keyed
from parley.store.dynamodb.changes import deeds_of
from parley.store.dynamodb.client import Dynamo, Reason, TransactionCanceled
from parley.store.dynamodb.committing import Lost, commit
from parley.store.dynamodb.fences import Marks, ride, update_chat
from parley.store.dynamodb.prefixes import FAILED, Prefixes
from parley.store.dynamodb.states import CHATS, COUNTERS, ChatState, ChatStates, is_whole, number
from parley.store.dynamodb.together import repeated
from parley.store.dynamodb.values import Item
from parley.telemetry import Metrics

HEAD_RETRIES_MAX = 40
HEAD_RETRY_SECONDS = 0.002
HEAD_RETRY_SECONDS_MAX = 0.25

HEAD_CONDITION = "sequence_counter = :head AND membership_revision = :revision"
MARK_WHOLE = "SET written_through = :through, membership_revision = :revision, epoch = :epoch"
ADVANCE = "SET sequence_counter = :next, written_through = :next, updated_at = :now"


class AtomicAppends:
    def __init__(
        self,
        desk: Desk,
        prefixes: Prefixes,
        make_ids: Ids,
        metrics: Metrics,
        marks: Marks | None,
        random: Callable[[], float],
        reach: Callable[[str], None],
    ) -> None:
        self._desk = desk
        self._dynamo: Dynamo = desk.dynamo
        self._states: ChatStates = desk.states
        self._prefixes = prefixes
        self._ids = make_ids
        self._metrics = metrics
        self._marks = marks
        self._random = random
        self._reach = reach

    async def append(self, work: Work, state: ChatState) -> None:
        """Write what is to do, one transaction after the other; this node's appends to a chat take turns."""
        work.epoch = state.epoch
        async with state.lock:
            for attempt in range(1, HEAD_RETRIES_MAX + len(work.drafts)):
                if not work.todo:
                    return
                if state.stray_through is not None:
                    await self.seal_strays(state)
                run = await self._desk.next_run(work, state, {})
                if run.indices:
                    await self._write(work, state, run, attempt)
            if work.todo:
                raise StoreUnavailable("too many nodes write to this chat at once")

    async def _write(self, work: Work, state: ChatState, run: Run, attempt: int) -> None:
        head = state.head
        numbers = list(range(head + 1, head + 1 + len(run.indices)))
        placed = self._desk.place(work, state, run.indices, numbers)
        revision, actions = self._actions(state, run, placed)
        self._reach("before_write")
        token = self._ids.next(EVENT, self._desk.clock())
        time = asyncio.get_running_loop().time
        started = time()
        try:
            await commit(self._dynamo, actions, token, [one.entry for one in placed])
        except (TransactionCanceled, Lost) as error:
            work.conflicts += 1
            work.put_back(run.indices)
            await self._learn(work, state, run, placed, error, attempt)
            self._desk.answer_twins(work, run)
        except OutcomeUnknown:
            work.leave_open(placed)
            self._desk.answer_twins(work, run)
            state.is_stale = True
            raise
        else:
            self._metrics.time_allocation(time() - started)
            self._metrics.gaps.add(0, len(placed))
            self._reach("after_commit_before_ack")
            state.head = numbers[-1]
            state.is_stale = revision != state.revision
            self._desk.settle(work, state, run, placed)

    def _actions(self, state: ChatState, run: Run, placed: list[Placed]) -> tuple[str, list[Action]]:
        """The whole transaction, and the membership's revision after it."""
        now, last = iso(self._desk.clock()), placed[-1].entry.sequence
        values: Item = {":head": state.head, ":next": last, ":now": now, ":revision": run.known.revision}
        expression, revision = ADVANCE, run.known.revision
        actions = self._desk.puts(placed)
        draft = placed[0].draft
        if draft.change is not None:
            deeds = deeds_of(draft, state, run.known.roles, last, now)
            if deeds.rows:
                revision = self._ids.next(EVENT, self._desk.clock())
                deeds.chat["membership_revision"] = values[":new"] = revision
                expression += ", membership_revision = :new"
            actions += [update_chat(state.chat_id, deeds.chat), *deeds.rows]
        if self._marks is not None:
            expression += ride(self._marks, state.chat_id, values)
        head = Update(COUNTERS, {"chat_id": state.chat_id}, expression, values, HEAD_CONDITION)
        return revision, [head, *actions]

    async def _learn(
        self,
        work: Work,
        state: ChatState,
        run: Run,
        placed: list[Placed],
        error: TransactionCanceled | Lost,
        attempt: int,
    ) -> None:
        """Why nothing was written: answer what is stored already, or look again where the log ends."""
        reasons = error.reasons if isinstance(error, TransactionCanceled) else []
        if not reasons or reasons[0].code == FAILED:
            await self._look_again(state, reasons[0] if reasons else None)
            bound = min(HEAD_RETRY_SECONDS_MAX, HEAD_RETRY_SECONDS * 2 ** min(attempt, 10))
            await asyncio.sleep(self._random() * bound)
            return
        positions, keys = reasons[1 : 1 + len(placed)], reasons[1 + len(placed) :]
        duplicates = [
            (one, reason) for one, reason in zip(keyed(placed), keys, strict=False) if reason.code == FAILED
        ]
        if any(reason.code == FAILED for reason in positions):  # just being committed, or a counter is wrong
            await self._states.look_closely(state)
        elif not duplicates:  # a member's row is not as it was: memory is wrong
            await self._states.refresh(state)
        for one, reason in duplicates:
            answer = await self._desk.answer_duplicate(one.draft, state, run.known, reason)
            work.outcomes[one.index] = answer
            work.todo.remove(one.index)

    async def _look_again(self, state: ChatState, reason: Reason | None) -> None:
        counter = reason.item if reason is not None else None
        if counter is not None and is_whole(counter) and counter.get("membership_revision") == state.revision:
            state.head = number(counter, "sequence_counter")
            state.published = number(counter, "published_through")
        else:
            await self._states.refresh(state)

    async def seal_strays(self, state: ChatState) -> None:
        """Voids at the numbers that the counter gave away, so that readers go on and the counter is whole."""
        through = state.stray_through or 0
        strays = await self._prefixes.missing(state, state.head, through)
        voids = await self._prefixes.seal(state, strays)
        count_sealed(self._metrics, [Persisted(state.chat_id, state.epoch, voids)])
        if await self._mark_whole(state, through):
            state.head, state.stray_through = through, None
        else:
            await self._states.refresh(state)  # it moved meanwhile: the next look decides

    async def _mark_whole(self, state: ChatState, through: int) -> bool:
        """Say that nothing is missing up to the counter; False when it is another one by now.

        The counter takes the revision that is remembered here, so it must still be the chat's: a block gives
        another one without a number.
        """
        key: Item = {"chat_id": state.chat_id}
        values: Item = {":through": through, ":revision": state.revision, ":epoch": state.epoch}
        actions: list[Action] = [
            Update(COUNTERS, key, MARK_WHOLE, values, "sequence_counter = :through"),
            Check(CHATS, key, "membership_revision = :revision", {":revision": state.revision}),
        ]
        token = self._ids.next(EVENT, self._desk.clock())
        try:
            await repeated(lambda: self._dynamo.transact(actions, token))
        except TransactionCanceled:
            return False
        return True
