"""Sequencing `two_phase` on a shared store: what is the same whichever store writes the numbers.

write_visibly   one append to one chat, from its lock to its acks
allocate        numbers from the allocator, or why there are none
taken           while numbers are being written, this node does not seal them
seal_given_up   voids at numbers that are not written after all
await_visible   an ack waits until every number below is written or sealed
Prefixes        how far each log is resolved, and the holes that end it

A missing position below one that exists is a hole: the append that took its number is slow, or gone. Readers
stop before it. A node remembers when it first saw a hole, and seals it with a void if it is still there after
a delay, whichever node took the number. A position is written once, so a late append takes another number.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import structlog

from parley.clock import Clock
from parley.errors import (
    COUNTER_INCONSISTENT,
    COUNTER_MISSING,
    CounterMissingError,
    InconsistentCounterError,
    Refusal,
    StoreError,
)
from parley.model import Appended, Draft, Persisted, StoredEntry
from parley.store.chat_append import ChatAppend, Original
from parley.store.log_telemetry import log_allocated
from parley.store.ports import Allocator
from parley.store.rules import STRAY_POSITIONS_MAX
from parley.telemetry import Metrics

FaultPoint = Callable[[str], Awaitable[None] | None]

ROUNDS_MAX = 20
"""How often an append tries again what another one disturbed."""
VISIBLE_LOOK_SECONDS = 0.02
VISIBLE_LOOK_SECONDS_MAX = 0.25

log = structlog.get_logger("parley.store")


class NumberedChat(Protocol):
    """What a node remembers of a chat: the end of its log, and how far it is resolved."""

    @property
    def chat_id(self) -> str: ...

    lock: asyncio.Lock
    epoch: int
    head: int
    resolved: int


ChatT = TypeVar("ChatT", bound=NumberedChat)


def no_fault(_: str) -> None:
    """A fault point is called on the way of an append: tests crash there, or keep it waiting."""


async def write_visibly(
    write: Callable[[], Awaitable[None]],
    prefixes: Prefixes[ChatT],
    append: ChatAppend[Original],
    state: ChatT,
    give_up_at: float,
) -> None:
    """Write what is to do; what was written is acknowledged once it is visible, whatever fails later."""
    append.epoch = state.epoch
    failure: StoreError | None = None
    try:
        async with state.lock:
            await write()
    except StoreError as error:
        failure = error
    await await_visible(prefixes, append, state, give_up_at)
    if failure is not None:
        raise failure


@asynccontextmanager
async def taken(
    numbers: list[int],
    prefixes: Prefixes[ChatT],
    state: ChatT,
    drafts: Sequence[Draft],
    fault_point: FaultPoint,
) -> AsyncIterator[None]:
    """These numbers are for these drafts. At the end each is an entry, a void, or abandoned."""
    prefixes.take(state.chat_id, numbers)
    log_allocated(drafts, numbers)
    try:
        pause = fault_point("after_allocate")
        if pause is not None:
            await pause
        yield
    finally:
        prefixes.give_back(state.chat_id, numbers)


async def allocate(
    allocator: Allocator,
    metrics: Metrics,
    chat: NumberedChat,
    count: int,
    read_end: Callable[[], Awaitable[int]],
) -> list[int] | Refusal:
    """Numbers that no other append has, or why there are none. `read_end`: where the log ends by now."""
    started = metrics.now()
    try:
        last = await allocator.allocate(chat.chat_id, count, chat.head)
    except CounterMissingError:
        return COUNTER_MISSING
    except InconsistentCounterError as error:
        return COUNTER_INCONSISTENT.because(str(error))
    metrics.time_allocation(metrics.now() - started)
    first = last - count + 1
    if first - 1 - chat.head > STRAY_POSITIONS_MAX:
        end = await read_end()
        chat.head = max(chat.head, end)
        if first - 1 - chat.head > STRAY_POSITIONS_MAX:
            return COUNTER_INCONSISTENT.because(f"Counter is {last} but the log ends at {end}")
    return list(range(first, last + 1))


class Prefixes(ABC, Generic[ChatT]):
    """The resolved prefixes of logs, and the holes that end them. Stores read positions and write voids."""

    def __init__(self, known: Callable[[str], ChatT | None], clock: Clock, seal_after_ms: int) -> None:
        self._known = known
        self._clock = clock
        self._seal_after_ms = seal_after_ms
        self._holes: dict[str, dict[int, int]] = {}
        """By chat: since when each position is missing."""
        self._under_way: dict[str, set[int]] = {}
        """Numbers that this node has taken and is still writing: it never seals them itself."""

    @abstractmethod
    async def advance(self, state: ChatT) -> int:
        """Read how far a log is resolved by now, and note its holes."""

    @abstractmethod
    async def seal(self, state: ChatT, positions: Iterable[int], *, are_abandoned: bool) -> list[StoredEntry]:
        """Write voids at these positions, except where the log has an entry by now or has been trimmed.

        `are_abandoned`: another append took the numbers, and the operator is told that they were sealed.
        """

    async def seal_due(self) -> list[Persisted]:
        """Seal every hole that has been there for long enough, in all chats."""
        sealed = []
        for chat_id in list(self._holes):
            state = self._known(chat_id)
            if state is None:
                self._holes.pop(chat_id, None)
                continue
            await self.advance(state)
            positions = await self.seal_old(state)
            if positions:
                sealed.append(Persisted(chat_id, state.epoch, positions))
        return sealed

    async def seal_old(self, state: ChatT) -> list[StoredEntry]:
        """Seal the holes of one chat that are old enough and not this node's own."""
        oldest_ms = self._clock() - self._seal_after_ms
        own = self._under_way.get(state.chat_id, set())
        holes = self._holes.get(state.chat_id, {})
        due = [at for at, seen_ms in holes.items() if seen_ms <= oldest_ms and at not in own]
        if not due:
            return []
        voids = await self.seal(state, due, are_abandoned=True)
        await self.advance(state)
        return voids

    def note(self, chat_id: str, missing: Iterable[int]) -> None:
        """Remember since when these positions are missing."""
        before, now_ms = self._holes.pop(chat_id, {}), self._clock()
        holes = {position: before.get(position, now_ms) for position in missing}
        if holes:
            self._holes[chat_id] = holes

    def take(self, chat_id: str, numbers: Iterable[int]) -> None:
        self._under_way.setdefault(chat_id, set()).update(numbers)

    def give_back(self, chat_id: str, numbers: Iterable[int]) -> None:
        """These are written, sealed or abandoned: this node no longer writes them."""
        own = self._under_way.get(chat_id)
        if own is not None:
            own.difference_update(numbers)
            if not own:
                del self._under_way[chat_id]


