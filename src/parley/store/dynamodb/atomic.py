"""Sequencing `atomic`: the head is compared and advanced in the same transaction as the entries.

No gap can form. If the counter covers a position that does not exist, the number was taken in another way (in
two_phase, or by hand). No append will write it, so it is sealed at once.

Two nodes that append to the same chat race for the head. The loser learns the new head with its refusal and
tries again at once. A node whose store answers late would lose every time: it claims the head, and the others
let it go first. See docs/the-log-on-dynamodb.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from parley.clock import iso
from parley.core.append import Verdict
from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.store.chat_append import Placed, is_about_members, keyed
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
from parley.store.dynamodb.changes import change_writes, update_chat
from parley.store.dynamodb.chat_state import DynamoChatState, DynamoChatStates, is_whole
from parley.store.dynamodb.driver import (
    Action,
    CancellationReason,
    ConditionCheck,
    ConditionFailed,
    Dynamo,
    Item,
    TransactionCanceled,
    UpdateItem,
    number,
    retry_unknown,
)
from parley.store.dynamodb.entries import FAILED
from parley.store.dynamodb.prefixes import DynamoPrefixes
from parley.store.dynamodb.schema import CHATS, COUNTERS
from parley.store.ports import APPEND_SECONDS_MAX
from parley.store.two_phase import FaultPoint
from parley.telemetry import Metrics

RACES_LOST_MAX = 2
"""An append that has lost so many races claims the head."""
CLAIM_SECONDS_MAX = 1.0
"""A claim that stands for longer is ignored: its node is gone, or too slow."""
CLAIM_LOOK_SECONDS = 0.05
assert CLAIM_SECONDS_MAX < APPEND_SECONDS_MAX, "an append that waits for a claim can still write"
HEAD_RETRY_SECONDS_MAX = 0.05

HEAD_CONDITION = "sequence_counter = :head AND membership_revision = :revision"
UNCLAIMED = " AND attribute_not_exists(head_claim)"
CLAIMED = " AND head_claim = :claim"
MARK_WHOLE = "SET written_through = :through, membership_revision = :revision, epoch = :epoch"
ADVANCE = "SET sequence_counter = :next, written_through = :next, updated_at = :now"


class Contention(Struct):
    """One append among others: how often it lost, and the claim that it has, or has seen and waits for."""

    give_up_at: float
    lost: int = 0
    claim: str | None = None
    is_mine: bool = False
    wait_until: float = 0.0

    def see(self, counter: Item, now: float) -> None:
        """A claim of another append is waited for from the first time that this one sees it."""
        claim = counter.get("head_claim")
        if claim != self.claim:
            self.claim = claim if isinstance(claim, str) else None
            self.is_mine, self.wait_until = False, now + CLAIM_SECONDS_MAX


class AtomicAppends:
    def __init__(
        self,
        *,
        planner: Planner,
        prefixes: DynamoPrefixes,
        make_ids: Ids,
        metrics: Metrics,
        marks: UnsavedMarks | None,
        random: Callable[[], float],
        fault_point: FaultPoint,
        append_seconds: float,
    ) -> None:
        self._append_seconds = append_seconds
        self._planner = planner
        self._dynamo: Dynamo = planner.dynamo
        self._states: DynamoChatStates = planner.states
        self._prefixes = prefixes
        self._ids = make_ids
        self._metrics = metrics
        self._marks = marks
        self._random = random
        self._fault_point = fault_point

    async def append(self, append: DynamoAppend, state: DynamoChatState) -> None:
        """Write what is to do, one transaction after the other; this node's appends to a chat take turns."""
        append.epoch = state.epoch
        contention = Contention(_now() + self._append_seconds)
        async with state.lock:
            try:
                while append.todo:
                    if _now() > contention.give_up_at:
                        raise StoreUnavailable("too many nodes write to this chat at once")
                    if contention.lost >= RACES_LOST_MAX and contention.claim is None:
                        await self._claim(state, contention)
                    if contention.claim is not None and not contention.is_mine:
                        await self._await_claim(state, contention)
                    if state.stray_through is not None:
                        await self.seal_strays(state)
                    # Who has lost a race does not look first: the head would move on meanwhile.
                    may_look_first = contention.lost == 0
                    plan = await self._planner.plan(append, state, may_look_first=may_look_first)
                    if plan.indices:
                        await self._write(append, state, plan, contention)
            finally:
                if contention.is_mine:
                    await self._unclaim(state, contention)

    async def _write(
        self, append: DynamoAppend, state: DynamoChatState, plan: Plan, contention: Contention
    ) -> None:
        numbers = list(range(plan.head + 1, plan.head + 1 + len(plan.indices)))
        placed = self._planner.place(append, state, plan.indices, numbers)
        puts = self._planner.puts(placed, may_bundle=True)
        revision, actions = self._actions(state, plan, placed, puts, contention.claim)
        self._fault_point("before_write")
        token = self._ids.next(EVENT, self._planner.clock())
        started = self._metrics.now()
        try:
            await commit(self._dynamo, actions, token, puts.entries)
        except (TransactionCanceled, PositionTaken) as error:
            append.put_back(plan.indices)
            await self._learn(append, state, placed, puts, error, contention)
            self._planner.settle(append, state, plan)
        except OutcomeUnknown:
            append.leave_open(plan.indices)
            self._planner.settle(append, state, plan)
            state.is_stale = True
            raise
        else:
            self._metrics.time_allocation(self._metrics.now() - started)
            self._metrics.gaps.add(0, len(placed))
            self._fault_point("after_commit_before_ack")
            contention.lost, contention.claim, contention.is_mine = 0, None, False
            state.head = numbers[-1]
            state.unkeyed = range(numbers[0], numbers[-1] + 1) if plan.keys_apart else range(0)
            state.is_stale = revision != state.revision
            if plan.keys_apart:
                await self._write_keys(append, state, plan, placed, puts)
            else:
                self._planner.settle(append, state, plan, placed)

    async def _write_keys(
        self, append: DynamoAppend, state: DynamoChatState, plan: Plan, placed: list[Placed], puts: Puts
    ) -> None:
        """The acks wait for the keys. If they fail, the entries stand: whoever comes next writes the keys."""
        positions = range(placed[0].entry.sequence, placed[-1].entry.sequence + 1)
        try:
            await self._planner.keys.write([put.item for put in puts.keys])
        except StoreError as error:
            self._planner.settle(append, state, plan, placed)
            answered = [twin.index for twin in plan.twins if twin.decision is Verdict.ANSWER]
            append.leave_open([*plan.indices, *answered])
            raise OutcomeUnknown("the keys of a batch were not written") from error
        state.note_keyed(positions)
        self._planner.settle(append, state, plan, placed)

    def _actions(
        self, state: DynamoChatState, plan: Plan, placed: list[Placed], puts: Puts, claim: str | None
    ) -> tuple[str, list[Action]]:
        """The whole transaction, and the membership's revision after it. It ends a claim, if there is one."""
        now, last = iso(self._planner.clock()), placed[-1].entry.sequence
        values: Item = {
            ":head": plan.head,
            ":next": last,
            ":now": now,
            ":revision": plan.membership.revision,
        }
        expression, revision = ADVANCE, plan.membership.revision
        if len(puts.entries) < len(placed):
            expression += ", bundled_through = :next"
        actions: list[Action] = [*puts.entries]
        removed = ["keys_through"]
        if plan.keys_apart:
            expression, removed = expression + ", keys_through = :head", []
        else:
            actions += puts.keys
        draft = placed[0].draft
        if draft.change is not None:
            writes = change_writes(draft, state, plan.membership.roles, plan.join, last, now)
            if is_about_members(draft):
                revision = self._ids.next(EVENT, self._planner.clock())
                writes.chat["membership_revision"] = values[":new"] = revision
                expression += ", membership_revision = :new"
            actions += [update_chat(state.chat_id, writes.chat), *writes.rows]
        if self._marks is not None:
            expression += mark_unpublished(self._marks, state, values)
        condition = HEAD_CONDITION + UNCLAIMED
        if claim is not None:
            values[":claim"] = claim
            condition = HEAD_CONDITION + CLAIMED
            removed.append("head_claim")
        if removed:
            expression += f" REMOVE {', '.join(removed)}"
        head = UpdateItem(COUNTERS, {"chat_id": state.chat_id}, expression, values, condition)
        return revision, [head, *actions]

    async def _learn(
        self,
        append: DynamoAppend,
        state: DynamoChatState,
        placed: list[Placed],
        puts: Puts,
        error: TransactionCanceled | PositionTaken,
        contention: Contention,
    ) -> None:
        """Why nothing was written: note what is stored already, or look again where the log ends."""
        reasons = error.reasons if isinstance(error, TransactionCanceled) else []
        positions, keys = reasons[1 : 1 + len(puts.entries)], reasons[1 + len(puts.entries) :]
        stored = await self._planner.note_originals(append, keyed(placed), keys)
        failed = sum(reason.code == FAILED for reason in reasons)
        if not stored or len(stored) not in (failed, len(placed)):  # more was in the way than retries
            append.conflicts += 1
        if not reasons or reasons[0].code == FAILED:
            await self._look_again(state, reasons[0] if reasons else None, contention)
        elif any(reason.code == FAILED for reason in positions):  # just being committed, or a wrong counter
            await self._states.look_closely(state)
        elif not stored:  # a member's row is not as it was: memory is wrong
            await self._states.refresh(state)
        # A retry is answered at once: it does not have to win the head.
        for index in await self._planner.answer_retries(append, state, stored):
            append.todo.remove(index)

    async def _look_again(
        self, state: DynamoChatState, reason: CancellationReason | None, contention: Contention
    ) -> None:
        """Where the log ends by now: as the refusal says, which costs nothing, or as the tables do."""
        contention.lost += 1
        counter = reason.item if reason is not None else None
        if counter is None:
            await asyncio.sleep(self._random() * HEAD_RETRY_SECONDS_MAX)  # nothing was learned
        await self._take_head(state, counter, contention)

    async def _take_head(self, state: DynamoChatState, counter: Item | None, contention: Contention) -> None:
        if counter is not None:
            contention.see(counter, _now())
        if counter is not None and is_whole(counter) and counter.get("membership_revision") == state.revision:
            state.take_head(counter)
            state.published = number(counter, "published_through")
        else:
            await self._states.refresh(state)

    # Claims

    async def _claim(self, state: DynamoChatState, contention: Contention) -> None:
        """Reserve the next position: no other append moves the head until this claim is too old."""
        claim = self._ids.next(EVENT, self._planner.clock())
        try:
            counter = await self._dynamo.update(
                COUNTERS,
                {"chat_id": state.chat_id},
                "SET head_claim = :claim",
                {":claim": claim},
                condition="attribute_exists(sequence_counter) AND attribute_not_exists(head_claim)",
                returns="ALL_NEW",
            )
        except ConditionFailed as failed:
            counter = failed.item or {}
        except OutcomeUnknown:
            return  # it may be there: then it is seen, and waited for like any other
        await self._take_head(state, counter or None, contention)
        contention.is_mine = contention.claim == claim

    async def _await_claim(self, state: DynamoChatState, contention: Contention) -> None:
        """Let the append with the claim go first; a claim that does not end is ended by the next append."""
        while (
            contention.claim is not None
            and not contention.is_mine
            and _now() < min(contention.wait_until, contention.give_up_at)
        ):
            await asyncio.sleep(CLAIM_LOOK_SECONDS)
            counter = await self._dynamo.get(COUNTERS, {"chat_id": state.chat_id})
            await self._take_head(state, counter, contention)

    async def _unclaim(self, state: DynamoChatState, contention: Contention) -> None:
        """Nothing was left to write: the others need not wait."""
        try:
            await self._dynamo.update(
                COUNTERS,
                {"chat_id": state.chat_id},
                "REMOVE head_claim",
                {":claim": contention.claim},
                condition="head_claim = :claim",
            )
        except StoreError:
            return  # it ends by itself

    async def seal_strays(self, state: DynamoChatState) -> None:
        """Voids at the numbers that the counter gave away, so that readers go on and the counter is whole."""
        through = state.stray_through or 0
        strays = await self._prefixes.missing(state, state.head, through)
        await self._prefixes.seal(state, strays, are_abandoned=True)
        if await self._mark_whole(state, through):
            state.head, state.stray_through = through, None
        else:
            await self._states.refresh(state)  # it moved meanwhile: the next look decides

    async def _mark_whole(self, state: DynamoChatState, through: int) -> bool:
        """Say that nothing is missing up to the counter; False when it is another one by now.

        The counter takes the revision that is remembered here, so it must still be the chat's: a block gives
        another one without a number.
        """
        key: Item = {"chat_id": state.chat_id}
        values: Item = {":through": through, ":revision": state.revision, ":epoch": state.epoch}
        actions: list[Action] = [
            UpdateItem(COUNTERS, key, MARK_WHOLE, values, "sequence_counter = :through"),
            ConditionCheck(CHATS, key, "membership_revision = :revision", {":revision": state.revision}),
        ]
        token = self._ids.next(EVENT, self._planner.clock())
        try:
            await retry_unknown(lambda: self._dynamo.transact(actions, token))
        except TransactionCanceled:
            return False
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
