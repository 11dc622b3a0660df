"""What an operator sees: structured logs on stderr and metrics by the names of `docs/OPERATING.md`."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from math import ceil

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from parley.clock import Clock
from parley.core.log_limits import LineLimit

SECONDS_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WINDOW_MS = 15 * 60 * 1000
WINDOW_SLOT_MS = 15 * 1000
HOT_CHATS_MAX = 10
HOT_CHATS_TRACKED_MAX = 10_000
LATENCY_SAMPLES_MAX = 1_024
LATENCY_AGE_MS_MAX = 5 * 60 * 1000
MINUTE_MS = 60_000

WATCHED_REFUSALS = ("internal", "outcome_unknown", "store_unavailable")
WATCHED_CLOSES = ("4001",)
FORWARD_FAILURES = ("refused", "silent")
"""Series that alerts look at exist from the start: one that appears with its first event has no increase."""


class Window:
    """Sums of two numbers over a sliding quarter of an hour, in bounded memory."""

    def __init__(self, clock: Clock, length_ms: int = WINDOW_MS) -> None:
        self._clock = clock
        self._length_ms = length_ms
        self._slots: deque[list[float]] = deque()

    def add(self, part: float, whole: float) -> None:
        slot = self._clock() // WINDOW_SLOT_MS
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append([slot, 0, 0])
            self._expire(slot)
        self._slots[-1][1] += part
        self._slots[-1][2] += whole

    def _expire(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - self._length_ms // WINDOW_SLOT_MS:
            self._slots.popleft()

    def rate(self) -> float:
        """part / whole over the window; 0 while nothing happened."""
        self._expire(self._clock() // WINDOW_SLOT_MS)
        whole = sum(slot[2] for slot in self._slots)
        return sum(slot[1] for slot in self._slots) / whole if whole else 0.0


class HotChats:
    """Messages per chat and minute, this one or the last, whichever is more; of the hottest few only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = 0
        self._current: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def add(self, chat_id: str, count: int) -> None:
        self._turn()
        if chat_id in self._current or len(self._current) < HOT_CHATS_TRACKED_MAX:
            self._current[chat_id] = self._current.get(chat_id, 0) + count

    def hottest(self) -> list[tuple[str, int]]:
        self._turn()
        busiest = {
            c: max(self._current.get(c, 0), self._last.get(c, 0)) for c in {*self._current, *self._last}
        }
        return sorted(busiest.items(), key=lambda item: -item[1])[:HOT_CHATS_MAX]

    def _turn(self) -> None:
        minute = self._clock() // MINUTE_MS
        if minute != self._minute:
            self._last = self._current if minute == self._minute + 1 else {}
            self._current, self._minute = {}, minute


