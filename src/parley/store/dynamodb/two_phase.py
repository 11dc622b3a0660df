"""Sequencing `two_phase`: numbers are taken first, from any allocator, and written at second.

The five steps of the design: look the key up, check membership, allocate, write the entries with their keys,
publish. Made safe by the conditions of the write: each position is written once, the membership is still
the one that was checked, nothing at or above the first position has been trimmed, and a change of the
membership comes after everything that was written under the old one. An ack is given only when its position
is visible, that is when every number below it is written or sealed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set

import structlog
from msgspec import Struct, field

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
from parley.store.dynamodb.changes import deeds_of, is_about_members
from parley.store.dynamodb.client import Reason, TransactionCanceled
from parley.store.dynamodb.committing import Lost, commit
from parley.store.dynamodb.entries import KEYS, is_live, key_of, put_void
from parley.store.dynamodb.fences import Marks, ride, set_clauses
from parley.store.dynamodb.prefixes import FAILED, Prefixes
from parley.store.dynamodb.states import CHATS, ChatState
from parley.store.dynamodb.values import Item
from parley.store.ports import Allocator
from parley.store.rules import STRAY_POSITIONS_MAX
from parley.store.tracing import trace_allocated, trace_races
from parley.telemetry import Metrics

ROUNDS_MAX = 20
VISIBLE_LOOK_SECONDS = 0.02
VISIBLE_LOOK_SECONDS_MAX = 0.25
FENCE = (
    "membership_revision = :revision AND (attribute_not_exists(trimmed_through) OR trimmed_through < :first)"
)
IS_LAST = "(attribute_not_exists(last_sequence) OR last_sequence < :last)"
"""Nothing above it has been written. Whoever finds that he is overtaken writes without this, if he may."""

NONE: Set[int] = frozenset()

Hold = Callable[[str], Awaitable[None] | None]

log = structlog.get_logger("parley.store")


class Attempt(Struct):
    """The numbers that a run has taken: what is to be written there, and which of them are given up."""

    run: Run
    placed: list[Placed]
    voids: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        return min([self.placed[0].entry.sequence, *self.voids])

    @property
    def last(self) -> int:
        return self.placed[-1].entry.sequence

    @property
    def must_be_last(self) -> bool:
        return is_about_members(self.placed[0].draft)

    def give_up(self, work: Work) -> None:
        """Other numbers must be taken for all that is left."""
        self.sort(work, late={one.index for one in self.placed})

    def sort(
        self, work: Work, *, out: Set[int] = NONE, late: Set[int] = NONE, taken: Set[int] = NONE
    ) -> None:
        """Keep what can still be written at its number; the rest is decided again, if it has no outcome.

        `out`: what may not be written. `late`: what must take another number, and for the order's sake all
        that come after it. `taken`: whose number is somebody else's, so that it needs no void.
        """
        placed, self.placed = self.placed, []
        is_late, unwritten = False, set[bytes | None]()
        for one in placed:
            is_late = is_late or one.index in late
            follows = one.draft.after_key is not None and one.draft.after_key in unwritten
            if not (is_late or follows or one.index in out):
                self.placed.append(one)
                continue
            if one.index not in work.outcomes:
                work.put_back([one.index])
            if not isinstance(work.outcomes.get(one.index), Appended):
                unwritten.add(one.draft.client_key)
            if one.index not in taken:
                self.voids.append(one.entry.sequence)


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
        append_seconds: float,
    ) -> None:
        self._append_seconds = append_seconds
        self._desk = desk
        self._allocator = allocator
        self._prefixes = prefixes
        self._ids = make_ids
        self._metrics = metrics
        self._marks = marks
        self._reach = reach
        self._hold = hold

    async def append(self, work: Work, state: ChatState) -> None:
        """Write what is to do; what was written is acknowledged once it is visible, whatever fails later."""
        give_up_at = asyncio.get_running_loop().time() + self._append_seconds
        work.epoch = state.epoch
        failure: StoreError | None = None
        try:
            async with state.lock:
                await self._write_all(work, state)
        except StoreError as error:
            failure = error
        await self._await_visible(work, state, give_up_at)
        if failure is not None:
            raise failure

    async def _write_all(self, work: Work, state: ChatState) -> None:
        """Each run of drafts takes its numbers, and again if they were sealed."""
        for _ in range(ROUNDS_MAX + len(work.drafts)):
            if not work.todo:
                return
            answered = await self._answer_known(work, state)
            run = await self._desk.next_run(work, state, answered)
            if run.indices:
                await self._allocate_and_write(work, state, run)
        if work.todo:
            raise StoreUnavailable("its numbers were sealed too often")

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
        if state.is_stale:
            await self._desk.states.refresh(state)  # perhaps by a change of members in the same batch
        known = await self._desk.states.know(state, (draft.sender_id for draft in drafts.values()))
        stored: dict[int, Item] = {}
        for index, draft in drafts.items():
            key = draft.client_key and found.get(key_of(state.chat_id, draft.client_key)["client_message_id"])
            if key:
                stored[index] = key
        pairs = [(drafts[index], key) for index, key in stored.items()]
        answers = await self._desk.answer_keys(state, known, pairs)
        return dict(zip(stored, answers, strict=True))

    async def _allocate_and_write(self, work: Work, state: ChatState, run: Run) -> None:
        numbers = await self._allocate(state, len(run.indices))
        if isinstance(numbers, Refusal):
            for index in [*run.indices, *(index for index, _ in run.twins)]:
                work.outcomes[index] = numbers
            return
        self._prefixes.take(state.chat_id, numbers)
        trace_allocated([work.drafts[index] for index in run.indices], numbers)
        try:
            self._reach("after_allocate")
            held = self._hold("after_allocate")
            if held is not None:
                await held
            placed = self._desk.place(work, state, run.indices, numbers)
            await self._write(work, state, Attempt(run, placed))
        finally:
            self._prefixes.give_back(state.chat_id, numbers)

    async def _allocate(self, state: ChatState, count: int) -> list[int] | Refusal:
        """Step 3: numbers that nobody else has, or why there are none."""
        started = self._metrics.now()
        try:
            last = await self._allocator.allocate(state.chat_id, count, state.head)
        except CounterMissingError:
            return COUNTER_MISSING
        except InconsistentCounterError as error:
            return COUNTER_INCONSISTENT.because(str(error))
        self._metrics.time_allocation(self._metrics.now() - started)
        first = last - count + 1
        if first - 1 - state.head > STRAY_POSITIONS_MAX:
            end = await self._desk.states.last_position(state.chat_id)
            state.head = max(state.head, end)
            if first - 1 - state.head > STRAY_POSITIONS_MAX:
                return COUNTER_INCONSISTENT.because(f"Counter is {last} but the log ends at {end}")
        return list(range(first, last + 1))

    async def _write(self, work: Work, state: ChatState, attempt: Attempt) -> None:
        """Step 4, until every number is an entry or a void, or belongs to somebody who was faster."""
        for _ in range(ROUNDS_MAX):
            if attempt.placed and attempt.must_be_last and state.head > attempt.last:
                attempt.give_up(work)
            if not attempt.placed:
                await self._seal_given_up(work, state, attempt)
                return
            self._reach("before_write")
            actions = self._actions(state, attempt)
            token = self._ids.next(EVENT, self._desk.clock())
            try:
                await commit(self._desk.dynamo, actions, token, [one.entry for one in attempt.placed])
            except (TransactionCanceled, Lost) as error:
                work.conflicts += 1
                await self._reconsider(work, state, attempt, error)
            except OutcomeUnknown:
                work.leave_open(attempt.placed)
                self._desk.answer_twins(work, attempt.run)
                state.is_stale = True
                raise
            else:
                self._reach("after_commit_before_ack")
                self._settle(work, state, attempt)
                return
        raise StoreUnavailable("the conditions of its write failed too often")

    async def _seal_given_up(self, work: Work, state: ChatState, attempt: Attempt) -> None:
        try:
            work.positions += await self._prefixes.seal(state, attempt.voids)
        except StoreError as error:  # they are holes now, which whoever meets them will seal
            now, count = asyncio.get_running_loop().time(), len(attempt.voids)
            if (more := self._metrics.lines.admit("numbers given up", now)) is not None:
                log.info("numbers given up", chat_id=state.chat_id, count=count, reason=str(error), **more)
        self._desk.answer_twins(work, attempt.run)

    def _settle(self, work: Work, state: ChatState, attempt: Attempt) -> None:
        state.head = max(state.head, attempt.last)
        state.is_stale = state.is_stale or attempt.placed[0].draft.change is not None
        work.positions += [Stored(void, None) for void in attempt.voids]
        self._metrics.gaps.add(len(attempt.voids), len(attempt.voids) + len(attempt.placed))
        self._desk.settle(work, state, attempt.run, attempt.placed)

    def _actions(self, state: ChatState, attempt: Attempt) -> list[Action]:
        """The whole transaction: the fence, entries, keys, and voids at the numbers that were given up."""
        values: Item = {":revision": attempt.run.known.revision, ":first": attempt.first}
        values[":resolved"] = state.resolved
        expression, condition, names = "SET resolved_through = :resolved", FENCE, None
        if state.head < attempt.last:
            values[":last"] = attempt.last
            expression, condition = f"{expression}, last_sequence = :last", f"{FENCE} AND {IS_LAST}"
        actions = self._desk.puts(attempt.placed)
        actions += [put_void(state.chat_id, void, state.epoch) for void in attempt.voids]
        draft = attempt.placed[0].draft
        if draft.change is not None:
            now = iso(self._desk.clock())
            deeds = deeds_of(draft, state, attempt.run.known.roles, attempt.last, now)
            if deeds.rows:
                deeds.chat["membership_revision"] = self._ids.next(EVENT, self._desk.clock())
            clauses, names = set_clauses(deeds.chat, values)
            expression += clauses
            actions += deeds.rows
        if self._marks is not None:
            expression += ride(self._marks, state.chat_id, values)
        return [Update(CHATS, {"chat_id": state.chat_id}, expression, values, condition, names), *actions]

    async def _reconsider(
        self, work: Work, state: ChatState, attempt: Attempt, error: TransactionCanceled | Lost
    ) -> None:
        """What is left to write after a condition failed, and which numbers are given up."""
        reasons = error.reasons if isinstance(error, TransactionCanceled) else []
        if reasons and reasons[0].code == FAILED:
            await self._look_at_fence(work, state, attempt, reasons[0].item or {})
        elif not await self._sort_out(work, state, attempt, reasons[1:]):
            state.is_stale = True  # its first number was sealed, or a member's row is not as it was
            attempt.give_up(work)

    async def _look_at_fence(self, work: Work, state: ChatState, attempt: Attempt, chat: Item) -> None:
        """The membership has changed, the log was cut off, or somebody has overtaken us, which is no harm."""
        if chat:
            state.see(chat)
        attempt.voids = [void for void in attempt.voids if void > state.trimmed]
        if attempt.placed[0].entry.sequence <= state.trimmed:
            attempt.give_up(work)
        elif chat.get("membership_revision") != attempt.run.known.revision:
            await self._decide_again(work, state, attempt)

    async def _decide_again(self, work: Work, state: ChatState, attempt: Attempt) -> None:
        """Who was in the chat before his number, and still is, may write there; others are looked at anew."""
        states, placed = self._desk.states, attempt.placed
        await states.refresh(state)
        known = await states.know(state, [one.draft.sender_id for one in placed])
        joined = await states.joined(state, known.roles.keys() & {one.draft.sender_id for one in placed})
        attempt.run = attempt.run._replace(known=known)
        attempt.sort(
            work,
            out={one.index for one in placed if one.draft.sender_id not in joined},
            late={
                one.index
                for one in placed
                if one.draft.change is not None or joined.get(one.draft.sender_id, 0) >= one.entry.sequence
            },
        )

    async def _sort_out(self, work: Work, state: ChatState, attempt: Attempt, reasons: list[Reason]) -> bool:
        """Take out what is stored already or was sealed; False when the reasons name neither."""
        placed, with_keys = attempt.placed, keyed(attempt.placed)
        positions, rest = reasons[: len(placed)], reasons[len(placed) :]
        sealed = {one.index for one, at in zip(placed, positions, strict=False) if at.code == FAILED}
        keys = [(one, at) for one, at in zip(with_keys, rest, strict=False) if at.code == FAILED]
        gone = zip(attempt.voids, rest[len(with_keys) :], strict=False)
        voids_gone = {void for void, at in gone if at.code == FAILED}
        if not (sealed or keys or voids_gone):
            return False
        state.is_stale = state.is_stale or bool(sealed)
        met = [(one.draft, reason) for one, reason in keys]
        answers = await self._desk.answer_duplicates(state, attempt.run.known, met)
        for (one, _), answer in zip(keys, answers, strict=True):
            work.outcomes[one.index] = answer
            trace_races([one.draft], [one.entry.sequence], [answer])
        stored = {one.index for one, _ in keys}
        attempt.voids = [void for void in attempt.voids if void not in voids_gone]
        attempt.sort(work, out=stored, late=sealed - stored, taken=sealed)
        return True

    async def _await_visible(self, work: Work, state: ChatState, give_up_at: float) -> None:
        """An ack means that every reader sees it: wait for the numbers below, or seal what was abandoned.

        A number that nobody writes is sealed later than a sender waits: then the outcome is open, the chat
        goes on behind it, and a retry finds what is stored.
        """
        appended = [outcome for outcome in work.outcomes.values() if isinstance(outcome, Appended)]
        last = max((outcome.sequence for outcome in appended), default=0)
        loop, pause = asyncio.get_running_loop(), VISIBLE_LOOK_SECONDS
        while state.resolved < last:
            try:
                if await self._prefixes.advance(state) >= last:
                    return
                sealed = await self._prefixes.seal_old(state)
                work.positions += sealed
            except StoreError:
                sealed = []
            if loop.time() > give_up_at:
                self._doubt(work, state.resolved)
                return
            if not sealed:
                await asyncio.sleep(pause)
                pause = min(pause * 2, VISIBLE_LOOK_SECONDS_MAX)

    @staticmethod
    def _doubt(work: Work, resolved: int) -> None:
        """It is stored, but nobody can see it yet: not to be acknowledged. A retry will find it."""
        for index, outcome in work.outcomes.items():
            if isinstance(outcome, Appended) and outcome.sequence > resolved:
                work.outcomes[index] = OUTCOME_UNKNOWN
