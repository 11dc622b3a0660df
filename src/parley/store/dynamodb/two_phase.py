"""Sequencing `two_phase`: numbers are taken first, from any allocator, and written at second.

The five steps of the design: look the key up, check membership, allocate, write the entries with their keys,
publish. Made safe by the conditions of the write: each position is written once, the membership is still
the one that was checked, nothing at or above the first position has been trimmed, and a change of the
membership comes after everything that was written under the old one. An ack is given only when its position
is visible, that is, when every number below it is written or sealed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from parley.clock import iso
from parley.errors import (
    OutcomeUnknown,
    Refusal,
    StoreUnavailable,
)
from parley.ids import EVENT, Ids
from parley.model import StoredEntry
from parley.store.chat_append import Attempt, is_about_members, is_restricted, keyed
from parley.store.dynamodb.append import (
    DynamoAppend,
    Plan,
    Planner,
    PositionTaken,
    Puts,
    UnsavedMarks,
    commit,
    mark_unpublished,
)
from parley.store.dynamodb.bundles import bundled_positions, span_of
from parley.store.dynamodb.changes import change_writes, set_clauses
from parley.store.dynamodb.chat_state import DynamoChatState
from parley.store.dynamodb.driver import Action, CancellationReason, Item, TransactionCanceled, UpdateItem
from parley.store.dynamodb.entries import FAILED, is_live, key_of, put_void
from parley.store.dynamodb.prefixes import DynamoPrefixes
from parley.store.dynamodb.schema import CHATS, KEYS
from parley.store.log_telemetry import log_races
from parley.store.ports import Allocator
from parley.store.two_phase import (
    ROUNDS_MAX,
    FaultPoint,
    allocate,
    seal_given_up,
    taken,
    write_visibly,
)
from parley.telemetry import Metrics

FENCE = (
    "membership_revision = :revision AND (attribute_not_exists(trimmed_through) OR trimmed_through < :first)"
)
IS_FIRST = "(attribute_not_exists(last_sequence) OR last_sequence < :first)"
"""Nothing at its first number or above it has been written: only then may entries share items."""
IS_LAST = "(attribute_not_exists(last_sequence) OR last_sequence < :last)"
"""Nothing above it has been written. An append that was overtaken leaves this condition out, if it may."""

PlanAttempt = Attempt[Plan]


class TwoPhaseAppends:
    def __init__(
        self,
        *,
        planner: Planner,
        allocator: Allocator,
        prefixes: DynamoPrefixes,
        make_ids: Ids,
        metrics: Metrics,
        marks: UnsavedMarks | None,
        fault_point: FaultPoint,
        append_seconds: float,
    ) -> None:
        self._append_seconds = append_seconds
        self._planner = planner
        self._allocator = allocator
        self._prefixes = prefixes
        self._ids = make_ids
        self._metrics = metrics
        self._marks = marks
        self._fault_point = fault_point

    async def append(self, append: DynamoAppend, state: DynamoChatState) -> None:
        give_up_at = asyncio.get_running_loop().time() + self._append_seconds

        async def write() -> None:
            await self._write_all(append, state)

        await write_visibly(write, self._prefixes, append, state, give_up_at)

    async def _write_all(self, append: DynamoAppend, state: DynamoChatState) -> None:
        """Each run of drafts takes its numbers, and again if they were sealed."""
        for _ in range(ROUNDS_MAX + len(append.drafts)):
            if not append.todo:
                return
            await self._find_retries(append, state)
            plan = await self._planner.plan(append, state)
            if plan.indices:
                await self._allocate_and_write(append, state, plan)
        if append.todo:
            raise StoreUnavailable("its numbers were sealed too often")

    async def _find_retries(self, append: DynamoAppend, state: DynamoChatState) -> None:
        """Step 1, the fast path of retries. A key missed here is caught by the condition of the write."""
        names = {
            cast(str, key_of(state.chat_id, key)["client_message_id"]): key
            for index in append.todo
            if (key := append.drafts[index].client_key) is not None
        }
        places: list[Item] = [{"chat_id": state.chat_id, "client_message_id": name} for name in sorted(names)]
        for item in await self._planner.dynamo.batch_get(KEYS, places, consistent=False):
            if is_live(item, self._planner.clock()):
                append.originals[names[cast(str, item["client_message_id"])]] = item

    async def _allocate_and_write(self, append: DynamoAppend, state: DynamoChatState, plan: Plan) -> None:
        numbers = await self._allocate(state, len(plan.indices))
        if isinstance(numbers, Refusal):  # decide again: some of them may be retries after all
            append.trouble = numbers
            append.put_back([*plan.indices, *(twin.index for twin in plan.twins)])
            return
        drafts = [append.drafts[index] for index in plan.indices]
        async with taken(numbers, self._prefixes, state, drafts, self._fault_point):
            placed = self._planner.place(append, state, plan.indices, numbers)
            await self._write(append, state, Attempt(plan, placed))

    async def _allocate(self, state: DynamoChatState, count: int) -> list[int] | Refusal:
        """Step 3: numbers that no other append has, or why there are none."""
        read_end = partial(self._planner.states.last_position, state.chat_id)
        return await allocate(self._allocator, self._metrics, state, count, read_end)

    async def _write(self, append: DynamoAppend, state: DynamoChatState, attempt: PlanAttempt) -> None:
        """Step 4, until every number is an entry or a void, or was written by another append."""
        for _ in range(ROUNDS_MAX):
            if attempt.placed and attempt.must_be_last and state.head > attempt.last:
                attempt.give_up(append)
            if not attempt.placed:
                await seal_given_up(self._prefixes, append, state, attempt.voids, self._metrics)
                self._planner.settle(append, state, attempt.plan)
                return
            self._fault_point("before_write")
            is_overtaken = state.head >= attempt.first
            if is_overtaken and await self._leave_to_bundles(append, state, attempt):
                continue
            puts = self._planner.puts(attempt.placed, may_bundle=not is_overtaken)
            actions = self._actions(state, attempt, puts)
            token = self._ids.next(EVENT, self._planner.clock())
            try:
                await commit(self._planner.dynamo, actions, token, puts.entries)
            except (TransactionCanceled, PositionTaken) as error:
                append.conflicts += 1
                await self._reconsider(append, state, attempt, puts, error)
            except OutcomeUnknown:
                append.leave_open(one.index for one in attempt.placed)
                self._planner.settle(append, state, attempt.plan)
                state.is_stale = True
                raise
            else:
                self._fault_point("after_commit_before_ack")
                self._settle(append, state, attempt)
                return
        raise StoreUnavailable("the conditions of its write failed too often")

    async def _leave_to_bundles(
        self, append: DynamoAppend, state: DynamoChatState, attempt: PlanAttempt
    ) -> bool:
        """Give up numbers that a bundle holds: an allocator gave them twice. Returns whether there are any.

        Only the first position of a bundle is an item, so the conditions of a write do not see the others.
        A bundle is written only above everything else (`IS_FIRST`): what is not in one by now never will be.
        """
        last = max([attempt.last, *attempt.voids])
        in_bundles = await bundled_positions(self._planner.dynamo, state.chat_id, attempt.first, last)
        held = {one.index for one in attempt.placed if one.entry.sequence in in_bundles}
        is_held = bool(held) or not in_bundles.isdisjoint(attempt.voids)
        attempt.voids = [void for void in attempt.voids if void not in in_bundles]
        if held:
            state.is_stale = True
            attempt.sort(append, late=held, taken=held)
        return is_held

    def _settle(self, append: DynamoAppend, state: DynamoChatState, attempt: PlanAttempt) -> None:
        state.head = max(state.head, attempt.last)
        state.is_stale = state.is_stale or attempt.placed[0].draft.change is not None
        append.positions += [StoredEntry(void, None) for void in attempt.voids]
        self._metrics.gaps.add(len(attempt.voids), len(attempt.voids) + len(attempt.placed))
        self._planner.settle(append, state, attempt.plan, attempt.placed)

    def _actions(self, state: DynamoChatState, attempt: PlanAttempt, puts: Puts) -> list[Action]:
        """The whole transaction: the fence, entries, keys, and voids at the numbers that were given up."""
        values: Item = {":revision": attempt.plan.membership.revision, ":first": attempt.first}
        values[":resolved"] = state.resolved
        expression, condition, names = "SET resolved_through = :resolved", FENCE, None
        if state.head < attempt.last:
            values[":last"] = attempt.last
            is_highest = IS_FIRST if state.head < attempt.first else IS_LAST
            expression, condition = f"{expression}, last_sequence = :last", f"{FENCE} AND {is_highest}"
        actions = puts.actions
        actions += [put_void(state.chat_id, void, state.epoch) for void in attempt.voids]
        draft = attempt.placed[0].draft
        if draft.change is not None:
            now = iso(self._planner.clock())
            plan = attempt.plan
            writes = change_writes(draft, state, plan.membership.roles, plan.join, attempt.last, now)
            if is_about_members(draft):
                writes.chat["membership_revision"] = self._ids.next(EVENT, self._planner.clock())
            clauses, names = set_clauses(writes.chat, values)
            expression += clauses
            actions += writes.rows
        if self._marks is not None:
            expression += mark_unpublished(self._marks, state, values)
        return [UpdateItem(CHATS, {"chat_id": state.chat_id}, expression, values, condition, names), *actions]

    async def _reconsider(
        self,
        append: DynamoAppend,
        state: DynamoChatState,
        attempt: PlanAttempt,
        puts: Puts,
        error: TransactionCanceled | PositionTaken,
    ) -> None:
        """What is left to write after a condition failed, and which numbers are given up."""
        reasons = error.reasons if isinstance(error, TransactionCanceled) else []
        if reasons and reasons[0].code == FAILED:
            await self._look_at_fence(append, state, attempt, reasons[0].item or {})
        elif not await self._sort_out(append, state, attempt, puts, reasons[1:]):
            state.is_stale = True  # its first number was sealed, or a member's row is not as it was
            attempt.give_up(append)

    async def _look_at_fence(
        self, append: DynamoAppend, state: DynamoChatState, attempt: PlanAttempt, chat: Item
    ) -> None:
        """The membership has changed, the log was trimmed, or another append was faster (harmless)."""
        if chat:
            state.see(chat)
        attempt.voids = [void for void in attempt.voids if void > state.trimmed]
        if attempt.placed[0].entry.sequence <= state.trimmed:
            attempt.give_up(append)
        elif chat.get("membership_revision") != attempt.plan.membership.revision:
            await self._decide_again(append, state, attempt)

    async def _decide_again(self, append: DynamoAppend, state: DynamoChatState, attempt: PlanAttempt) -> None:
        """A sender who was a member before the number and still is writes there; others are decided again."""
        states, placed = self._planner.states, attempt.placed
        await states.refresh(state)
        membership = await states.membership(state, [one.draft.sender_id for one in placed])
        senders = {
            one.draft.sender_id for one in placed if membership.lets_write(one.draft.sender_id, state.pair)
        }
        joined = await states.joined(state, membership.roles.keys() & senders)
        attempt.plan = attempt.plan._replace(membership=membership)
        free = {one: at for one, at in joined.items() if not is_restricted(state, membership.roles.get(one))}
        attempt.keep_members(append, free)

    async def _sort_out(
        self,
        append: DynamoAppend,
        state: DynamoChatState,
        attempt: PlanAttempt,
        puts: Puts,
        reasons: list[CancellationReason],
    ) -> bool:
        """Take out what is stored already or was sealed; False when the reasons name neither."""
        placed, with_keys = attempt.placed, keyed(attempt.placed)
        positions, rest = reasons[: len(puts.entries)], reasons[len(puts.entries) :]
        held = _held(puts, positions)
        sealed = {one.index for one in placed if one.entry.sequence in held}
        stored = set(await self._planner.note_originals(append, with_keys, rest))
        gone = zip(attempt.voids, rest[len(with_keys) :], strict=False)
        voids_gone = {void for void, at in gone if at.code == FAILED}
        if not (sealed or stored or voids_gone):
            return False
        state.is_stale = state.is_stale or bool(sealed)
        numbers = {one.index: one.entry.sequence for one in placed}
        for index in await self._planner.answer_retries(append, state, stored):
            log_races([append.drafts[index]], [numbers[index]], [append.outcomes[index]])
        attempt.voids = [void for void in attempt.voids if void not in voids_gone]
        attempt.sort(append, out=stored, late=sealed - stored, taken=sealed)
        return True


def _held(puts: Puts, reasons: list[CancellationReason]) -> set[int]:
    """The positions that the log has already: where an item met another, and what else that one holds."""
    held: set[int] = set()
    for put, reason in zip(puts.entries, reasons, strict=False):
        if reason.code == FAILED:
            held.update(span_of(reason.item or {"sequence": put.item["sequence"]}))
    return held
