"""What this node did lately, for operators who ask what became of a message. See docs/timeline.md.

It is written once for each batch and each fan-out frame of a chat, however many hear it, in three numbers of
a ring. The oldest are overwritten. Who was sent a frame follows from who was connected at that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from mmap import mmap
from typing import NamedTuple

from parley.clock import Clock
from parley.core.timeline import NodeTrace, TraceQuestion
from parley.model import Head, Persisted
from parley.store.ports import Outbox

RUNS_REMEMBERED_MAX = 200_000
"""Of each kind: about five megabytes, once there were so many."""
CONNECTIONS_REMEMBERED_MAX = 20_000
"""That have ended: about six megabytes."""
WORDS_PER_RUN = 3
WORD_BYTES = 8
ANYWHERE = -1
"""For `mmap`: memory, no file."""
SMALL_BITS = 16
SMALL_MAX = (1 << SMALL_BITS) - 1

Connected = Callable[[str], Iterable[tuple[str, int]]]
"""The devices of a person that are connected to this node now, and since when."""


class RecordedRun(NamedTuple):
    """Positions of one chat that had something in common at one time. `waited_ms`: how long before."""

    first: int
    last: int
    at_ms: int
    waited_ms: int


class RunRing:
    """The last runs, in numbers of eight bytes: a chat's hash, its positions, and the time.

    Pages of memory that no run has reached are not taken.
    """

    def __init__(self, runs_max: int) -> None:
        self._words_max = runs_max * WORDS_PER_RUN
        self._words = memoryview(mmap(ANYWHERE, self._words_max * WORD_BYTES)).cast("q")
        self._next = 0

    def add(self, chat_id: str, first: int, last: int, at_ms: int, waited_ms: int = 0) -> None:
        words, at = self._words, self._next
        words[at] = hash(chat_id)
        words[at + 1] = first << SMALL_BITS | (last - first) & SMALL_MAX
        words[at + 2] = at_ms << SMALL_BITS | waited_ms & SMALL_MAX
        following = at + WORDS_PER_RUN
        self._next = following if following < self._words_max else 0

    @property
    def since_ms(self) -> int:
        """Every run after this time is there; 0 if nothing was overwritten yet."""
        return self._words[self._next + 2] >> SMALL_BITS

    def runs_of(self, chat_id: str) -> list[RecordedRun]:
        """The runs of a chat, the oldest first."""
        return sorted(self._found(chat_id), key=lambda run: run.at_ms)

    def _found(self, chat_id: str) -> Iterator[RecordedRun]:
        words, wanted = self._words, hash(chat_id)
        chats = words[::WORDS_PER_RUN].tolist()
        place = -1
        while True:
            try:
                place = chats.index(wanted, place + 1)
            except ValueError:
                return
            _, positions, time = words[place * WORDS_PER_RUN : (place + 1) * WORDS_PER_RUN]
            if time:
                first = positions >> SMALL_BITS
                last = first + (positions & SMALL_MAX)
                yield RecordedRun(first, last, time >> SMALL_BITS, time & SMALL_MAX)


class EndedConnection(NamedTuple):
    user_id: str
    device_id: str
    from_ms: int
    until_ms: int


class FlightRecorder:
    """The memory of one node. As a listener of the bus it hears of this node's own commits."""

    def __init__(self, node_id: str, clock: Clock, connected: Connected) -> None:
        self._node_id = node_id
        self._clock = clock
        self._connected = connected
        self._started_ms = clock()
        self._stored = RunRing(RUNS_REMEMBERED_MAX)
        self._published = RunRing(RUNS_REMEMBERED_MAX)
        self._sent = RunRing(RUNS_REMEMBERED_MAX)
        self._ended: deque[EndedConnection] = deque(maxlen=CONNECTIONS_REMEMBERED_MAX)
        self._ended_since_ms = 0

    # What happens

    def persisted(self, news: list[Persisted]) -> None:
        now_ms = self._clock()
        for item in news:
            positions, waited_ms = item.positions, min(item.waited_ms, SMALL_MAX)
            first, last = positions[0].sequence, positions[-1].sequence
            if last - first + 1 == len(positions):
                self._stored.add(item.chat_id, first, last, now_ms, waited_ms)
            else:  # in two_phase a commit may have holes, which are other nodes' positions
                for stored in positions:
                    self._stored.add(item.chat_id, stored.sequence, stored.sequence, now_ms, waited_ms)

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        """A new chat has no message yet."""

    def sessions_ended(self, session_ids: list[str]) -> None:
        """Their connections end, and that is recorded."""

    def published(self, chat_id: str, through: int) -> None:
        """Everything up to here is on the bus."""
        self._published.add(chat_id, through, through, self._clock())

    def sent(self, chat_id: str, first: int, last: int) -> None:
        """A frame with these positions goes to everybody here who hears the chat."""
        self._sent.add(chat_id, first, last, self._clock())

    def now_ms(self) -> int:
        """When a connection begins to hear its chats."""
        return self._clock()

    def ended(self, user_id: str, device_id: str, from_ms: int) -> None:
        """A connection that has heard its chats since `from_ms` hears nothing any more."""
        if len(self._ended) == CONNECTIONS_REMEMBERED_MAX:
            self._ended_since_ms = self._ended[0].until_ms
        self._ended.append(EndedConnection(user_id, device_id, from_ms, self._clock()))

    # What is asked

    def trace(self, question: TraceQuestion) -> NodeTrace:
        """Rare: it looks through everything that is remembered."""
        chat_id, sequence = question.chat_id, question.sequence
        stored = [run for run in self._stored.runs_of(chat_id) if run.first <= sequence <= run.last]
        sent = [run for run in self._sent.runs_of(chat_id) if run.first <= sequence <= run.last]
        published_ms, is_published_then = self._published_at(chat_id, sequence)
        sent_ms = sent[0].at_ms if sent else None
        return NodeTrace(
            node_id=self._node_id,
            since_ms=max(self._started_ms, self._sent.since_ms, self._ended_since_ms),
            accepted_ms=stored[0].at_ms - stored[0].waited_ms if stored else None,
            published_ms=published_ms,
            is_published_then=is_published_then,
            sent_ms=sent_ms,
            devices=[] if sent_ms is None else sorted(self._devices_at(sent_ms, set(question.user_ids))),
        )

    def _published_at(self, chat_id: str, sequence: int) -> tuple[int | None, bool]:
        """Marks only rise: the first one that has reached a position says when, if one before had not."""
        is_before_known = False
        for run in self._published.runs_of(chat_id):
            if run.last >= sequence:
                return run.at_ms, is_before_known or run.last == sequence
            is_before_known = True
        return None, True

    def _devices_at(self, at_ms: int, user_ids: set[str]) -> set[tuple[str, str]]:
        found = {
            (user_id, device_id)
            for user_id in user_ids
            for device_id, from_ms in self._connected(user_id)
            if from_ms <= at_ms
        }
        for one in self._ended:
            if one.user_id in user_ids and one.from_ms <= at_ms < one.until_ms:
                found.add((one.user_id, one.device_id))
        return found


class RecordedOutbox:
    """An outbox whose marks are recorded too."""

    def __init__(self, outbox: Outbox, recorder: FlightRecorder) -> None:
        self._outbox = outbox
        self._recorder = recorder

    def note_published(self, chat_id: str, through: int) -> None:
        self._recorder.published(chat_id, through)
        self._outbox.note_published(chat_id, through)

    async def unpublished(self) -> dict[str, int]:
        return await self._outbox.unpublished()

    async def flush(self) -> None:
        await self._outbox.flush()
