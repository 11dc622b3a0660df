"""What the jobs behind the log cost those who send: two servers in turn, one of them without the job."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from msgspec import Struct

from bench.measuring import OTHERS_CORES_MAX, Stretch, drain, measure, median_ratio
from bench.rows import Row
from bench.scenarios import hot_chat
from bench.scenarios.hot_chat import HotChat
from bench.stage import Stage

ROUNDS = 4
"""Pairs of new servers: how a process lies in memory makes one faster than another."""
TURNS = 12
STRETCH_SECONDS = 1.0
"""Short, so that other programs disturb both equally."""
SETTLE_SECONDS = 0.25
WINDOWS = (1, hot_chat.WINDOW)

SEARCH_OFF = {"PARLEY_SEARCH_ENABLED": "false"}
SEARCH_ON = {"PARLEY_SEARCH_ENABLED": "true"}


class Side(Struct, frozen=True):
    """A server that is compared with another. `module`: what runs instead of `parley`."""

    environment: Mapping[str, str]
    module: str | None = None


async def log_hashes(stage: Stage) -> list[Row]:
    """Without search on both sides, whose job costs more than what is measured."""
    one, other = Side(SEARCH_OFF), Side(SEARCH_OFF, "bench.without_hashes")
    return [
        await _compared(stage, "log_hashes", "the hashes of logs", one, other, window) for window in WINDOWS
    ]


async def search_sends(stage: Stage) -> list[Row]:
    one, other = Side(SEARCH_ON), Side(SEARCH_OFF)
    return [
        await _compared(stage, "search_sends", "the search index", one, other, window) for window in WINDOWS
    ]


async def _compared(stage: Stage, name: str, what: str, one: Side, other: Side, window: int) -> Row:
    """The hot chat on two servers that take turns, in several pairs of servers."""
    pairs: list[tuple[Stretch, Stretch]] = []
    notes: list[str] = []
    for _ in range(stage.pick(ROUNDS, 1)):
        async with (
            hot_chat.opened(stage, hot_chat.writing(window), one.environment, one.module) as with_it,
            hot_chat.opened(stage, hot_chat.writing(window), other.environment, other.module) as without,
        ):
            for turn in range(stage.pick(TURNS, 4)):
                if turn % 2:
                    burdened = await _stretch(with_it, without, notes)
                    alone = await _stretch(without, with_it, notes)
                else:
                    alone = await _stretch(without, with_it, notes)
                    burdened = await _stretch(with_it, without, notes)
                pairs.append((burdened, alone))
    acks = [(one.acks, other.acks) for one, other in pairs]
    cpu = [(one.cpu_us_per(one.acks), other.cpu_us_per(other.acks)) for one, other in pairs]
    others = statistics.median(stretch.others_cores for pair in pairs for stretch in pair)
    return Row(
        name=f"{name}_{window}",
        label=f"acks, hot chat, window {window}, with {what} against without",
        unit="×",
        value=median_ratio(acks),
        cpu_us=statistics.median(with_it for with_it, _ in cpu),
        others_cores=others,
        notes=[
            f"acks: {_quartiles(acks)}",
            f"CPU for an ack: {_quartiles(cpu)}",
            *([f"other programs kept {others:.1f} cores busy"] if others > OTHERS_CORES_MAX else []),
            *dict.fromkeys(notes),
        ],
    )


async def _stretch(chat: HotChat, other: HotChat, notes: list[str]) -> Stretch:
    """Load one of the servers for a while. The other is stopped: its jobs would catch up on the same core."""
    with other.server.paused():
        chat.start()
        stretch = await measure(chat.load, chat.server, STRETCH_SECONDS, SETTLE_SECONDS)
        notes += [*chat.load.problems, *await drain(chat.load, deliveries_per_ack=hot_chat.READERS)]
    return stretch


def _quartiles(pairs: list[tuple[float, float]]) -> str:
    low, middle, high = statistics.quantiles([one / other for one, other in pairs], n=4)
    ones, others = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    spread = f"quartiles {low:.3f} to {high:.3f} of {len(pairs)} turns"
    return f"{middle:.3f} × ({spread}), medians {ones:,.1f} and {others:,.1f}"
