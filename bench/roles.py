"""What the generator's connections do after the welcome.

They count instead of parsing: an ack and an entry each contain a marker that content cannot contain, because
quotes in content are escaped.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns

from bench import frames
from bench.connection import frame_bounds

ACK = b'"type":"ack"'
REFUSED = b'"type":"refused"'
BATCH = b'"type":"message_batch"'
ENTRY = b'"sender_id":"'
CONTENT = b'"content":"'
TO_SEQUENCE = re.compile(rb'"to_sequence":(\d+)')
COMPLETE = b'"complete":true'
CLOSE_BRACE = ord("}")
PROBLEMS_MAX = 5


class Load:
    """The counts of all connections of a run."""

    def __init__(self) -> None:
        self.running = True
        self.sent = 0
        self.acks = 0
        self.delivered = 0
        self.refused = 0
        self.lost = 0
        self.ack_ns: list[int] = []
        self.delivery_ns: list[int] = []
        self.problems: list[str] = []

    def note_problem(self, text: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


class Counted:
    """Counts a marker in a stream of chunks, even if it is split between two."""

    __slots__ = ("_marker", "_seam", "_tail")

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self._seam = len(marker) - 1
        self._tail = b""

    def feed(self, data: bytes) -> int:
        count = data.count(self._marker)
        if self._tail:
            count += (self._tail + data[: self._seam]).count(self._marker)
        # No marker contains a brace, so none can start before one and end after it.
        self._tail = b"" if data[-1] == CLOSE_BRACE else data[-self._seam :]
        return count


class Quiet(asyncio.Protocol):
    """Connected, and idle."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: asyncio.Transport

    def welcomed(self, transport: asyncio.Transport, rest: bytes) -> None:
        self.transport = transport
        if rest:
            self.data_received(rest)

    def connection_lost(self, error: Exception | None) -> None:
        if self.load.running:
            self.load.lost += 1
            self.load.note_problem(f"a connection was lost: {error}")


class Reader(Quiet):
    """Counts the entries that it gets; the last one of each chunk gives the latency."""

    def __init__(self, load: Load, marker: bytes = ENTRY) -> None:
        super().__init__(load)
        self._entries = Counted(marker)

    def data_received(self, data: bytes) -> None:
        load = self.load
        load.delivered += self._entries.feed(data)
        start = data.rfind(CONTENT)
        if start >= 0:
            stamp = data[start + len(CONTENT) : start + len(CONTENT) + frames.TIME_CHARS]
            if len(stamp) == frames.TIME_CHARS:
                load.delivery_ns.append(perf_counter_ns() - int(stamp, 16))


class Writer(Quiet):
    """Keeps `window` messages in flight: each ack allows the next."""

    def __init__(self, load: Load, chat_id: str, window: int = 1) -> None:
        super().__init__(load)
        self._frames = frames.SendFrames(chat_id)
        self._window = window
        self._acks = Counted(ACK)
        self._sent_ns: deque[int] = deque()

    def start(self) -> None:
        self.transport.write(self._next(self._window, perf_counter_ns()))

    def _next(self, count: int, now_ns: int) -> bytes:
        self.load.sent += count
        if count == 1:
            self._sent_ns.append(now_ns)
            return self._frames.next(now_ns)
        self._sent_ns.extend([now_ns] * count)
        return b"".join([self._frames.next(now_ns) for _ in range(count)])

    def data_received(self, data: bytes) -> None:
        answered = self._acks.feed(data)
        if REFUSED in data:
            answered += self._refused(data)
        if answered:
            self._answered(answered)

    def _answered(self, count: int) -> None:
        load, now_ns = self.load, perf_counter_ns()
        load.acks += count
        popleft = self._sent_ns.popleft
        for _ in range(count):
            load.ack_ns.append(now_ns - popleft())
        if load.running:
            self._go_on(count, now_ns)

    def _go_on(self, count: int, now_ns: int) -> None:
        self.transport.write(self._next(count, now_ns))

    def _refused(self, data: bytes) -> int:
        count = data.count(REFUSED)
        self.load.refused += count
        self.load.acks -= count
        self.load.note_problem(data[data.find(REFUSED) :][:200].decode(errors="replace"))
        return count


