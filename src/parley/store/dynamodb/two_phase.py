"""Sequencing `two_phase`: numbers are taken first, from any allocator, and written at second.

The five steps of the design: look the key up, check membership, allocate, write the entries with their keys,
publish. Made safe by three conditions of the write: each position is written once, the membership is still
the one that was checked, and nothing at or above the first position has been trimmed. An ack is given only
when its position is visible, that is when every number below it is written or sealed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parley.clock import iso
from parley.errors import (
    COUNTER_INCONSISTENT,
    COUNTER_MISSING,
    OUTCOME_UNKNOWN,
    CounterMissingError,
    InconsistentCounterError,
    OutcomeUnknown,
    Refusal,
    StoreError,
    StoreUnavailable,
)
from parley.ids import EVENT, Ids
from parley.model import Appended, Outcome, Stored
from parley.store.dynamodb.actions import Action, Update
from parley.store.dynamodb.appending import Desk, Placed, Run, Work, keyed
from parley.store.dynamodb.changes import deeds_of
from parley.store.dynamodb.client import Reason, TransactionCanceled
from parley.store.dynamodb.committing import Lost, commit
from parley.store.dynamodb.entries import KEYS, is_live, key_of, put_void
from parley.store.dynamodb.fences import Marks, ride, set_clauses
from parley.store.dynamodb.prefixes import FAILED, Prefixes
from parley.store.dynamodb.states import CHATS, ChatState
from parley.store.dynamodb.values import Item
from parley.store.ports import Allocator
from parley.store.rules import STRAY_POSITIONS_MAX
from parley.telemetry import Metrics

ROUNDS_MAX = 20
VISIBLE_SECONDS_MAX = 20.0
VISIBLE_LOOK_SECONDS = 0.02
VISIBLE_LOOK_SECONDS_MAX = 0.25
FENCE = (
    "membership_revision = :revision AND (attribute_not_exists(trimmed_through) OR trimmed_through < :first)"
)

Hold = Callable[[str], Awaitable[None] | None]


class TwoPhaseAppends:
    def __init__(
        self,
        desk: Desk,
        allocator: Allocator,
        prefixes: Prefixes,
        make_ids: Ids,
        metrics: Metrics,
        marks: Marks | None,
        reach: Callable[[str], None],
        hold: Hold,
    ) -> None:
        self._desk = desk
        self._allocator = allocator
        self._prefixes = prefixes
        self._ids = make_ids
        self._metrics = metrics
        self._marks = marks
        self._reach = reach
        self._hold = hold

    async def append(self, work: Work, state: ChatState) -> None:
        """Write what is to do; each run of drafts takes its numbers, and again if they were sealed."""
        for _ in range(ROUNDS_MAX + len(work.drafts)):
            if not work.todo:
                break
            answered = await self._answer_known(work, state)
            run = await self._desk.next_run(work, state, answered)
            if run.indices:
                await self._allocate_and_write(work, state, run)
        if work.todo:
            raise StoreUnavailable("its numbers were sealed too often")
        await self._await_visible(work, state)

    async def _answer_known(self, work: Work, state: ChatState) -> dict[int, Outcome]:
        """Step 1, the fast path of retries. A key missed here is caught by the condition of the write."""
        drafts = {index: work.drafts[index] for index in work.todo}
        keys = {draft.client_key for draft in drafts.values() if draft.client_key is not None}
        places = [key_of(state.chat_id, key) for key in sorted(keys)]
        found = {
            key["client_message_id"]: key
            for key in await self._desk.dynamo.batch_get(KEYS, places, consistent=False)
            if is_live(key, self._desk.clock())
        }
        if not found:
            return {}
        known = await self._desk.states.know(state, (draft.sender_id for draft in drafts.values()))
        answered: dict[int, Outcome] = {}
        for index, draft in drafts.items():
            key = draft.client_key and found.get(key_of(state.chat_id, draft.client_key)["client_message_id"])
            if key:
                answered[index] = await self._desk.answer_key(draft, state, known, key)
        return answered

    async def _allocate_and_write(self, work: Work, state: ChatState, run: Run) -> None:
        numbers = await self._allocate(state, len(run.indices))
        if isinstance(numbers, Refusal):
            for index in [*run.indices, *(index for index, _ in run.twins)]:
                work.outcomes[index] = numbers
            return
        self._prefixes.take(state.chat_id, numbers)
        stored_before = len(work.positions)
        try:
            self._reach("after_allocate")
            held = self._hold("after_allocate")
            if held is not None:
                await held
            placed = self._desk.place(work, state, run.indices, numbers)
            await self._write(work, state, run, placed)
        finally:
            self._prefixes.give_back(state.chat_id, numbers)
            stored = sum(1 for at in work.positions[stored_before:] if at.wire is not None)
            self._metrics.gaps.add(len(numbers) - stored, len(numbers))

    async def _allocate(self, state: ChatState, count: int) -> list[int] | Refusal:
        """Step 3: numbers that nobody else has, or why there are none."""
        try:
            last = await self._allocator.allocate(state.chat_id, count, state.head)
        except CounterMissingError:
            return COUNTER_MISSING
        except InconsistentCounterError as error:
            return COUNTER_INCONSISTENT.because(str(error))
        first = last - count + 1
        if first - state.head > STRAY_POSITIONS_MAX:
            end = await self._desk.states.last_position(state.chat_id)
            state.head = max(state.head, end)
            if first - state.head > STRAY_POSITIONS_MAX:
                return COUNTER_INCONSISTENT.because(f"Counter is {last} but the log ends at {end}")
        return list(range(first, last + 1))

    async def _write(self, work: Work, state: ChatState, run: Run, placed: list[Placed]) -> None:
        """Step 4, until every number is an entry or a void, or belongs to somebody who was faster."""
        voids: list[int] = []
        while placed:
            self._reach("before_write")
            actions = self._actions(state, run, placed, voids)
            token = self._ids.next(EVENT, self._desk.clock())
            try:
                await commit(self._desk.dynamo, actions, token, placed[0].entry)
            except TransactionCanceled as error:
                work.conflicts += 1
                run, placed, voids = await self._reconsider(work, state, run, placed, voids, error.reasons)
            except Lost:  # the first position was sealed: the conditions will tell about the others
                work.conflicts += 1
                work.put_back([placed[0].index])
                placed = placed[1:]
            except OutcomeUnknown as error:
                work.leave_open(run)
                state.is_stale = True
                raise StoreUnavailable("what came before it is not known to be stored") from error
            else:
                self._reach("after_commit_before_ack")
                self._settle(work, state, run, placed, voids)
                return
        work.epoch = state.epoch
        work.positions += await self._prefixes.seal(state, voids) if voids else []
        self._desk.answer_twins(work, run)

    def _settle(self, work: Work, state: ChatState, run: Run, placed: list[Placed], voids: list[int]) -> None:
        state.head = max(state.head, placed[-1].entry.sequence)
        state.is_stale = state.is_stale or placed[0].draft.change is not None
        work.positions += [Stored(void, None) for void in voids]
        self._desk.settle(work, state, run, placed)

    def _actions(self, state: ChatState, run: Run, placed: list[Placed], voids: list[int]) -> list[Action]:
        """The whole transaction: the fence, entries, keys, and voids at the numbers that were given up."""
        first = placed[0].entry.sequence
        values: Item = {":revision": run.known.revision, ":first": first, ":resolved": state.resolved}
        values[":write"] = placed[-1].entry.message_id
        expression, names = "SET resolved_through = :resolved, last_write = :write", None
        actions = self._desk.puts(placed)
        actions += [put_void(state.chat_id, void, state.epoch) for void in voids]
        draft = placed[0].draft
        if draft.change is not None:
            now = iso(self._desk.clock())
            deeds = deeds_of(draft, state, run.known.roles, first, now)
            if deeds.rows:
                deeds.chat["membership_revision"] = self._ids.next(EVENT, self._desk.clock())
            clauses, names = set_clauses(deeds.chat, values)
            expression += clauses
            actions += deeds.rows
        if self._marks is not None:
            expression += ride(self._marks, state.chat_id, values)
        fence = Update(CHATS, {"chat_id": state.chat_id}, expression, values, FENCE, names)
        return [fence, *actions]

    async def _reconsider(
        self,
        work: Work,
        state: ChatState,
        run: Run,
        placed: list[Placed],
        voids: list[int],
        reasons: list[Reason],
    ) -> tuple[Run, list[Placed], list[int]]:
        """What is left to write after a condition failed, and which numbers are given up."""
        if reasons[0].code == FAILED:
            return await self._decide_again(work, state, run, placed, voids)
        entries, rest = reasons[1 : 1 + len(placed)], reasons[1 + len(placed) :]
        with_keys = keyed(placed)
        keys = {one.index: reason for one, reason in zip(with_keys, rest, strict=False)}
        left: list[Placed] = []
        gone = list(zip(voids, rest[len(with_keys) :], strict=False))
        voids = [void for void, reason in gone if reason.code != FAILED]
        for one, position in zip(placed, entries, strict=True):
            key = keys.get(one.index)
            if position.code == FAILED:  # it was sealed: take another number
                work.put_back([one.index])
            elif key is not None and key.code == FAILED:
                assert key.item is not None
                work.outcomes[one.index] = await self._desk.answer_key(one.draft, state, run.known, key.item)
                voids.append(one.entry.sequence)
            else:
                left.append(one)
        if len(left) == len(placed) and len(voids) == len(gone):  # a member's row is not as it was
            return await self._decide_again(work, state, run, placed, voids)
        return run, left, voids

    async def _decide_again(
        self, work: Work, state: ChatState, run: Run, placed: list[Placed], voids: list[int]
    ) -> tuple[Run, list[Placed], list[int]]:
        """The membership has changed, or the log was trimmed: who may still write, and where."""
        await self._desk.states.load(state.chat_id)
        people = {one.draft.sender_id for one in placed}
        people |= {one.draft.change.user_id for one in placed if one.draft.change is not None}
        known = await self._desk.states.know(state, people)
        left: list[Placed] = []
        for one in placed:
            if one.entry.sequence <= state.trimmed:
                work.put_back([one.index])
                continue
            refusal = await self._desk.decide_member(one.draft, state, known)
            if refusal is None:
                left.append(one)
            else:
                stored = await self._desk.answer_stored(one.draft, state, known)
                work.outcomes[one.index] = stored or refusal
                voids.append(one.entry.sequence)
        return Run(run.indices, run.twins, known), left, [void for void in voids if void > state.trimmed]

    async def _await_visible(self, work: Work, state: ChatState) -> None:
        """An ack means that every reader sees it: wait for the numbers below, or seal what was abandoned."""
        last = max((at.sequence for at in work.positions if at.wire is not None), default=0)
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + VISIBLE_SECONDS_MAX, VISIBLE_LOOK_SECONDS
        while state.resolved < last:
            try:
                if await self._prefixes.advance(state) >= last:
                    return
                sealed = await self._prefixes.seal_old(state)
                work.positions += sealed
            except StoreError:
                sealed = []
            if loop.time() > deadline:
                self._doubt(work)
                return
            if not sealed:
                await asyncio.sleep(pause)
                pause = min(pause * 2, VISIBLE_LOOK_SECONDS_MAX)

    @staticmethod
    def _doubt(work: Work) -> None:
        """It is stored, but nobody can see it yet: not to be acknowledged. A retry will find it."""
        for index, outcome in work.outcomes.items():
            if isinstance(outcome, Appended) and not outcome.deduplicated:
                work.outcomes[index] = OUTCOME_UNKNOWN
