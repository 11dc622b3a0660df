"""How far each log is resolved when numbers are taken before they are written (`two_phase`): on Cassandra."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from parley.clock import Clock
from parley.errors import StoreUnavailable
from parley.model import Persisted, StoredEntry
from parley.store.cassandra.batches import fence_update
from parley.store.cassandra.chat_state import NO_KEY, CassandraChatState, CassandraChatStates
from parley.store.cassandra.log_rows import READ_AT, SEAL, VOID
from parley.store.entries import dense_end, missing_in
from parley.store.log_telemetry import count_resolved
from parley.store.two_phase import Prefixes
from parley.telemetry import Metrics


class CassandraPrefixes(Prefixes[CassandraChatState]):
    def __init__(
        self, states: CassandraChatStates, clock: Clock, metrics: Metrics, seal_after_ms: int
    ) -> None:
        super().__init__(states.known, clock, seal_after_ms)
        self._states = states
        self._cassandra = states.cassandra
        self._metrics = metrics

    async def advance(self, state: CassandraChatState) -> int:
        """Read how far a log is resolved by now. A bucket that is closed is resolved to its end."""
        while True:
            bucket, start = state.bucket, max(state.resolved, self._states.start_of(state))
            end_max = self._states.end_of(bucket)
            found = await self._states.positions(state.chat_id, start, end_max)
            end = dense_end(start, found)
            if found and end < found[-1]:
                await self._states.refresh_fence(state)
                if self._states.start_of(state) > start:  # no hole: it was trimmed meanwhile
                    continue
            state.resolved = max(state.resolved, end)
            state.head = max(state.head, found[-1] if found else 0)
            self.note(state.chat_id, missing_in(end, found))
            if end < end_max:
                return state.resolved
            await self._states.refresh_fence(state)
            if state.bucket == bucket:
                return state.resolved

    async def seal(
        self, state: CassandraChatState, positions: Iterable[int], *, are_abandoned: bool
    ) -> list[StoredEntry]:
        """Only in the open bucket: a closed one is resolved, and one to come waits for it."""
        due = [at for at in sorted(positions) if self._states.bucket_of(at) == state.bucket]
        sealed = [StoredEntry(at, None) for at in due if await self.put_void(state.chat_id, at)]
        resolved = [Persisted(state.chat_id, state.epoch, sealed)] if sealed else []
        count_resolved(self._metrics, resolved, are_voids_sealed=are_abandoned)
        return sealed

    async def put_void(self, chat_id: str, at: int) -> bool:
        """Writes nothing where something is or was: a closed bucket is full, unless it was trimmed."""
        bucket = self._states.bucket_of(at)
        put = (SEAL, (chat_id, bucket, at, NO_KEY, at))

        async def is_void() -> bool:
            found = await self._cassandra.row(READ_AT, chat_id, bucket, at, is_serial=True)
            return found is not None and found["kind"] == VOID

        return (await self._cassandra.resolve(partial(self._cassandra.cas, put), is_void)).is_applied

    async def fill(self, state: CassandraChatState, after: int, through: int) -> None:
        """Voids at all positions of a stretch that do not exist, from one bucket to the next."""
        while after < through:
            end = min(through, self._states.end_of(state.bucket))
            there = set(await self._states.positions(state.chat_id, after, end))
            missing = [at for at in range(after + 1, end + 1) if at not in there]
            await self.seal(state, missing, are_abandoned=True)
            after = end
            if after < through:
                before = state.bucket
                await self._states.roll(state)
                if state.bucket == before:
                    raise StoreUnavailable("the next bucket cannot be opened")

    async def mark_whole(self, state: CassandraChatState, through: int) -> None:
        """Say that nothing is missing up to the counter, if it is still this one."""
        update = fence_update(
            state.chat_id, state.bucket, {"written_through": through}, {"sequence_counter =": through}
        )
        await self._cassandra.cas(update)
