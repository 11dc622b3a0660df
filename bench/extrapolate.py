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

from parley.store.dynamodb.append import KEYS_APART_MIN

SECONDS_PER_DAY = 86_400
DAYS_PER_MONTH = 30
HOURS_PER_MONTH = 730
MILLION = 1_000_000
GB = 1_000_000_000
GIB = 1024**3
UNIT_BYTES = 1024
"""Of a write unit."""
TABLE_READS_MAX = 40_000
"""Read units of a table per second, until AWS is asked for more; as many write units."""
REDIS_PEOPLE_MAX = MILLION
"""One thread of Redis is about three quarters busy with them."""


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
    connections_per_day: float = 10
    """Each reads the person's chats, and their heads."""
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
    session_units: float = 0.5
    """Of the session that each heartbeat reads, together with others and not strongly."""
    gateway_us: float = 111
    ingest_us: float = 590
    router_us: float = 156
    """For each node that a message is brought to."""
    delivery_us: float = 45
    heartbeat_us: float = 140
    head_us: float = 15
    interest_bytes: float = 113
    """Of Redis, for each chat and node."""
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
        """Write units of a message: its key, its share of an item and of the head, twice in a transaction.

        The keys of a large batch are outside its transaction.
        """
        batch = self.assumed.messages_per_transaction
        entries = 1 if batch == 1 else ceil(batch * self.measured.bundled_bytes / UNIT_BYTES)
        return (2 if batch < KEYS_APART_MIN else 1) + 2 * (entries + 1) / batch

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
    def connections(self) -> float:
        """New ones, per second."""
        return self.assumed.people * self.assumed.connections_per_day / SECONDS_PER_DAY

    @property
    def heads(self) -> float:
        """Members of a chat are on different gateways, so a connection reads the heads of all its chats."""
        return self.connections * self.assumed.chats_each

    @property
    def interests(self) -> float:
        """Pairs of a chat, or a person, and a node that hears it."""
        return self.assumed.people * (self.assumed.chats_each + 1)

    @property
    def ingest_cores(self) -> float:
        """In the peak hour, at full load."""
        return self.peak_messages * self.measured.ingest_us / MILLION

    @property
    def gateway_cores(self) -> float:
        """A message costs nothing on a gateway whose clients do not hear it."""
        work = (
            self.peak_messages
            * (self.measured.gateway_us + self.assumed.deliveries * self.measured.delivery_us)
            + self.heartbeats * self.measured.heartbeat_us
            + self.heads * self.measured.head_us
        )
        return work / MILLION

    @property
    def router_cores(self) -> float:
        """Hardly two members of a chat are on the same gateway."""
        return self.peak_messages * self.assumed.deliveries * self.measured.router_us / MILLION

    @property
    def gateways(self) -> float:
        """Processes of one core each."""
        return self.gateway_cores / self.assumed.core_share

    @property
    def routers(self) -> float:
        return self.router_cores / self.assumed.core_share

    @property
    def ingests(self) -> float:
        return self.ingest_cores / self.assumed.core_share


def first_quota(load: Load) -> float:
    """How many people reach the first quota of a table: each reads, and writes, in proportion."""
    peak = load.assumed.peak_factor
    used = {
        "sessions": load.heartbeats * load.measured.session_units,
        "chat_counters": load.heads * load.measured.head_units * peak,
        "messages": load.peak_messages * 2,
        "delivery_state": load.peak_messages * load.position_units / 2,
    }
    return load.assumed.people * TABLE_READS_MAX / max(used.values())


def bill(load: Load, prices: Prices) -> Iterator[Line]:
    """All costs per month, the store first."""
    write, read = prices.million_writes, prices.million_reads
    yield _units("messages: entry, key, head", load.messages * load.append_units, "write units", write)
    yield _units("outbox: marks and their index", load.messages * load.outbox_units, "write units", write)
    yield _units("positions of devices", load.messages * load.position_units, "write units", write)
    used = load.assumed.people / load.assumed.used_seconds
    yield _units("sessions noted as used", used, "write units", write)
    sessions = load.heartbeats * load.measured.session_units
    yield _units("sessions read by heartbeats", sessions, "read units", read)
    connecting = load.heads * load.measured.head_units + load.connections * load.measured.membership_units
    yield _units("chats and heads read by new connections", connecting, "read units", read)
    yield from _rest(load, prices)


def _rest(load: Load, prices: Prices) -> Iterator[Line]:
    measured, seconds = load.measured, SECONDS_PER_DAY * DAYS_PER_MONTH
    stored = load.messages * measured.item_bytes
    yield Line(
        "entries of one month, stored", stored, "bytes", stored * seconds / GB * prices.gb_month_stored
    )
    processes = load.gateways + load.ingests + load.routers
    hours = HOURS_PER_MONTH / prices.node_processes
    yield Line("gateways, ingests and routers", processes, "processes", processes * hours * prices.node_hour)
    news = load.messages * measured.record_bytes
    kept = 3 * news * 7 * SECONDS_PER_DAY / GB * prices.gb_month_broker
    brokers = prices.brokers * HOURS_PER_MONTH * prices.broker_hour
    yield Line("Kafka: three brokers, seven days kept", news, "bytes in", brokers + kept)
    read = news * (1 + load.assumed.deliveries)
    across = read * 2 / 3 * seconds / GB * prices.gb_between_zones
    yield Line("to routers and on to gateways, two thirds across zones", read, "bytes", across)
    sent = load.messages * (1 + load.assumed.deliveries) * measured.frame_bytes
    sent += load.heartbeats * measured.heartbeat_bytes
    yield Line("to devices over the internet", sent, "bytes", sent * seconds / GB * prices.gb_to_internet)
    redis = 2 * ceil(load.assumed.people / REDIS_PEOPLE_MAX)
    yield Line(
        "Redis: a primary and a replica for each million",
        load.heartbeats,
        "renewals",
        redis * HOURS_PER_MONTH * prices.redis_hour,
    )


def _units(what: str, rate: float, unit: str, per_million: float) -> Line:
    return Line(what, rate, unit, rate * SECONDS_PER_DAY * DAYS_PER_MONTH / MILLION * per_million)


AS_BUILT = Load(Assumed(), Measured())
TEN_MILLION = Load(replace(AS_BUILT.assumed, people=10 * MILLION), AS_BUILT.measured)
"""On paper: what it needs first is in docs/scaling.md."""


def table(now: Load, then: Load, prices: Prices) -> str:
    """Both bills side by side, as Markdown."""
    pairs = list(zip(bill(now, prices), bill(then, prices), strict=True))
    rows = [f"| {a.what} | {_rate(a)} | {a.dollars:,.0f} | {_rate(b)} | {b.dollars:,.0f} |" for a, b in pairs]
    sums = [sum(line.dollars for line in lines) for lines in zip(*pairs, strict=True)]
    head = "| by the month | a million people, per second | $ | ten million | $ |\n|---|---|---|---|---|"
    return "\n".join([head, *rows, f"| **together** | | **{sums[0]:,.0f}** | | **{sums[1]:,.0f}** |"])


def _rate(line: Line) -> str:
    for size, letter in ((MILLION, "M"), (1_000, "k")):
        if line.rate >= 10 * size and line.unit != "processes":
            return f"{line.rate / size:,.0f} {letter} {line.unit}"
    return f"{line.rate:,.0f} {line.unit}"


if __name__ == "__main__":
    print(table(AS_BUILT, TEN_MILLION, Prices()))
