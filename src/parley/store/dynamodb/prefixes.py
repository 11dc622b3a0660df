"""How far each log is resolved when numbers are taken before they are written (`two_phase`): on DynamoDB."""

from __future__ import annotations

from collections.abc import Iterable

from parley.clock import Clock
from parley.errors import StoreUnavailable
from parley.ids import EVENT, Ids
from parley.model import Persisted, StoredEntry
from parley.store.dynamodb.chat_state import DynamoChatState, DynamoChatStates
from parley.store.dynamodb.driver import (
    Action,
    CancellationReason,
    ConditionCheck,
    Dynamo,
    TransactionCanceled,
    retry_unknown,
)
from parley.store.dynamodb.entries import FAILED, put_void
from parley.store.dynamodb.schema import CHATS
from parley.store.entries import dense_end, missing_in
from parley.store.log_telemetry import count_resolved
from parley.store.two_phase import Prefixes
from parley.telemetry import Metrics
from parley.wire.limits import SEQUENCE_MAX

VOIDS_PER_TRANSACTION_MAX = 99
NOT_TRIMMED = "attribute_not_exists(trimmed_through) OR trimmed_through < :first"


class DynamoPrefixes(Prefixes[DynamoChatState]):
    def __init__(
        self,
        dynamo: Dynamo,
        states: DynamoChatStates,
        clock: Clock,
        make_ids: Ids,
        metrics: Metrics,
        seal_after_ms: int,
    ) -> None:
        super().__init__(states.known, clock, seal_after_ms)
        self._dynamo = dynamo
        self._states = states
        self._ids = make_ids
        self._metrics = metrics

    async def advance(self, state: DynamoChatState) -> int:
        """Read how far a log is resolved by now."""
        while True:
            start = state.resolved
            # A prefix ends where an item does, unless the log was trimmed within a bundle.
            is_border = start > state.trimmed
            found, is_all = await self._states.positions(
                state.chat_id, start, SEQUENCE_MAX, is_border=is_border
            )
            end = dense_end(start, found)
            state.resolved = max(state.resolved, end)
            state.head = max(state.head, found[-1] if found else 0)
            self.note(state.chat_id, missing_in(end, found))
            has_hole = end < start + len(found)
            if has_hole:
                await self._states.look(state)  # it may be missing because the log was cut off above it
            if state.resolved == end and (has_hole or is_all):
                return end

    async def missing(self, state: DynamoChatState, after: int, until: int) -> list[int]:
        """The positions of a stretch that do not exist."""
        missing: list[int] = []
        while after < until:
            found, is_all = await self._states.positions(state.chat_id, after, until, is_border=False)
            end = until if is_all else found[-1]
            missing += sorted(set(range(after + 1, end + 1)) - set(found))
            after = end
        return missing

    async def seal(
        self, state: DynamoChatState, positions: Iterable[int], *, are_abandoned: bool
    ) -> list[StoredEntry]:
        """In ascending order, those that follow each other together.

        Then a bundle that is written late begins at a void, and its condition fails. Only its first position
        is an item.
        """
        sealed: list[StoredEntry] = []
        ordered = sorted(positions)
        for start in range(0, len(ordered), VOIDS_PER_TRANSACTION_MAX):
            some = await self._seal_some(state, ordered[start : start + VOIDS_PER_TRANSACTION_MAX])
            resolved = [Persisted(state.chat_id, state.epoch, some)]
            count_resolved(self._metrics, resolved, are_voids_sealed=are_abandoned)
            sealed += some
        return sealed

    async def _seal_some(self, state: DynamoChatState, positions: list[int]) -> list[StoredEntry]:
        left = [at for at in positions if at > state.trimmed]
        while left:
            # Again after each attempt that failed: it may have met the first position of a bundle.
            left = sorted(set(left) & set(await self.missing(state, left[0] - 1, left[-1])))
            if not left:
                break
            try:
                await self._put_voids(state, left)
            except TransactionCanceled as error:
                still_open = _still_open(state, left, error.reasons)
                if len(still_open) == len(left):
                    raise StoreUnavailable(f"voids cannot be written: {error}") from error
                left = still_open
            else:
                break
        return [StoredEntry(at, None) for at in left]

    async def _put_voids(self, state: DynamoChatState, positions: list[int]) -> None:
        check = ConditionCheck(CHATS, {"chat_id": state.chat_id}, NOT_TRIMMED, {":first": positions[0]})
        voids: list[Action] = [put_void(state.chat_id, at, state.epoch) for at in positions]
        # Each try has its own token: of two nodes that seal a position, only the first may count it.
        token = self._ids.next(EVENT, self._clock())
        await retry_unknown(lambda: self._dynamo.transact([check, *voids], token))


def _still_open(state: DynamoChatState, positions: list[int], reasons: list[CancellationReason]) -> list[int]:
    """Which of these positions may still need a void after an attempt failed."""
    fence, voids = reasons[0], reasons[1:]
    if fence.code == FAILED:
        if fence.item is not None:
            state.see(fence.item)
        return [at for at in positions[1:] if at > state.trimmed]
    return [at for at, reason in zip(positions, voids, strict=True) if reason.code != FAILED]
