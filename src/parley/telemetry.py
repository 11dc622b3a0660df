"""What an operator sees: structured logs on stderr and metrics by the names of `docs/OPERATING.md`."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from math import ceil
from typing import Literal

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from parley.clock import Clock
from parley.core.damage import DamageRecord
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


class Window:
    """Sums of two numbers over a sliding quarter of an hour, in bounded memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: deque[list[float]] = deque()

    def add(self, part: float, whole: float) -> None:
        slot = self._clock() // WINDOW_SLOT_MS
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append([slot, 0, 0])
            self._expire(slot)
        self._slots[-1][1] += part
        self._slots[-1][2] += whole

    def _expire(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - WINDOW_MS // WINDOW_SLOT_MS:
            self._slots.popleft()

    def rate(self) -> float:
        """part / whole over the window; 0 while nothing happened."""
        self._expire(self._clock() // WINDOW_SLOT_MS)
        whole = sum(slot[2] for slot in self._slots)
        return sum(slot[1] for slot in self._slots) / whole if whole else 0.0


class HotChats:
    """The hottest chats, by their messages in this minute or in the last one, whichever has more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = 0
        self._current: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def add(self, chat_id: str, count: int) -> None:
        self._start_minute()
        if chat_id in self._current or len(self._current) < HOT_CHATS_TRACKED_MAX:
            self._current[chat_id] = self._current.get(chat_id, 0) + count

    def hottest(self) -> list[tuple[str, int]]:
        self._start_minute()
        busiest = {
            c: max(self._current.get(c, 0), self._last.get(c, 0)) for c in {*self._current, *self._last}
        }
        return sorted(busiest.items(), key=lambda item: -item[1])[:HOT_CHATS_MAX]

    def _start_minute(self) -> None:
        minute = self._clock() // MINUTE_MS
        if minute != self._minute:
            self._last = self._current if minute == self._minute + 1 else {}
            self._current, self._minute = {}, minute


class Latencies:
    """The latencies of the last few minutes, for a p99 that needs no query language.

    Samples expire, so that an alert ends when the server is idle.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[int, float]] = deque(maxlen=LATENCY_SAMPLES_MAX)

    def add(self, seconds: float) -> None:
        self._samples.append((self._clock(), seconds))

    def p99(self) -> float:
        """The smallest latency that 99% of the samples do not exceed; 0 without samples."""
        ranked = self._ranked()
        return ranked[ceil(len(ranked) * 0.99) - 1] if ranked else 0.0

    def p50(self) -> float:
        """The smallest latency that half of the samples do not exceed; 0 without samples."""
        ranked = self._ranked()
        return ranked[(len(ranked) - 1) // 2] if ranked else 0.0

    def _ranked(self) -> list[float]:
        oldest_ms = self._clock() - LATENCY_AGE_MS_MAX
        return sorted(seconds for at_ms, seconds in self._samples if at_ms > oldest_ms)


Read = Callable[[], float]
Kind = Literal["gauge", "counter", "unknown"]
"""`unknown`: it only rises, but its fixed name lacks the suffix that the format requires of counters."""


class CallbackMetric(Collector):
    """A metric whose value is read at each scrape, by the callback that the owner of the value registered.

    Without a label it has one value, `initial` until a callback is registered. With a label it has a value
    for each callback.
    """

    def __init__(self, name: str, text: str, kind: Kind, label: str = "", initial: float = 0.0) -> None:
        self._name = name
        self._text = text
        self._kind = kind
        self._label = label
        self._reads: dict[str, Read] = {} if label else {"": lambda: initial}

    def register(self, read: Read, label_value: str = "") -> None:
        """Read the metric with this callback. It replaces the callback of the same label value."""
        self._reads[label_value] = read

    def values(self) -> Iterable[tuple[str, float]]:
        """Every label value with its current value."""
        return [(value, read()) for value, read in sorted(self._reads.items())]

    def collect(self) -> Iterable[Metric]:
        metric = Metric(self._name, self._text, self._kind)
        sample = self._name + ("_total" if self._kind == "counter" else "")
        for value, number in self.values():
            metric.add_sample(sample, {self._label: value} if self._label else {}, number)
        yield metric


class HottestChats(CallbackMetric):
    """The few busiest chats, each with a label: which ones they are changes from scrape to scrape."""

    def __init__(self, name: str, text: str, chats: HotChats) -> None:
        super().__init__(name, text, "gauge", "chat_id")
        self._chats = chats

    def values(self) -> Iterable[tuple[str, float]]:
        return self._chats.hottest()


class Tally:
    """A count without a lock, for the event loop alone: cheap enough for every delivery."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self, count: int = 1) -> None:
        self.count += count


class Metrics:
    """Every metric of one server, declared here and nowhere else: name, kind, labels and help.

    Each part of the server gets it in its constructor, and counts per batch instead of per message where the
    result is the same. A part that knows a value (`store_available`) registers a callback that reads it.
    `now` gives seconds for durations. The loop's time would not do: some loops know only milliseconds.
    """

    def __init__(self, clock: Clock, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.registry = CollectorRegistry()
        self.lines = LineLimit()
        self.damage = DamageRecord()
        self._declare_sequencing(clock)
        ProcessCollector(registry=self.registry)
        self._declare_store(clock)
        self._declare_deliveries()
        self._declare_gateway()
        self._declare_cluster()
        self._declare_bus()
        self._declare_people()
        self._declare_jobs()
        self._declare_archive()
        self._declare_attachments()

    def _declare_sequencing(self, clock: Clock) -> None:
        """Metrics with the names that operators' dashboards already use: no prefix, no suffix."""
        self.allocation = Latencies(clock)
        self.retries = Window(clock)
        self.gaps = Window(clock)
        self.conflicts = Window(clock)
        self.hot_chats = HotChats(clock)
        self._computed(
            "sequence_allocation_latency_p99", "Seconds, of recent allocations", read=self.allocation.p99
        )
        self.sequence_allocation_errors = self._tally(
            "sequence_allocation_errors", "Batches that failed to allocate", "unknown"
        )
        self.counter_missing_errors = self._tally(
            "counter_missing_errors", "Sends refused for a missing counter", "unknown"
        )
        self._computed(
            "idempotency_hit_rate", "Retries answered from the key, of all sends", read=self.retries.rate
        )
        self._computed("sequence_gap_rate", "(allocations - persists) / allocations", read=self.gaps.rate)
        self._computed(
            "transaction_conflict_rate", "Conditional failures of the write", read=self.conflicts.rate
        )
        self.registry.register(
            HottestChats("messages_per_chat_per_minute", "The hottest chats", self.hot_chats)
        )
        self.allocation_seconds = self._histogram(
            "sequence_allocation_latency", "Seconds that taking numbers took; in atomic, the commit that does"
        )

    def _declare_store(self, clock: Clock) -> None:
        self.persist = Latencies(clock)
        self._computed("parley_persist_seconds_p99", "Seconds, of recent batches", read=self.persist.p99)
        self.store_available = self._computed(
            "parley_store_available", "1 while the store can be used", initial=1
        )
        self._computed(
            "parley_store_damaged",
            "Tables and chats that were found damaged since the start, up to a thousand",
            read=lambda: self.damage.count,
        )
        self.persist_seconds = self._histogram(
            "parley_persist_seconds", "Seconds from a batch's oldest draft to its durable positions"
        )
        self.commit_seconds = self._histogram(
            "parley_commit_seconds", "Seconds that COMMIT waited for the disk"
        )
        self.commit_jobs = self._histogram("parley_commit_jobs", "Jobs in one transaction", SIZE_BUCKETS)
        self.batch_messages = self._histogram("parley_batch_messages", "Drafts in one append", SIZE_BUCKETS)
        self.commit_failures = self._counter("parley_commit_failures", "Commits with an unknown outcome")
        self.messages_stored = self._counter("parley_messages_stored", "Entries appended")
        self.messages_refused = self._counter("parley_messages_refused", "Drafts refused, by code", "code")
        self.voids_sealed = self._counter("parley_voids_sealed", "Abandoned positions sealed")
        self.entries_hashed = self._counter(
            "parley_entries_hashed", "Positions that the job behind the logs has hashed"
        )
        self.search_lag = self._computed(
            "parley_search_lag_seconds", "Seconds that the chat waited that waits longest to be indexed"
        )
        self.search_chats_waiting = self._computed(
            "parley_search_chats_waiting", "Chats with entries that are not in the search index yet"
        )
        self.search_entries = self._counter(
            "parley_search_entries_indexed", "Positions that were brought into the search index"
        )
        self.dynamodb_requests = self._counter(
            "parley_dynamodb_requests", "Requests to DynamoDB, retries included", "operation"
        )
        self.dynamodb_retries = self._counter(
            "parley_dynamodb_retries", "Requests to DynamoDB that were a retry", "operation"
        )
        self.dynamodb_units = self._counter(
            "parley_dynamodb_units", "Capacity units that DynamoDB says it consumed", "operation"
        )

    def _declare_deliveries(self) -> None:
        self.dlq_size = self._gauge("dlq_size", "Dead letters that are pending")
        self.delivery_outcomes = self._counter(
            "parley_delivery_outcomes",
            "Attempts to deliver to webhooks, by what became of them",
            "outcome",
            watched=("delivered", "retried", "dead_lettered", "replayed"),
        )
        self.webhooks_paused = self._gauge(
            "parley_webhooks_paused", "Webhooks that are paused because they do not answer"
        )
        self.push_outcomes = self._counter(
            "parley_push_outcomes",
            "Notifications, by provider and what became of them; unauthorized: it refuses this server",
            "provider",
            "outcome",
        )
        for provider in ("apns", "fcm", "webpush", "webhook"):
            self.push_outcomes.labels(provider, "unauthorized")

    def _declare_attachments(self) -> None:
        self.attachments = self._counter(
            "parley_attachments",
            "Files, by what became of them: announced, completed, mismatched, attached, removed, discarded,"
            " swept; and images without_preview",
            "event",
        )
        self.attachment_bytes = self._counter(
            "parley_attachment_bytes", "Bytes of files that came in and went out", "direction"
        )

    def _declare_archive(self) -> None:
        self.archived_entries = self._counter("parley_archived_entries", "Positions moved to the cold tier")
        self.archived_bytes = self._counter("parley_archived_bytes", "Bytes of segments written")
        self.archive_failures = self._counter(
            "parley_archive_failures", "Chats that could not be archived in a run, and stay where they are"
        )
        self.archive_reads = self._counter("parley_archive_reads", "Requests that read from the cold store")
        self.archive_read_bytes = self._counter("parley_archive_read_bytes", "Bytes that they returned")
        self.archive_read_failures = self._counter(
            "parley_archive_read_failures", "Reads of archived entries that failed"
        )
        self.bodies_removed = self._counter(
            "parley_bodies_removed",
            "Bodies of messages removed for good, by why",
            "why",
            watched=("retention", "erasure"),
        )

    def _declare_gateway(self) -> None:
        self.connections = self._gauge("parley_connections", "Open WebSocket connections")
        self.outbox_bytes = self._gauge("parley_outbox_bytes", "Bytes waiting in all outboxes")
        self.closed = self._counter(
            "parley_connections_closed", "Connections closed by the server", "code", watched=("4001",)
        )
        self.connections_refused = self._counter(
            "parley_connections_refused",
            "Connections refused, because the process, an address or a user had too many",
            "reason",
            watched=("descriptors", "address", "user"),
        )
        self.turn_waits = self._tally(
            "parley_turn_waits", "Times that a client had used its slice of the loop and waited", "counter"
        )
        self.requests = self._counter("parley_http_requests", "HTTP requests", "route", "status")
        self.page_reports = self._counter(
            "parley_page_reports",
            "What browsers kept pages from doing, by the directive of the policy that it broke",
            "directive",
            watched=("script-src", "require-trusted-types-for", "connect-src"),
        )
        self.refusals = self._counter(
            "parley_refusals",
            "Requests refused, by code",
            "code",
            watched=("internal", "outcome_unknown", "store_unavailable"),
        )
        self.fanout_seconds = self._histogram(
            "parley_fanout_lag_seconds", "Seconds from the durable commit to the last outbox"
        )
        self.deliveries = self._tally("parley_deliveries", "Live frames offered to outboxes", "counter")

    def _declare_cluster(self) -> None:
        self.nodes = self._gauge("parley_nodes", "Nodes of the cluster that this one knows to be alive")
        self.forwarded_batches = self._counter("parley_forwarded_batches", "Batches sent to other nodes")
        self.forwarded_drafts = self._counter("parley_forwarded_drafts", "Drafts sent to other nodes")
        self.forward_failures = self._counter(
            "parley_forward_failures",
            "Batches that a node refused or left unanswered",
            "reason",
            watched=("refused", "silent"),
        )
        self.unproven = self._counter(
            "parley_unproven",
            "What was passed over because no node of this cluster made it, or not lately",
            "what",
            watched=("announcement", "call", "draft", "event", "job record", "signals"),
        )
        self.routed_batches = self._counter(
            "parley_routed_batches", "Batches of entries that nodes confirmed"
        )
        self.routed_positions = self._counter(
            "parley_routed_positions", "Positions in those batches, counted for each node"
        )
        self.route_failures = self._counter(
            "parley_route_failures",
            "Batches of entries that a node did not confirm: tried again, or given up with its tenure",
            "outcome",
            watched=("retried", "given_up"),
        )
        self.route_confirm_seconds = self._histogram(
            "parley_route_confirm_seconds", "Seconds from an event's lookup to the node's confirmation"
        )
        self.interest_subjects = self._computed(
            "parley_interest_subjects", "Chats and people that this node has registered to hear"
        )
        self.interest_tenures = self._counter(
            "parley_interest_tenures", "Times that this node registered everything from the start"
        )
        self.interest_doubt = self._computed(
            "parley_interest_doubt", "1 while entries may not be routed to this node and it reads heads"
        )
        self.notices_lost = self._counter("parley_notices_lost", "Notices that a node never acknowledged")

    def _declare_bus(self) -> None:
        self.unpublished_positions = self._computed(
            "parley_unpublished_positions", "Durable, and not known to be on the bus"
        )
        self.publish_stalled_seconds = self._computed(
            "parley_publish_stalled_seconds", "Seconds for which the slowest chat has published nothing"
        )
        self.consumer_lag = self._computed(
            "parley_consumer_lag", "Events on the bus that a reader has not handled yet", label="reader"
        )
        self.published = self._counter("parley_events_published", "Events acknowledged by the bus")
        self.publish_failures = self._counter(
            "parley_publish_failures", "Batches of events that the bus did not accept, or not in time"
        )
        self.swept = self._counter("parley_chats_swept", "Chats whose events were published by a sweeper")

    def _declare_people(self) -> None:
        self.ephemeral_available = self._computed(
            "parley_ephemeral_available",
            "1 while the engine of presence and shared rates (Redis) can be used",
            initial=1,
        )
        self.signals_dropped = self._computed(
            "parley_signals_dropped", "Signals that did not reach other nodes", kind="counter"
        )
        self.receipts_told = self._counter(
            "parley_receipts_told", "Receipts sent to members, by kind", "kind"
        )
        self.presence_told = self._counter("parley_presence_told", "Presence frames sent to subscribers")
        self.typing_told = self._counter("parley_typing_told", "Typing signals published")

    def _declare_jobs(self) -> None:
        self.job_runs = self._counter("parley_job_runs", "Runs of jobs, by outcome", "job", "outcome")
        self.job_last_success = self._gauge(
            "parley_job_last_success_timestamp_seconds", "When a job of this node last succeeded", "job"
        )
        self.job_failing = self._computed(
            "parley_job_failing_runs", "Failures in a row of a job that this node runs", label="job"
        )
        self.job_overdue = self._computed(
            "parley_job_overdue",
            "1 while a job that this node must run has not succeeded for several intervals",
            label="job",
        )

    def time_allocation(self, seconds: float) -> None:
        """Call it once for each allocation; in atomic, for each commit."""
        self.allocation.add(seconds)
        self.allocation_seconds.observe(seconds)

    def time_persist(self, seconds: float) -> None:
        """Call it once for each stored batch: how long its oldest draft waited."""
        self.persist.add(seconds)
        self.persist_seconds.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    # One line each to declare a metric

    def _histogram(self, name: str, text: str, buckets: Iterable[float] = SECONDS_BUCKETS) -> Histogram:
        return Histogram(name, text, buckets=tuple(buckets), registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str, watched: Iterable[str] = ()) -> Counter:
        """`watched`: label values that alerts use. They exist from the start: a series that appears
        with its first event shows no increase.
        """
        counter = Counter(name, text, labels, registry=self.registry)
        for value in watched:
            counter.labels(value)
        return counter

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _computed(
        self,
        name: str,
        text: str,
        *,
        kind: Kind = "gauge",
        label: str = "",
        initial: float = 0.0,
        read: Read | None = None,
    ) -> CallbackMetric:
        metric = CallbackMetric(name, text, kind, label, initial)
        if read is not None:
            metric.register(read)
        self.registry.register(metric)
        return metric

    def _tally(self, name: str, text: str, kind: Kind) -> Tally:
        tally = Tally()
        self._computed(name, text, kind=kind, read=lambda: tally.count)
        return tally


class ForeignRecords(logging.Handler):
    """Passes what libraries log to our log, at `debug` unless it is an error: some quote a client."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        tell = log.error if record.levelno >= logging.ERROR else log.debug
        tell(record.getMessage(), exc_info=record.exc_info)


def escape_controls(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters: client text must not move a terminal's cursor or start a new log line."""
    return {name: _escaped(value) if isinstance(value, str) else value for name, value in line.items()}


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    kept = "\n" if text.startswith("Traceback") else ""
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def configure_logs(level: str = "info", as_json: bool = True) -> None:
    """Structured lines on stderr; stdout stays free for the output of commands."""
    rendered: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if as_json
        else [escape_controls, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    if not any(isinstance(handler, ForeignRecords) for handler in logging.root.handlers):
        logging.root.addHandler(ForeignRecords())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
