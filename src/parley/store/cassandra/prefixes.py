"""How far each log is resolved when numbers are taken before they are written (`two_phase`).

A missing position below one that exists is a hole: the append that took its number is slow, or gone. Readers
stop before it. A node remembers when it first saw a hole, and seals it with a void if it is still there after
a delay, whichever node took the number. A position is written once, so a late append takes another number.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from parley.clock import Clock
from parley.errors import StoreUnavailable
from parley.model import Persisted, StoredEntry
from parley.store.cassandra.batches import fence_update
from parley.store.cassandra.chat_state import NO_KEY, CassandraChatState, CassandraChatStates
from parley.store.cassandra.log_rows import PUT_VOID, READ_AT, VOID
from parley.store.entries import dense_end, missing_in
from parley.store.log_telemetry import count_resolved
from parley.telemetry import Metrics


class CassandraPrefixes:
    """The resolved prefixes of logs, and the holes that end them."""

    def __init__(
        self, states: CassandraChatStates, clock: Clock, metrics: Metrics, seal_after_ms: int
    ) -> None:
        self._states = states
        self._cassandra = states.cassandra
        self._clock = clock
        self._metrics = metrics
        self._seal_after_ms = seal_after_ms
        self._holes: dict[str, dict[int, int]] = {}
        self.under_way: dict[str, set[int]] = {}
        """Numbers that this node has taken and is still writing: it never seals them itself."""

    async def advance(self, state: CassandraChatState) -> int:
        """Read how far a log is resolved by now. A bucket that is closed is resolved to its end."""
        while True:
            bucket, start = state.bucket, max(state.resolved, state.bucket * self._states.bucket_positions)
            end_max = self._states.end_of(bucket)
            found = await self._states.positions(state.chat_id, start, end_max)
            end = dense_end(start, found)
            state.resolved = max(state.resolved, end)
            state.head = max(state.head, found[-1] if found else 0)
            self._note(state.chat_id, missing_in(end, found))
            if end < end_max:
                return state.resolved
            await self._states.refresh_fence(state)
            if state.bucket == bucket:
                return state.resolved

    def _note(self, chat_id: str, missing: Iterable[int]) -> None:
        """Remember since when these positions are missing."""
        before, now_ms = self._holes.pop(chat_id, {}), self._clock()
        holes = {position: before.get(position, now_ms) for position in missing}
        if holes:
            self._holes[chat_id] = holes

    async def seal_due(self) -> list[Persisted]:
        """Seal every hole that has been there for long enough, in all chats."""
        sealed = []
        for chat_id in list(self._holes):
            state = self._states.known(chat_id)
            if state is None:
                self._holes.pop(chat_id, None)
                continue
            await self.advance(state)
            positions = await self.seal_old(state)
            if positions:
                sealed.append(Persisted(chat_id, state.epoch, positions))
        return sealed

    async def seal_old(self, state: CassandraChatState) -> list[StoredEntry]:
        """Seal the holes of one chat that are old enough and not this node's own."""
        oldest_ms = self._clock() - self._seal_after_ms
        own = self.under_way.get(state.chat_id, set())
        holes = self._holes.get(state.chat_id, {})
        due = [at for at, seen_ms in holes.items() if seen_ms <= oldest_ms and at not in own]
        if not due:
            return []
        voids = await self.seal(state, due, are_abandoned=True)
        await self.advance(state)
        return voids

    async def seal(
        self, state: CassandraChatState, positions: Iterable[int], *, are_abandoned: bool
    ) -> list[StoredEntry]:
        """Write voids at these positions, except where the log has an entry by now.

        Only in the open bucket: in a closed one every position is resolved, and one to come waits for it.
        `are_abandoned`: another append took the numbers, and the operator is told that they were sealed.
        """
        due = [at for at in sorted(positions) if self._states.bucket_of(at) == state.bucket]
        sealed = [StoredEntry(at, None) for at in due if await self.put_void(state.chat_id, at)]
        resolved = [Persisted(state.chat_id, state.epoch, sealed)] if sealed else []
        count_resolved(self._metrics, resolved, are_voids_sealed=are_abandoned)
        return sealed

    async def put_void(self, chat_id: str, at: int) -> bool:
        """A bucket that was closed meanwhile has something at every position, so this writes nothing."""
        bucket = self._states.bucket_of(at)
        put = (PUT_VOID, (chat_id, bucket, at, NO_KEY))

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

    def take(self, chat_id: str, numbers: Iterable[int]) -> None:
        self.under_way.setdefault(chat_id, set()).update(numbers)

    def give_back(self, chat_id: str, numbers: Iterable[int]) -> None:
        """These are written, sealed or abandoned: this node no longer writes them."""
        own = self.under_way.get(chat_id)
        if own is not None:
            own.difference_update(numbers)
            if not own:
                del self.under_way[chat_id]
