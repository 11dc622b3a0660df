"""Messages that could not be delivered, until they expire.

They are in shards by a hash of their id. There are also two lists, so that nobody looks through all for
some: those that are pending, and those that wait for their replay, by recipient, chat and sequence. A
dead letter is on a list before it says so itself, and stays there until it says something else: what a crash
leaves is a line too many, never one too few. Who meets such a line removes it when it is old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from hashlib import sha256
from itertools import groupby
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock
from parley.concurrency import map_concurrently
from parley.core.deliveries import (
    DEAD_LETTER_SHARDS,
    DeadLetter,
    DeadLetterStatus,
    DeliveryEvent,
    PendingDeadLetter,
    QueuedDeadLetter,
    Selection,
    discarded_dead_letter,
    is_selected,
    pending_line,
    queue_line,
    queued_dead_letter,
    shard_of,
)
from parley.store.ports import Records
from parley.store.tables import (
    DEAD_LETTERS,
    PENDING_DEAD_LETTERS,
    QUEUED_DEAD_LETTERS,
    Key,
    PutRecord,
    RemoveRecord,
)

NOTE_MS = 10 * 60_000
"""A line that is older, and says something else than its dead letter, was left by a process that died."""
PAGE = 200
SHARDS_AT_ONCE_MAX = 8
WRITES_AT_ONCE_MAX = 16
PENDING_ONLY = Selection(status=DeadLetterStatus.PENDING)

T = TypeVar("T")

Change = Callable[[DeadLetter], DeadLetter]


class Snapshot(Struct, frozen=True):
    """Which dead letters were selected at a time. `pending`: how many could be replayed or discarded."""

    ids: frozenset[str] = frozenset()
    pending: int = 0
    chats: int = 0
    oldest_ms: int | None = None

    @property
    def digest(self) -> str:
        """The same for the same dead letters, whatever has become of them."""
        return sha256("\n".join(sorted(self.ids)).encode()).hexdigest()


class DeadLetters:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def add(self, dead_letter: DeadLetter) -> bool:
        """Durable before it returns. False, and nothing changes, if its id is known."""
        await self._records.commit(
            PENDING_DEAD_LETTERS, [PutRecord(pending_line(dead_letter, self._clock()))]
        )
        if await self._records.commit(DEAD_LETTERS, [PutRecord(dead_letter, before=None)]):
            return True
        known = await self._get([dead_letter.dlq_id])
        if not any(one.status is DeadLetterStatus.PENDING for one in known):
            await self._no_longer_pending(dead_letter)
        return False

    async def find(self, selection: Selection, before_id: str, limit: int) -> list[DeadLetter]:
        """Those selected, the highest id first: those with a lower id than `before_id`, if it is given."""

        async def look(shard: int) -> list[DeadLetter]:
            found: list[DeadLetter] = []
            async for dead_letters in self._pages(shard, selection, before_id):
                found += dead_letters
                if len(found) >= limit:
                    break
            return found

        if selection.ids is not None:
            found = [one for one in await self._by_ids(selection) if not before_id or one.dlq_id < before_id]
        else:
            found = await self._in_shards(look)
        return sorted(found, key=lambda dead_letter: dead_letter.dlq_id, reverse=True)[:limit]

    async def count(self, selection: Selection) -> dict[str, int]:
        """How many are selected, by error. Of those that are pending alone, by their list."""

        async def errors(shard: int) -> list[str]:
            if selection == PENDING_ONLY:
                return [line.error async for lines in self._pending(shard) for line in lines]
            return [one.error async for dead_letters in self._pages(shard, selection) for one in dead_letters]

        if selection.ids is not None:
            return dict(Counter(dead_letter.error for dead_letter in await self._by_ids(selection)))
        return dict(Counter(await self._in_shards(errors)))

    async def snapshot(self, selection: Selection) -> Snapshot:
        """Which dead letters are selected now."""

        async def look(shard: int) -> list[DeadLetter]:
            return [one async for dead_letters in self._pages(shard, selection) for one in dead_letters]

        if selection.ids is not None:
            dead_letters = await self._by_ids(selection)
        else:
            dead_letters = await self._in_shards(look)
        pending = [
            dead_letter for dead_letter in dead_letters if dead_letter.status is DeadLetterStatus.PENDING
        ]
        return Snapshot(
            frozenset(dead_letter.dlq_id for dead_letter in dead_letters),
            len(pending),
            len({dead_letter.chat_id for dead_letter in pending}),
            min((dead_letter.dlq_ms for dead_letter in pending), default=None),
        )

    async def visit(self, selection: Selection, note: Callable[[DeadLetter], None]) -> None:
        """Call it with each that is selected, in no order."""

        async def look(shard: int) -> list[None]:
            async for dead_letters in self._pages(shard, selection):
                for dead_letter in dead_letters:
                    note(dead_letter)
            return []

        await self._in_shards(look)

    async def queue(
        self, selection: Selection, job_id: str, event: DeliveryEvent, only: Collection[str] | None = None
    ) -> int:
        """Those selected that are pending and not queued wait for their replay, with retry count 0.

        Durable before it returns; returns how many. `event` is added to their history, which keeps its first
        event and the latest ones, `HISTORY_EVENTS_MAX` in all. If it fails, some may be queued: those of a
        chat that come first. It may be repeated, and queues each once at most. `only`: none but these.
        """
        return await self._change(
            selection,
            lambda dead_letter: not dead_letter.is_queued and (only is None or dead_letter.dlq_id in only),
            lambda dead_letter: queued_dead_letter(dead_letter, job_id, event),
        )

    async def discard(
        self, selection: Selection, job_id: str, event: DeliveryEvent, only: Collection[str] | None = None
    ) -> int:
        """Those selected that are pending have failed permanently, also if they were queued. As `queue`."""
        return await self._change(
            selection,
            lambda dead_letter: only is None or dead_letter.dlq_id in only,
            lambda dead_letter: discarded_dead_letter(dead_letter, job_id, event),
        )

    async def queued(self, prefix: str, limit: int) -> list[DeadLetter]:
        """The first `limit` queued dead letters of each recipient and chat, by recipient, chat and sequence.

        Only of recipients whose id begins with the prefix.
        """

        async def look(shard: int) -> list[DeadLetter]:
            lines = [line async for line in self._queue(shard, prefix)]
            queues = groupby(lines, key=lambda line: (line.recipient, line.chat_id))
            fronts = [line for _, queue in queues for line in list(queue)[:limit]]
            dead_letters = {one.dlq_id: one for one in await self._get([line.dlq_id for line in fronts])}
            found = []
            for line in fronts:
                dead_letter = dead_letters.get(line.dlq_id)
                if dead_letter is not None and dead_letter.is_queued:
                    found.append(dead_letter)
                elif line.since_ms < self._clock() - NOTE_MS:
                    await self._records.commit(
                        QUEUED_DEAD_LETTERS, [RemoveRecord(QUEUED_DEAD_LETTERS.key(line), before=line)]
                    )
            return found

        found = await self._in_shards(look)
        return sorted(
            found, key=lambda dead_letter: (dead_letter.recipient, dead_letter.chat_id, dead_letter.sequence)
        )

    async def settle(self, dead_letter: DeadLetter) -> bool:
        """Replace a dead letter, durable before it returns.

        False, and nothing is written, unless the stored version is the dead letter's: somebody was faster.
        """
        found = await self._get([dead_letter.dlq_id])
        if not found or found[0].version != dead_letter.version:
            return False
        return await self._write(found[0], replace(dead_letter, version=dead_letter.version + 1))

    async def expire(self, before_ms: int) -> int:
        """Delete what has not changed since then and is not queued; returns how many."""

        async def expire_one(dead_letter: DeadLetter) -> bool:
            gone = RemoveRecord(DEAD_LETTERS.key(dead_letter), before=dead_letter)
            if not await self._records.commit(DEAD_LETTERS, [gone]):
                return False  # something has happened to it since it was read
            await self._no_longer_pending(dead_letter)
            return True

        gone = 0
        for shard in range(DEAD_LETTER_SHARDS):
            async for dead_letters in self._pages(shard, Selection(is_queued=False)):
                old = [dead_letter for dead_letter in dead_letters if dead_letter.changed_ms < before_ms]
                gone += sum(await map_concurrently(expire_one, old, WRITES_AT_ONCE_MAX))
            await self._forget_lines(shard)
        return gone

    # Changes

    async def _change(
        self, selection: Selection, concerns: Callable[[DeadLetter], bool], change: Change
    ) -> int:
        """In the order of each chat, several recipients and chats at once."""
        if selection.status not in (None, DeadLetterStatus.PENDING):
            return 0
        wanted = replace(selection, status=DeadLetterStatus.PENDING)
        if wanted.ids is not None:
            dead_letters = await self._by_ids(wanted)
        else:
            dead_letters = await self._in_shards(lambda shard: _all(self._pages(shard, wanted)))
        dead_letters = sorted(
            filter(concerns, dead_letters), key=lambda one: (one.recipient, one.chat_id, one.sequence)
        )

        async def change_queue(queue: list[DeadLetter]) -> int:
            return sum([await self._write(dead_letter, change(dead_letter)) for dead_letter in queue])

        queues = groupby(dead_letters, key=lambda dead_letter: (dead_letter.recipient, dead_letter.chat_id))
        return sum(
            await map_concurrently(change_queue, [list(queue) for _, queue in queues], WRITES_AT_ONCE_MAX)
        )

    async def _write(self, before: DeadLetter, after: DeadLetter) -> bool:
        place = QUEUED_DEAD_LETTERS.key(queue_line(before, 0))
        (waited,) = await self._records.get(QUEUED_DEAD_LETTERS, [place])
        if after.is_queued and not before.is_queued:
            await self._records.commit(QUEUED_DEAD_LETTERS, [PutRecord(queue_line(after, self._clock()))])
        if not await self._records.commit(DEAD_LETTERS, [PutRecord(after, before=before)]):
            return False
        if waited is not None and not after.is_queued:  # unless it has been queued again by now
            await self._records.commit(QUEUED_DEAD_LETTERS, [RemoveRecord(place, before=waited)])
        if after.status is not DeadLetterStatus.PENDING:
            await self._no_longer_pending(after)
        return True

    async def _no_longer_pending(self, dead_letter: DeadLetter) -> None:
        """For good: no dead letter becomes pending again."""
        key = PENDING_DEAD_LETTERS.key(pending_line(dead_letter, 0))
        await self._records.commit(PENDING_DEAD_LETTERS, [RemoveRecord(key)])

    async def _forget_lines(self, shard: int) -> None:
        """Those of dead letters that never were, or are pending no more."""
        async for lines in self._pending(shard):
            old = [line for line in lines if line.since_ms < self._clock() - NOTE_MS]
            dead_letters = {one.dlq_id: one for one in await self._get([line.dlq_id for line in old])}
            for line in old:
                dead_letter = dead_letters.get(line.dlq_id)
                if dead_letter is None or dead_letter.status is not DeadLetterStatus.PENDING:
                    gone = RemoveRecord(PENDING_DEAD_LETTERS.key(line), before=line)
                    await self._records.commit(PENDING_DEAD_LETTERS, [gone])

    # Reading

    async def _in_shards(self, look: Callable[[int], Awaitable[list[T]]]) -> list[T]:
        found = await map_concurrently(look, range(DEAD_LETTER_SHARDS), SHARDS_AT_ONCE_MAX)
        return [one for some in found for one in some]

    async def _get(self, ids: Iterable[str]) -> list[DeadLetter]:
        keys: list[Key] = [(shard_of(dlq_id), dlq_id) for dlq_id in dict.fromkeys(ids)]
        return [one for one in await self._records.get(DEAD_LETTERS, keys) if one is not None]

    async def _by_ids(self, selection: Selection) -> list[DeadLetter]:
        return [one for one in await self._get(selection.ids or ()) if is_selected(one, selection)]

    async def _pages(
        self, shard: int, selection: Selection, before_id: str = ""
    ) -> AsyncIterator[list[DeadLetter]]:
        """The selected dead letters of a shard, the highest id first; pending ones by their list."""
        if selection.status is DeadLetterStatus.PENDING:
            async for lines in self._pending(shard, before_id):
                dead_letters = await self._get(line.dlq_id for line in lines)
                yield [dead_letter for dead_letter in dead_letters if is_selected(dead_letter, selection)]
            return
        while dead_letters := await self._records.page(DEAD_LETTERS, str(shard), before_id, PAGE, True):
            yield [dead_letter for dead_letter in dead_letters if is_selected(dead_letter, selection)]
            before_id = dead_letters[-1].dlq_id

    async def _pending(self, shard: int, before_id: str = "") -> AsyncIterator[list[PendingDeadLetter]]:
        while lines := await self._records.page(PENDING_DEAD_LETTERS, str(shard), before_id, PAGE, True):
            yield lines
            before_id = lines[-1].dlq_id

    async def _queue(self, shard: int, prefix: str) -> AsyncIterator[QueuedDeadLetter]:
        after = prefix
        while lines := await self._records.page(QUEUED_DEAD_LETTERS, str(shard), after, PAGE):
            for line in lines:
                if not line.recipient.startswith(prefix):
                    return
                yield line
            after = QUEUED_DEAD_LETTERS.key(lines[-1])[1]


async def _all(pages: AsyncIterator[list[T]]) -> list[T]:
    return [one async for page in pages for one in page]
