"""What many connected people would cost on AWS: prints the table of docs/scaling.md.

    .venv/bin/python -m bench.extrapolate

All figures are here: the assumptions, the measurements, AWS's prices. Change a figure and run it again; a
test compares the page with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

SECONDS_PER_DAY = 86_400
DAYS_PER_MONTH = 30
HOURS_PER_MONTH = 730
MILLION = 1_000_000
GB = 1_000_000_000
GIB = 1024**3
UNIT_BYTES = 1024
"""Of a write unit."""


class Assumed(Struct, frozen=True, kw_only=True):
    """What people do. One device each, connected all day, on any gateway."""

    people: int = MILLION
    messages_per_day: float = 40
    peak_factor: float = 3
    deliveries: float = 4.6
    """Of a message: 80% go to one other person, 20% to a group of which 19 others are connected."""
    chats_each: int = 20
    messages_per_transaction: float = 1
    messages_per_burst: float = 2
    """Within two seconds: they share one write of a position, and one of a mark."""
    heartbeat_seconds: float = 30
    session_units: float = 1
    """Read units of the session that each heartbeat reads: half when it need not be read strongly."""
    heads_seconds: float = 30
    memberships_seconds: float = 300
    used_seconds: float = 3_600
    core_share: float = 0.5
    """How busy a process may be in the peak hour."""


class Measured(Struct, frozen=True):
    """By `make bench ENGINE=dynamodb` and `make bench`; the lowest measured CPU, in microseconds."""

    mark_units: float = 1
    index_units: float = 2
    position_units: float = 2
    head_units: float = 1
    membership_units: float = 1
    gateway_us: float = 140
    ingest_us: float = 730
    delivery_us: float = 45
    pass_over_us: float = 34
    heartbeat_us: float = 380
    head_us: float = 15
    connection_bytes: float = 17.3 * 1024
    record_bytes: float = 800
    item_bytes: float = 650
    """An entry of 128 letters and its overhead; keys expire after 7 days."""
    bundled_bytes: float = 246.6
    """The same entry in an item that 49 share."""
    frame_bytes: float = 600
    heartbeat_bytes: float = 150


class Prices(Struct, frozen=True):
    """List prices in us-east-1, on demand, in dollars; docs/scaling.md says where each is from."""

    million_writes: float = 0.625
    million_reads: float = 0.125
    gb_month_stored: float = 0.25
    node_hour: float = 0.0816
    node_processes: int = 2
    broker_hour: float = 0.204
    brokers: int = 3
    gb_month_broker: float = 0.10
    gb_between_zones: float = 0.02
    gb_to_internet: float = 0.09
    redis_hour: float = 0.158


class Line(Struct, frozen=True):
    """One thing to pay for. `rate` is on average, per second."""

    what: str
    rate: float
    unit: str
    dollars: float


class Load(Struct, frozen=True):
    """What follows from the assumptions."""

    assumed: Assumed
    measured: Measured

    @property
    def messages(self) -> float:
        """Per second, on average."""
        return self.assumed.people * self.assumed.messages_per_day / SECONDS_PER_DAY

    @property
    def peak_messages(self) -> float:
        return self.messages * self.assumed.peak_factor

    @property
    def append_units(self) -> float:
        """Write units of a message: its key, its share of an item and of the head, twice in a transaction."""
        batch = self.assumed.messages_per_transaction
        entries = 1 if batch == 1 else ceil(batch * self.measured.bundled_bytes / UNIT_BYTES)
        return 2 * (1 + (entries + 1) / batch)

    @property
    def outbox_units(self) -> float:
        return (self.measured.mark_units + self.measured.index_units) / self.assumed.messages_per_burst

    @property
    def position_units(self) -> float:
        return self.measured.position_units * self.assumed.deliveries / self.assumed.messages_per_burst

    @property
    def heartbeats(self) -> float:
        return self.assumed.people / self.assumed.heartbeat_seconds

    @property
    def heads(self) -> float:
        """Members of a chat are spread over gateways, so heads are read for nearly every person and chat."""
        return self.assumed.people * self.assumed.chats_each / self.assumed.heads_seconds

    @property
    def ingest_cores(self) -> float:
        """In the peak hour, at full load."""
        return self.peak_messages * self.measured.ingest_us / MILLION

    @property
    def gateway_cores(self) -> float:
        """Without the cost of messages that a gateway skips."""
        work = (
            self.peak_messages
            * (self.measured.gateway_us + self.assumed.deliveries * self.measured.delivery_us)
            + self.heartbeats * self.measured.heartbeat_us
            + self.heads * self.measured.head_us
        )
        return work / MILLION

    @property
    def pass_over_share(self) -> float:
        """Of a core, for each gateway: it reads the whole topic."""
        return self.peak_messages * self.measured.pass_over_us / MILLION

    @property
    def gateways(self) -> float:
        """Processes of one core each."""
        return self.gateway_cores / (self.assumed.core_share - self.pass_over_share)

    @property
    def ingests(self) -> float:
        return self.ingest_cores / self.assumed.core_share


def bill(load: Load, prices: Prices) -> Iterator[Line]:
    """All costs per month, the store first."""
    write, read = prices.million_writes, prices.million_reads
    yield _units("messages: entry, key, head", load.messages * load.append_units, "write units", write)
    yield _units("outbox: marks and their index", load.messages * load.outbox_units, "write units", write)
    yield _units("positions of devices", load.messages * load.position_units, "write units", write)
    used = load.assumed.people / load.assumed.used_seconds
    yield _units("sessions noted as used", used, "write units", write)
    sessions = load.heartbeats * load.assumed.session_units
    yield _units("sessions read by heartbeats", sessions, "read units", read)
    yield _units("heads looked at", load.heads * load.measured.head_units, "read units", read)
    members = load.assumed.people / load.assumed.memberships_seconds * load.measured.membership_units
    yield _units("memberships looked at", members, "read units", read)
    yield from _rest(load, prices)


def _rest(load: Load, prices: Prices) -> Iterator[Line]:
    measured, seconds = load.measured, SECONDS_PER_DAY * DAYS_PER_MONTH
    stored = load.messages * measured.item_bytes
    yield Line(
        "entries of one month, stored", stored, "bytes", stored * seconds / GB * prices.gb_month_stored
    )
    processes = load.gateways + load.ingests
    hours = HOURS_PER_MONTH / prices.node_processes
    yield Line("gateways and ingests", processes, "processes", processes * hours * prices.node_hour)
    news = load.messages * measured.record_bytes
    kept = 3 * news * 7 * SECONDS_PER_DAY / GB * prices.gb_month_broker
    brokers = prices.brokers * HOURS_PER_MONTH * prices.broker_hour
    yield Line("Kafka: three brokers, seven days kept", news, "bytes in", brokers + kept)
    read = news * load.gateways
    across = read * 2 / 3 * seconds / GB * prices.gb_between_zones
    yield Line("Kafka to every gateway, two thirds across zones", read, "bytes out", across)
    sent = load.messages * (1 + load.assumed.deliveries) * measured.frame_bytes
    sent += load.heartbeats * measured.heartbeat_bytes
    yield Line("to devices over the internet", sent, "bytes", sent * seconds / GB * prices.gb_to_internet)
    yield Line("Redis: two nodes", load.heartbeats, "renewals", 2 * HOURS_PER_MONTH * prices.redis_hour)


def _units(what: str, rate: float, unit: str, per_million: float) -> Line:
    return Line(what, rate, unit, rate * SECONDS_PER_DAY * DAYS_PER_MONTH / MILLION * per_million)


AS_BUILT = Load(Assumed(), Measured())
CHANGED = Load(
    replace(AS_BUILT.assumed, heads_seconds=900, memberships_seconds=9_000, session_units=0.5),
    AS_BUILT.measured,
)
"""After the first two changes that docs/scaling.md proposes."""


def table(now: Load, then: Load, prices: Prices) -> str:
    """Both bills side by side, as Markdown."""
    pairs = list(zip(bill(now, prices), bill(then, prices), strict=True))
    rows = [f"| {a.what} | {_rate(a)} | {a.dollars:,.0f} | {_rate(b)} | {b.dollars:,.0f} |" for a, b in pairs]
    sums = [sum(line.dollars for line in lines) for lines in zip(*pairs, strict=True)]
    head = "| by the month | as built, per second | $ | changed, per second | $ |\n|---|---|---|---|---|"
    return "\n".join([head, *rows, f"| **together** | | **{sums[0]:,.0f}** | | **{sums[1]:,.0f}** |"])


def _rate(line: Line) -> str:
    for size, letter in ((MILLION, "M"), (1_000, "k")):
        if line.rate >= 10 * size and line.unit != "processes":
            return f"{line.rate / size:,.0f} {letter} {line.unit}"
    return f"{line.rate:,.0f} {line.unit}"


if __name__ == "__main__":
    print(table(AS_BUILT, CHANGED, Prices()))