class Latencies:
    """The latencies of the last few minutes, for a p99 that needs no query language.

    Old ones are forgotten, so that a server that has fallen silent does not stay alarming.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[int, float]] = deque(maxlen=LATENCY_SAMPLES_MAX)

    def add(self, seconds: float) -> None:
        self._samples.append((self._clock(), seconds))

    def p99(self) -> float:
        """The smallest latency that 99% of the samples do not exceed; 0 without samples."""
        oldest_ms = self._clock() - LATENCY_AGE_MS_MAX
        ranked = sorted(seconds for at_ms, seconds in self._samples if at_ms > oldest_ms)
        return ranked[ceil(len(ranked) * 0.99) - 1] if ranked else 0.0


class Metrics:
    """Every metric of one server. Counted per batch, not per message, wherever that says the same.

    `now`: seconds, for what is timed. Not the loop's time, which some loops know to a millisecond only.
    """

    def __init__(self, clock: Clock, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.registry = CollectorRegistry()
        self.gaps = Window(clock)
        self.retries = Window(clock)
        self.conflicts = Window(clock)
        self.lines = LineLimit()
        self.hot_chats = HotChats(clock)
        self.allocation = Latencies(clock)
        self.persist = Latencies(clock)
        self.is_store_available: Callable[[], bool] = lambda: True
        self.is_ephemeral_available: Callable[[], bool] = lambda: True
        self.counter_missing_errors = 0
        self.deliveries = 0
        self.sequence_allocation_errors = 0
        self.registry.register(_SourceNames(self))
        ProcessCollector(registry=self.registry)
        self._time_batches()
        self.commit_failures = self._counter("parley_commit_failures", "Commits with an unknown outcome")
        self.messages_stored = self._counter("parley_messages_stored", "Entries appended")
        self.messages_refused = self._counter("parley_messages_refused", "Drafts refused, by code", ["code"])
        self.voids_sealed = self._counter("parley_voids_sealed", "Abandoned positions sealed")
        self.connections = self._gauge("parley_connections", "Open WebSocket connections")
        self.outbox_bytes = self._gauge("parley_outbox_bytes", "Bytes waiting in all outboxes")
        self.closed = self._counter("parley_connections_closed", "Connections closed by the server", ["code"])
        self.requests = self._counter("parley_http_requests", "HTTP requests", ["route", "status"])
        self.refusals = self._counter("parley_refusals", "Requests refused, by code", ["code"])
        self.dynamodb_requests = self._counter(
            "parley_dynamodb_requests", "Requests to DynamoDB, retries included", ["operation"]
        )
        self.dynamodb_retries = self._counter(
            "parley_dynamodb_retries", "Requests to DynamoDB that were a retry", ["operation"]
        )
        self.dynamodb_units = self._counter(
            "parley_dynamodb_units", "Capacity units that DynamoDB says it consumed", ["operation"]
        )
        self.nodes = self._gauge("parley_nodes", "Nodes of the cluster that this one knows to be alive")
        self.forwarded_batches = self._counter("parley_forwarded_batches", "Batches sent to other nodes")
        self.forwarded_drafts = self._counter("parley_forwarded_drafts", "Drafts sent to other nodes")
        self.forward_failures = self._counter(
            "parley_forward_failures", "Batches that a node refused or left unanswered", ["reason"]
        )
        self.notices_lost = self._counter("parley_notices_lost", "Notices that a node never acknowledged")
        self._count_events()
        self._count_people()
        for code in WATCHED_REFUSALS:
            self.refusals.labels(code)
        for code in WATCHED_CLOSES:
            self.closed.labels(code)
        for reason in FORWARD_FAILURES:
            self.forward_failures.labels(reason)

    def _time_batches(self) -> None:
        """From a draft to the last outbox."""
        self.allocation_seconds = self._histogram(
            "sequence_allocation_latency", "Seconds that taking numbers took; in atomic, the commit that does"
        )
        self.persist_seconds = self._histogram(
            "parley_persist_seconds", "Seconds from a batch's oldest draft to its durable positions"
        )
        self.commit_seconds = self._histogram(
            "parley_commit_seconds", "Seconds that COMMIT waited for the disk"
        )
        self.commit_jobs = self._histogram("parley_commit_jobs", "Jobs in one transaction", SIZE_BUCKETS)
        self.batch_messages = self._histogram("parley_batch_messages", "Drafts in one append", SIZE_BUCKETS)
        self.fanout_seconds = self._histogram(
            "parley_fanout_lag_seconds", "Seconds from the durable commit to the last outbox"
        )

    def _count_events(self) -> None:
        """On their way over a bus that nodes share."""
        self.unpublished: Callable[[], int] = lambda: 0
        self.publish_stalled_seconds: Callable[[], float] = lambda: 0.0
        self.consumer_lags: dict[str, Callable[[], int]] = {}
        self.published = self._counter("parley_events_published", "Events acknowledged by the bus")
        self.publish_failures = self._counter(
            "parley_publish_failures", "Batches of events that the bus did not take, or not in time"
        )
        self.swept = self._counter("parley_chats_swept", "Chats whose events were published by a sweeper")

    def _count_people(self) -> None:
        """What people notice of each other."""
        self.signals_dropped: Callable[[], int] = lambda: 0
        self.receipts_told = self._counter(
            "parley_receipts_told", "Members told that somebody received or read, by kind", ["kind"]
        )
        self.presence_told = self._counter(
            "parley_presence_told", "Frames that told of a change of presence, or of a right to see it"
        )
        self.typing_told = self._counter("parley_typing_told", "Signals that somebody types, or stopped")

    def time_allocation(self, seconds: float) -> None:
        """Once for each call that takes numbers, or in atomic for each commit that does."""
        self.allocation.add(seconds)
        self.allocation_seconds.observe(seconds)

    def time_persist(self, seconds: float) -> None:
        """Once for each batch that was stored: how long its oldest draft had to wait for that."""
        self.persist.add(seconds)
        self.persist_seconds.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _histogram(self, name: str, text: str, buckets: Iterable[float] = SECONDS_BUCKETS) -> Histogram:
        return Histogram(name, text, buckets=tuple(buckets), registry=self.registry)

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(name, text, tuple(labels), registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)


class _SourceNames(Collector):
    """What is computed when it is asked for; the first seven keep their given names, without a suffix."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        m = self._metrics
        yield _gauge("sequence_allocation_latency_p99", "Seconds, of recent allocations", m.allocation.p99())
        yield _count(
            "sequence_allocation_errors", "Batches that failed to allocate", m.sequence_allocation_errors
        )
        yield _count(
            "counter_missing_errors", "Sends refused for a missing counter", m.counter_missing_errors
        )
        yield _gauge("idempotency_hit_rate", "Retries answered from the key, of all sends", m.retries.rate())
        yield _gauge("sequence_gap_rate", "(allocations - persists) / allocations", m.gaps.rate())
        yield _gauge("transaction_conflict_rate", "Conditional failures of the write", m.conflicts.rate())
        yield self._hottest()
        yield _gauge("parley_persist_seconds_p99", "Seconds, of recent batches", m.persist.p99())
        yield _gauge("parley_store_available", "1 while the store can be used", m.is_store_available())
        yield _gauge(
            "parley_ephemeral_available",
            "1 while Redis, or whatever holds presence and shared rates, can be used",
            m.is_ephemeral_available(),
        )
        yield _gauge(
            "parley_unpublished_positions", "Durable, and not known to be on the bus", m.unpublished()
        )
        yield _gauge(
            "parley_publish_stalled_seconds",
            "For how long the slowest chat has got nothing onto the bus",
            m.publish_stalled_seconds(),
        )
        yield self._lags()
        dropped = Metric("parley_signals_dropped", "Signals that other nodes never got", "counter")
        dropped.add_sample("parley_signals_dropped_total", {}, m.signals_dropped())
        yield dropped
        deliveries = Metric("parley_deliveries", "Live frames offered to outboxes", "counter")
        deliveries.add_sample("parley_deliveries_total", {}, m.deliveries)
        yield deliveries

    def _lags(self) -> Metric:
        metric = Metric("parley_consumer_lag", "Events on the bus that a reader has yet to handle", "gauge")
        for reader, lag in sorted(self._metrics.consumer_lags.items()):
            metric.add_sample("parley_consumer_lag", {"reader": reader}, lag())
        return metric

    def _hottest(self) -> Metric:
        metric = Metric("messages_per_chat_per_minute", "The hottest chats", "gauge")
        for chat_id, count in self._metrics.hot_chats.hottest():
            metric.add_sample("messages_per_chat_per_minute", {"chat_id": chat_id}, count)
        return metric


def _gauge(name: str, text: str, value: float) -> Metric:
    return _plain(name, text, value, "gauge")


def _count(name: str, text: str, value: int) -> Metric:
    """It only rises, but its name has not the suffix that the format asks of counters."""
    return _plain(name, text, value, "unknown")


def _plain(name: str, text: str, value: float, kind: str) -> Metric:
    metric = Metric(name, text, kind)
    metric.add_sample(name, {}, value)
    return metric


def configure_logs(level: str = "info", as_json: bool = True) -> None:
    """Structured lines on stderr; stdout stays free for what a person asked for."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
