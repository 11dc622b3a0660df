"""Costs that must not grow: with the length of a log, and with the size of a chat."""

from __future__ import annotations

import asyncio
import statistics

from bench import frames
from bench.connection import connect
from bench.measuring import NS_PER_MS
from bench.roles import Load, OnePage, Writer
from bench.rows import Row
from bench.stage import Stage
from bench.world import Person, World

SHORT_LOG_ENTRIES = 1_000
LONG_LOG_ENTRIES = 1_000_000
PAGE_ENTRIES = 100
PAGES = 300

LARGE_CHAT_MEMBERS = 10_000
SMALL_CHAT_MEMBERS = 2
SENDS = 1_000


async def sync_of_long_logs(stage: Stage) -> list[Row]:
    """The same page, in turn from a short log and from a long one: at its start, middle and end."""
    long_entries = stage.pick(LONG_LOG_ENTRIES, LONG_LOG_ENTRIES // 10)

    async def populate(world: World) -> tuple[Person, str, str]:
        (person,) = await world.people(1)
        short, long = await world.group([person]), await world.group([person])
        await world.fill(short, person, SHORT_LOG_ENTRIES)
        await world.fill(long, person, long_entries)
        return person, short, long

    async with stage.serving(populate) as (server, (person, short, long)):
        await server.rested()
        hello = frames.hello(person.token, person.device_id, live=False)
        pagers = [OnePage(Load(), chat_id, PAGE_ENTRIES) for chat_id in (short, long)]
        for pager in pagers:
            await connect(server.address, hello, pager)
        times: tuple[list[int], list[int]] = ([], [])
        for turn in range(PAGES):
            share = (0, 0.5, 0.9)[turn % 3]
            for pager, entries, taken in zip(pagers, (SHORT_LOG_ENTRIES, long_entries), times, strict=True):
                taken.append(await pager.page(int(share * entries)))
        for pager in pagers:
            pager.load.running = False
    label = f"page of {PAGE_ENTRIES}: log of {long_entries:,} against {SHORT_LOG_ENTRIES:,}"
    return [_ratio_row("flat_sync", label, times[1], times[0])]


class OneByOne(Writer):
    """Sends one message per call, and returns how long its ack took."""

    def __init__(self, load: Load, chat_id: str) -> None:
        super().__init__(load, chat_id)
        self._answer: asyncio.Future[int] | None = None

    def send(self) -> asyncio.Future[int]:
        self._answer = asyncio.get_running_loop().create_future()
        self.start()
        return self._answer

    def _answered(self, count: int) -> None:
        super()._answered(count)
        if self._answer is not None:
            self._answer.set_result(self.load.ack_ns[-1])


async def acks_in_large_chats(stage: Stage) -> list[Row]:
    """One sender writes in turn to a chat of 10,000 and to a chat of two."""
    members = stage.pick(LARGE_CHAT_MEMBERS, LARGE_CHAT_MEMBERS // 5)

    async def populate(world: World) -> tuple[Person, str, str]:
        people = await world.people(members)
        return people[0], await world.group(people), await world.group(people[:SMALL_CHAT_MEMBERS])

    async with stage.serving(populate) as (server, (person, large, small)):
        load = Load()
        load.running = False  # an ack does not trigger the next send: the two chats alternate
        hello = frames.hello(person.token, person.device_id, live=False)
        senders = [OneByOne(load, chat_id) for chat_id in (large, small)]
        for sender in senders:
            await connect(server.address, hello, sender)
        times: tuple[list[int], list[int]] = ([], [])
        for _ in range(stage.pick(SENDS, SENDS // 5)):
            for sender, taken in zip(senders, times, strict=True):
                taken.append(await sender.send())
    label = f"ack in a chat of {members:,} against {SMALL_CHAT_MEMBERS}"
    return [_ratio_row("flat_members", label, times[0], times[1])]


def _ratio_row(name: str, label: str, large_ns: list[int], small_ns: list[int]) -> Row:
    """How many times longer the large one takes, by medians."""
    large, small = statistics.median(large_ns), statistics.median(small_ns)
    return Row(
        name=name,
        label=label,
        unit="× as long",
        value=large / small,
        p50_ms=large / NS_PER_MS,
        p99_ms=statistics.quantiles(large_ns, n=100)[98] / NS_PER_MS,
        notes=[f"medians {large / NS_PER_MS:.2f} ms and {small / NS_PER_MS:.2f} ms"],
    )
