"""Measures a period under load: rates, latencies and CPU."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from bench.processes import machine_busy_seconds
from bench.roles import Load

GENERATOR_SATURATED_SHARE = 0.9
OTHERS_CORES_MAX = 0.25
DRAIN_SECONDS_MAX = 10
POLL_SECONDS = 0.02
NS_PER_MS = 1e6


class Measured(Protocol):
    """A server, or several, with counters that only rise."""

    def cpu_seconds(self) -> float:
        """CPU of the measured processes."""
        ...

    def helpers_cpu_seconds(self) -> float:
        """CPU of services that they use, such as a database in a process of its own."""
        ...

    async def batches(self) -> tuple[float, float]:
        """How many messages were made durable, and in how many batches."""
        ...


class Stretch(Struct):
    """Rates per second, the server's CPU, the generator's share of its core, and what others did."""

    seconds: float
    acks: float
    delivered: float
    cpu_seconds: float
    generator_share: float
    helpers_cores: float
    others_cores: float
    batch: float | None
    ack_ms: tuple[float, float]
    delivery_ms: tuple[float, float]
    notes: list[str] = field(default_factory=list)

    def cpu_us_per(self, rate: float) -> float:
        return 1e6 * self.cpu_seconds / max(rate * self.seconds, 1)


class Reading(Struct):
    """Every counter at one moment."""

    time: float
    generator_cpu: float
    server_cpu: float
    helpers_cpu: float
    machine_cpu: float
    acks: int
    delivered: int
    batches: tuple[float, float]


def percentiles_ms(samples_ns: list[int]) -> tuple[float, float]:
    """p50 and p99 in milliseconds; zeros when there is no sample."""
    if not samples_ns:
        return 0.0, 0.0
    ranked = sorted(samples_ns)
    return ranked[len(ranked) // 2] / NS_PER_MS, ranked[len(ranked) * 99 // 100] / NS_PER_MS


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of first / second over all pairs; 0 without any."""
    return statistics.median(one / other for one, other in pairs) if pairs else 0.0


async def read(load: Load, server: Measured) -> Reading:
    batches = await server.batches()
    return Reading(
        time=time.perf_counter(),
        generator_cpu=time.process_time(),
        server_cpu=server.cpu_seconds(),
        helpers_cpu=server.helpers_cpu_seconds(),
        machine_cpu=machine_busy_seconds(),
        acks=load.acks,
        delivered=load.delivered,
        batches=batches,
    )


async def measure(load: Load, server: Measured, seconds: float, warm_up_seconds: float) -> Stretch:
    """Watch a load that is already running."""
    await asyncio.sleep(warm_up_seconds)
    load.ack_ns.clear()
    load.delivery_ns.clear()
    before = await read(load, server)
    await asyncio.sleep(seconds)
    after = await read(load, server)
    elapsed = after.time - before.time
    server_cpu, generator_cpu = (
        after.server_cpu - before.server_cpu,
        after.generator_cpu - before.generator_cpu,
    )
    helpers_cpu = after.helpers_cpu - before.helpers_cpu
    others_cpu = after.machine_cpu - before.machine_cpu - server_cpu - generator_cpu - helpers_cpu
    messages, batches = (later - sooner for later, sooner in zip(after.batches, before.batches, strict=True))
    stretch = Stretch(
        seconds=elapsed,
        acks=(after.acks - before.acks) / elapsed,
        delivered=(after.delivered - before.delivered) / elapsed,
        cpu_seconds=server_cpu,
        generator_share=generator_cpu / elapsed,
        helpers_cores=helpers_cpu / elapsed,
        others_cores=others_cpu / elapsed,
        batch=messages / batches if batches else None,
        ack_ms=percentiles_ms(load.ack_ns),
        delivery_ms=percentiles_ms(load.delivery_ns),
    )
    stretch.notes += problems(load, stretch)
    return stretch


def problems(load: Load, stretch: Stretch) -> list[str]:
    """Notes that a reader of the figures needs."""
    notes = list(load.problems)
    if stretch.generator_share > GENERATOR_SATURATED_SHARE:
        notes.append(f"the generator was busy for {stretch.generator_share:.0%}: the server may do more")
    if stretch.others_cores > OTHERS_CORES_MAX:
        notes.append(
            f"other programs kept {stretch.others_cores:.1f} cores busy: measure again when it is quiet"
        )
    if load.refused:
        notes.append(f"{load.refused} requests were refused")
    return notes


async def until(condition: Callable[[], bool], seconds_max: float) -> bool:
    """Whether a condition becomes true in time. Polled, so that no hot path has to signal it."""
    deadline = time.perf_counter() + seconds_max
    while not condition():
        if time.perf_counter() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


async def drain(load: Load, deliveries_per_ack: int = 0) -> list[str]:
    """Stop the load, wait for everything in flight, and report what never arrived."""
    load.running = False

    def missing() -> tuple[int, int]:
        return load.sent - load.acks, load.acks * deliveries_per_ack - load.delivered

    await until(lambda: all(count <= 0 for count in missing()), DRAIN_SECONDS_MAX)
    unacknowledged, undelivered = missing()
    notes = []
    if unacknowledged > 0:
        notes.append(f"{unacknowledged} messages were never acknowledged")
    if deliveries_per_ack and undelivered:
        notes.append(f"{undelivered} deliveries too few (negative: too many)")
    return notes
