"""The conditional batch of a chat: the fence, entries, keys and voids of its open bucket, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.errors import OutcomeUnknown, StoreError
from parley.store.cassandra.append import AppendPlan, AppendPlanner, ListedMarks
from parley.store.cassandra.chat_state import CassandraChatState
from parley.store.cassandra.client import Cas
from parley.store.cassandra.connection import Statement
from parley.store.cassandra.effects import encode_effects
from parley.store.cassandra.schema import LOG
from parley.store.chat_append import Placed


class Withdrawn(StoreError):
    """The person who joins does not consent any more, or has changed something else: decide again."""


class ChatBatches:
    def __init__(self, planner: AppendPlanner, marks: ListedMarks | None) -> None:
        self._planner = planner
        self._cassandra = planner.states.cassandra
        self._marks = marks

    async def commit(
        self,
        state: CassandraChatState,
        plan: AppendPlan,
        placed: Sequence[Placed],
        sets: Mapping[str, object],
        conditions: Mapping[str, object],
        voids: Sequence[int] = (),
    ) -> Cas:
        """Written when it says so, with its effects. `Withdrawn`: nothing was."""
        joining = await self._reserve(state, plan)
        effects = self._planner.effects(state, plan, placed[0], joining)
        sets = dict(sets)
        first = min([placed[0].entry.sequence, *voids])
        conditions = {"revision =": plan.membership.revision, "trimmed_through <": first, **conditions}
        pending = None if effects is None else encode_effects(effects)
        if pending is not None:
            sets |= {"revision": self._planner.consents.make_revision(), "pending": pending}
            conditions["pending ="] = None
        if self._marks is not None:
            await self._list(self._marks, state, sets, conditions)
        batch = [
            fence_update(state.chat_id, plan.bucket, sets, conditions),
            *self._planner.rows.put(state, placed, voids),
        ]
        entries = [one.entry for one in placed]
        try:
            cas = await self._cassandra.resolve(
                lambda: self._cassandra.cas(*batch), lambda: self._planner.rows.are_there(state, entries)
            )
        except StoreError as error:
            if joining and not isinstance(error, OutcomeUnknown):
                await self._release(state, plan, joining)
            raise
        if not cas.is_applied:
            await self._release(state, plan, joining)
            return cas
        if pending is not None:
            await self._end_pending(state, plan.bucket, pending)
        return cas

    async def _end_pending(self, state: CassandraChatState, bucket: int, pending: bytes) -> None:
        """The change is in the log, and nobody sees it before its effects are written, by whomever."""
        state.is_stale = True
        try:
            await self._planner.states.end_pending(state.chat_id, bucket, pending)
        except StoreError as error:
            raise OutcomeUnknown("the effects of a change were not written") from error

    async def _list(
        self,
        marks: ListedMarks,
        state: CassandraChatState,
        sets: dict[str, object],
        conditions: dict[str, object],
    ) -> None:
        """The chat is on the list of those with news when the batch is done, or the batch is not."""
        conditions["listing ="] = state.listing
        if state.listing is None:
            sets["listing"] = await marks.list_chat(state)
        mark = marks.take_mark(state.chat_id)
        if mark is not None and mark > (state.published or 0):
            sets["published_through"] = mark

    async def _reserve(self, state: CassandraChatState, plan: AppendPlan) -> str:
        if plan.newcomer is None or not plan.indices:
            return ""
        joining = self._planner.consents.make_revision()
        if not await self._planner.consents.reserve(plan.newcomer, state.chat_id, joining):
            raise Withdrawn("decide again")
        return joining

    async def _release(self, state: CassandraChatState, plan: AppendPlan, joining: str) -> None:
        if joining and plan.newcomer is not None:
            await self._planner.consents.release(plan.newcomer.user_id, state.chat_id, joining)


def fence_update(
    chat_id: str, bucket: int, sets: Mapping[str, object], conditions: Mapping[str, object]
) -> Statement:
    """An update of the open bucket's fence. A condition is named by its column and its comparison."""
    setting = ", ".join(f"{name} = ?" for name in sets)
    condition = "".join(f" AND {name} ?" for name in conditions)
    cql = f"UPDATE {LOG} SET {setting} WHERE chat_id = ? AND bucket = ? IF is_closed = false{condition}"
    return cql, (*sets.values(), chat_id, bucket, *conditions.values())