async def seal_given_up(
    prefixes: Prefixes[ChatT],
    append: ChatAppend[Original],
    state: ChatT,
    numbers: list[int],
    metrics: Metrics,
) -> None:
    """Void the numbers that an append took and does not write."""
    try:
        append.positions += await prefixes.seal(state, numbers, are_abandoned=False)
    except StoreError as error:  # they are holes now, and the next node to see them seals them
        now, count = asyncio.get_running_loop().time(), len(numbers)
        if (more := metrics.lines.admit("numbers given up", now)) is not None:
            log.info("numbers given up", chat_id=state.chat_id, count=count, reason=str(error), **more)


async def await_visible(
    prefixes: Prefixes[ChatT], append: ChatAppend[Original], state: ChatT, give_up_at: float
) -> None:
    """An ack means that every reader sees it: wait for the numbers below, or seal what was abandoned.

    An abandoned number is sealed later than a sender waits: then the outcome is unknown, the chat goes on,
    and a retry finds what is stored.
    """
    appended = [outcome for outcome in append.outcomes.values() if isinstance(outcome, Appended)]
    last = max((outcome.sequence for outcome in appended), default=0)
    loop, pause = asyncio.get_running_loop(), VISIBLE_LOOK_SECONDS
    while state.resolved < last:
        try:
            if await prefixes.advance(state) >= last:
                return
            sealed = await prefixes.seal_old(state)
            append.positions += sealed
        except StoreError:
            sealed = []
        if loop.time() > give_up_at:
            append.doubt_above(state.resolved)
            return
        if not sealed:
            await asyncio.sleep(pause)
            pause = min(pause * 2, VISIBLE_LOOK_SECONDS_MAX)
