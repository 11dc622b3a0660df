"""Sequencing `atomic`: the head is compared and advanced in the same transaction as the entries.

No gap can form, and a position that the head covers and that does not exist was given away by somebody else
(a counter of two_phase, or a hand): nobody will write it, so it is sealed at once.

Two nodes that append to the same chat race for the head. The loser learns the new head with its refusal and
tries again at once. One whose store answers late learns it too late every time: it claims the head, and the
others let it go first. See docs/the-log-on-dynamodb.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.clock import iso
from parley.errors import OutcomeUnknown, StoreError, StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import Draft, Persisted
from parley.store.counting import count_sealed
from parley.store.dynamodb.actions import Action, Check, Update
from parley.store.dynamodb.appending import Desk, Placed, Run, Work, keyed
from parley.store.dynamodb.changes import deeds_of
from parley.store.dynamodb.client import ConditionFailed, Dynamo, Reason, TransactionCanceled
from parley.store.dynamodb.committing import Lost, commit
from parley.store.dynamodb.fences import Marks, ride, update_chat
from parley.store.dynamodb.prefixes import FAILED, Prefixes
from parley.store.dynamodb.states import CHATS, COUNTERS, ChatState, ChatStates, is_whole, number
from parley.store.dynamodb.together import repeated
from parley.store.dynamodb.values import Item
from parley.store.ports import APPEND_SECONDS_MAX
from parley.telemetry import Metrics

RACES_LOST_MAX = 2
"""Who has lost so many in one append claims the head."""
CLAIM_SECONDS_MAX = 1.0
"""After so long nobody waits for a claim any more: its node is gone, or too slow for everybody."""
CLAIM_LOOK_SECONDS = 0.05
assert CLAIM_SECONDS_MAX < APPEND_SECONDS_MAX, "whoever waits for a claim still appends"
HEAD_RETRY_SECONDS_MAX = 0.05

HEAD_CONDITION = "sequence_counter = :head AND membership_revision = :revision"
UNCLAIMED = " AND attribute_not_exists(head_claim)"
CLAIMED = " AND head_claim = :claim"
MARK_WHOLE = "SET written_through = :through, membership_revision = :revision, epoch = :epoch"
ADVANCE = "SET sequence_counter = :next, written_through = :next, updated_at = :now"


class Race:
    """One append among others: how often it lost, and the claim that it has, or has seen and waits for."""

    __slots__ = ("claim", "give_up_at", "is_mine", "lost", "wait_until")

    def __init__(self, give_up_at: float) -> None:
        self.give_up_at = give_up_at
        self.lost = 0
        self.claim: str | None = None
        self.is_mine = False
        self.wait_until = 0.0

    def see(self, counter: Item, now: float) -> None:
        """Somebody's claim stands there, perhaps since long ago: it is waited for, from the first look on."""
        claim = counter.get("head_claim")
        if claim != self.claim:
            self.claim = claim if isinstance(claim, str) else None
            self.is_mine, self.wait_until = False, now + CLAIM_SECONDS_MAX


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
        append_seconds: float,
    ) -> None:
        self._append_seconds = append_seconds
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
        race = Race(_now() + self._append_seconds)
        async with state.lock:
            try:
                await self._append(work, state, race)
            finally:
                if race.is_mine:
                    await self._unclaim(state, race)

    async def _append(self, work: Work, state: ChatState, race: Race) -> None:
        while work.todo:
            if _now() > race.give_up_at:
                raise StoreUnavailable("too many nodes write to this chat at once")
            if race.lost >= RACES_LOST_MAX and race.claim is None:
                await self._claim(state, race)
            if race.claim is not None and not race.is_mine:
                await self._await_claim(state, race)
            if state.stray_through is not None:
                await self.seal_strays(state)
            run = await self._desk.next_run(work, state, {})
            if run.indices:
                await self._write(work, state, run, race)

    async def _write(self, work: Work, state: ChatState, run: Run, race: Race) -> None:
        head = state.head
        numbers = list(range(head + 1, head + 1 + len(run.indices)))
        placed = self._desk.place(work, state, run.indices, numbers)
        revision, actions = self._actions(state, run, placed, race.claim)
        self._reach("before_write")
        token = self._ids.next(EVENT, self._desk.clock())
        started = self._metrics.now()
        try:
            await commit(self._dynamo, actions, token, [one.entry for one in placed])
        except (TransactionCanceled, Lost) as error:
            work.conflicts += 1
            work.put_back(run.indices)
            await self._learn(work, state, run, placed, error, race)
            self._desk.answer_twins(work, run)
        except OutcomeUnknown:
            work.leave_open(placed)
            self._desk.answer_twins(work, run)
            state.is_stale = True
            raise
        else:
            self._metrics.time_allocation(self._metrics.now() - started)
            self._metrics.gaps.add(0, len(placed))
            self._reach("after_commit_before_ack")
            race.lost, race.claim, race.is_mine = 0, None, False
            state.head = numbers[-1]
            state.is_stale = revision != state.revision
            self._desk.settle(work, state, run, placed)

    def _actions(
        self, state: ChatState, run: Run, placed: list[Placed], claim: str | None
    ) -> tuple[str, list[Action]]:
        """The whole transaction, and the membership's revision after it. It ends a claim, if there is one."""
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
        condition = HEAD_CONDITION + UNCLAIMED
        if claim is not None:
            values[":claim"] = claim
            condition, expression = HEAD_CONDITION + CLAIMED, expression + " REMOVE head_claim"
        head = Update(COUNTERS, {"chat_id": state.chat_id}, expression, values, condition)
        return revision, [head, *actions]

    async def _learn(
        self,
        work: Work,
        state: ChatState,
        run: Run,
        placed: list[Placed],
        error: TransactionCanceled | Lost,
        race: Race,
    ) -> None:
        """Why nothing was written: answer what is stored already, or look again where the log ends."""
        reasons = error.reasons if isinstance(error, TransactionCanceled) else []
        positions, keys = reasons[1 : 1 + len(placed)], reasons[1 + len(placed) :]
        duplicates = [
            (one, reason) for one, reason in zip(keyed(placed), keys, strict=False) if reason.code == FAILED
        ]
        if not reasons or reasons[0].code == FAILED:
            await self._look_again(state, reasons[0] if reasons else None, race)
            duplicates = [(one, reason) for one, reason in duplicates if _is_original(reason, one.draft)]
        elif any(reason.code == FAILED for reason in positions):  # just being committed, or a wrong counter
            await self._states.look_closely(state)
        elif not duplicates:  # a member's row is not as it was: memory is wrong
            await self._states.refresh(state)
        if duplicates:
            await self._answer_duplicates(work, state, run, duplicates)

    async def _answer_duplicates(
        self, work: Work, state: ChatState, run: Run, duplicates: list[tuple[Placed, Reason]]
    ) -> None:
        met = [(one.draft, reason) for one, reason in duplicates]
        answers = await self._desk.answer_duplicates(state, run.known, met)
        for (one, reason), answer in zip(duplicates, answers, strict=True):
            work.outcomes[one.index] = answer
            work.todo.remove(one.index)
            if one.draft.client_key is not None and reason.item is not None:
                work.found[one.draft.client_key] = reason.item

    async def _look_again(self, state: ChatState, reason: Reason | None, race: Race) -> None:
        """Where the log ends by now: as the refusal says, which costs nothing, or as the tables do."""
        race.lost += 1
        counter = reason.item if reason is not None else None
        if counter is None:
            await asyncio.sleep(self._random() * HEAD_RETRY_SECONDS_MAX)  # nothing was learned
        await self._take_head(state, counter, race)

    async def _take_head(self, state: ChatState, counter: Item | None, race: Race) -> None:
        if counter is not None:
            race.see(counter, _now())
        if counter is not None and is_whole(counter) and counter.get("membership_revision") == state.revision:
            state.head = number(counter, "sequence_counter")
            state.published = number(counter, "published_through")
        else:
            await self._states.refresh(state)

    # Claims

    async def _claim(self, state: ChatState, race: Race) -> None:
        """Have the next position: from the answer on, nobody else moves the head before this claim is old."""
        claim = self._ids.next(EVENT, self._desk.clock())
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
            return  # it may stand there: then it is seen, and waited for like any other
        await self._take_head(state, counter or None, race)
        race.is_mine = race.claim == claim

    async def _await_claim(self, state: ChatState, race: Race) -> None:
        """Let whoever claims the head go first; a claim that does not end is ended by the next append."""
        while race.claim is not None and not race.is_mine and _now() < min(race.wait_until, race.give_up_at):
            await asyncio.sleep(CLAIM_LOOK_SECONDS)
            counter = await self._dynamo.get(COUNTERS, {"chat_id": state.chat_id})
            await self._take_head(state, counter, race)

    async def _unclaim(self, state: ChatState, race: Race) -> None:
        """Nothing was left to write: nobody has to wait."""
        try:
            await self._dynamo.update(
                COUNTERS,
                {"chat_id": state.chat_id},
                "REMOVE head_claim",
                {":claim": race.claim},
                condition="head_claim = :claim",
            )
        except StoreError:
            return  # it ends by itself

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


def _is_original(reason: Reason, draft: Draft) -> bool:
    """Whether a draft is stored already, whatever else has changed: nothing has to be read to say so."""
    return reason.item is not None and reason.item["sender_id"] == draft.sender_id


def _now() -> float:
    return asyncio.get_running_loop().time()
