"""The goal of each row, and the best figure of other servers on the same kind of machine.

The peers' figures were measured with server and database on one core, the generator on the other, and
every message synced before its ack unless it says otherwise. Compare only ratios, and only with a run on a
machine of that kind (2 cores, fdatasync about 2,800-5,000/s).
"""

from __future__ import annotations

from msgspec import Struct

from bench.rows import Row
from bench.scenarios.abuse import FLOODS

PEERS_SOURCE = "measured on the same kind of machine, date unknown"


FIGURE_UNITS = {"cpu_us": " µs", "batch": " in a batch"}


class Goal(Struct, frozen=True):
    """A bound on one figure of a row: `value`, `batch`, or `cpu_us`, the server's CPU for each unit."""

    bound: float
    figure: str = "value"
    at_most: bool = False

    def ratio(self, measured: float) -> float:
        """1 is exactly met, more is better."""
        if measured <= 0:
            return float("inf") if self.at_most else 0.0
        return self.bound / measured if self.at_most else measured / self.bound

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"{sign} {self.bound:,g}{FIGURE_UNITS.get(self.figure, '')}"


class Target(Struct, frozen=True):
    goals: tuple[Goal, ...]
    best_peer: str = ""


OUTBOXES_OF_STUCK_READERS_MIB = 10 * 4
SLACK_MIB = 16

TARGETS: dict[str, Target] = {
    "hot_chat": Target(
        (Goal(12_000), Goal(80, "cpu_us", at_most=True)), "Centrifugo + Redis 6,900-9,500 at 99-126 µs"
    ),
    "hot_chat_16": Target((Goal(18_000),)),
    "one_to_one": Target(
        (Goal(11_000), Goal(90, "cpu_us", at_most=True)), "Centrifugo + Redis 10,000 at 96 µs"
    ),
    "members_1000": Target((Goal(60_000),), "Centrifugo 47,000 (NATS 60,000 unsynced)"),
    "catch_up": Target((Goal(200_000),), "NATS JetStream 177,000"),
    "catch_up_8": Target((Goal(200_000),)),
    "amended": Target((Goal(0.9),)),
    "idle": Target((Goal(18, at_most=True),), "WuKongIM 8.5 (Centrifugo 53)"),
    "returning": Target((Goal(1.8, at_most=True),), "Centrifugo 1.9 s"),
    "archive_bytes": Target((Goal(0.35, at_most=True),)),
    "archive_catch_up": Target((Goal(0.5),)),
    "search_sends_1": Target((Goal(0.9),)),
    "search_sends_16": Target((Goal(0.9),)),
    "log_hashes_1": Target((Goal(0.98),)),
    "log_hashes_16": Target((Goal(0.98),)),
    "flat_sync": Target((Goal(1.5, at_most=True),)),
    "flat_members": Target((Goal(1.5, at_most=True),)),
    "slow_reader": Target((Goal(OUTBOXES_OF_STUCK_READERS_MIB + SLACK_MIB, at_most=True),)),
    "receipts_ack": Target((Goal(1.1, at_most=True),)),
    "receipts_bytes": Target((Goal(1.05, at_most=True),)),
    "presence_linear": Target((Goal(1.3, at_most=True),)),
    "presence_frames": Target((Goal(1, at_most=True),)),
    **{
        f"{engine}{path}_{mode}_{writers}": Target((Goal(bound_ms, at_most=True),))
        for engine in ("", "shared_")
        for path, bound_ms in (("allocation", 50), ("persist", 100))
        for mode in ("atomic", "two_phase")
        for writers in (1, 10, 100)
    },
    **{f"abuse_{name}": Target((Goal(10, at_most=True),)) for name in FLOODS},
    **{f"abuse_{name}_memory": Target((Goal(1.2, at_most=True),)) for name in FLOODS},
    # On engines that nodes share, the other goals are ratios within a run, and counts.
    "shared_hot_chat": Target((Goal(20, "batch"),)),
    "shared_batching": Target((Goal(2),)),
    "shared_client_ratio": Target((Goal(0.25, at_most=True),)),
    "shared_units_atomic_49": Target((Goal(2.02, at_most=True),)),
    "shared_units_two_phase_49": Target((Goal(5, at_most=True),)),
}
NO_TARGET = Target(())


class Verdict(Struct, frozen=True):
    goal: str
    met: bool
    ratio: float


def verdicts(row: Row) -> list[Verdict]:
    """A verdict for each goal of a row."""
    found = []
    for goal in TARGETS.get(row.name, NO_TARGET).goals:
        measured: float | None = getattr(row, goal.figure)
        if measured is not None:
            ratio = goal.ratio(measured)
            found.append(Verdict(str(goal), ratio >= 1, ratio))
    return found