class ChainedWriter(Writer):
    """As a writer, but each message names the one before it while that one is in flight."""

    def __init__(self, load: Load, chat_id: str, window: int) -> None:
        super().__init__(load, chat_id, window)
        self._previous = b""

    def _next(self, count: int, now_ns: int) -> bytes:
        self.load.sent += count
        previous = self._previous if self._sent_ns else b""
        self._sent_ns.extend([now_ns] * count)
        out = []
        for _ in range(count):
            client_id = frames.next_client_id()
            out.append(self._frames.after(client_id, previous, now_ns))
            previous = client_id
        self._previous = previous
        return b"".join(out)


class Talker(Writer):
    """One person of a pair: writes, and counts the partner's messages."""

    def __init__(self, load: Load, chat_id: str, partner_id: str) -> None:
        super().__init__(load, chat_id)
        self._reader = Reader(load, ENTRY + partner_id.encode())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._reader.data_received(data)


class Wanderer(Writer):
    """Writes to each of its chats in turn, and counts the messages of others there."""

    def __init__(self, load: Load, own_id: str, chat_ids: list[str]) -> None:
        super().__init__(load, chat_ids[0])
        self._all_frames = [frames.SendFrames(chat_id) for chat_id in chat_ids]
        self._turn = 0
        self._own = Counted(ENTRY + own_id.encode())
        self._reader = Reader(load)

    def _next(self, count: int, now_ns: int) -> bytes:
        self._turn += 1
        self._frames = self._all_frames[self._turn % len(self._all_frames)]
        return super()._next(count, now_ns)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._reader.data_received(data)
        self.load.delivered -= self._own.feed(data)


class Framed(Quiet):
    """Collects whole frames."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while (bounds := frame_bounds(self._buffer, start)) and bounds[1] <= len(self._buffer):
            self.payload_received(bytes(self._buffer[bounds[0] : bounds[1]]))
            start = bounds[1]
        del self._buffer[:start]

    def payload_received(self, payload: bytes) -> None:
        """One frame's payload."""


class Pager(Framed):
    """Reads a log from its start to its end, page by page, over and over."""

    def __init__(self, load: Load, chat_id: str, limit: int) -> None:
        super().__init__(load)
        self._chat_id = chat_id
        self._limit = limit
        self._sent_ns = 0

    def start(self) -> None:
        self.ask(0)

    def ask(self, after: int) -> None:
        self.load.sent += 1
        self._sent_ns = perf_counter_ns()
        self.transport.write(frames.sync_request(self._chat_id, after, self._limit))

    def payload_received(self, payload: bytes) -> None:
        found = TO_SEQUENCE.search(payload, max(0, len(payload) - 300)) or TO_SEQUENCE.search(payload)
        if BATCH not in payload[:100] or found is None:
            self.load.refused += 1
            self.load.note_problem(payload[:200].decode(errors="replace"))
            return
        self.load.ack_ns.append(perf_counter_ns() - self._sent_ns)
        self.load.acks += 1
        self.load.delivered += payload.count(ENTRY)
        self.page_received(int(found[1]), COMPLETE in payload[-300:])

    def page_received(self, to_sequence: int, complete: bool) -> None:
        if self.load.running:
            self.ask(0 if complete else to_sequence)


class OnePage(Pager):
    """Requests one page per call, and returns how long it took."""

    def __init__(self, load: Load, chat_id: str, limit: int) -> None:
        super().__init__(load, chat_id, limit)
        self._answer: asyncio.Future[int] | None = None

    def page(self, after: int) -> asyncio.Future[int]:
        """Nanoseconds until the page after a position has arrived."""
        self._answer = asyncio.get_running_loop().create_future()
        self.ask(after)
        return self._answer

    def page_received(self, to_sequence: int, complete: bool) -> None:
        if self._answer is not None:
            self._answer.set_result(self.load.ack_ns[-1])


class Returning(Framed):
    """Syncs as soon as it is welcomed, and calls `caught_up` when it has everything."""

    def __init__(self, load: Load, chat_id: str, cursor: int, caught_up: Callable[[], None]) -> None:
        super().__init__(load)
        self._chat_id = chat_id
        self._cursor = cursor
        self._caught_up = caught_up
        self.lost = asyncio.get_running_loop().create_future()

    def welcomed(self, transport: asyncio.Transport, rest: bytes) -> None:
        transport.write(frames.sync_request(self._chat_id, self._cursor, 100))
        super().welcomed(transport, rest)

    def payload_received(self, payload: bytes) -> None:
        if BATCH in payload[:100]:
            self.load.delivered += payload.count(ENTRY)
            self._caught_up()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
