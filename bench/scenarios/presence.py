"""A presence storm: all people disconnect and reconnect at once, and each watches fifty others."""

from __future__ import annotations

import asyncio
import statistics
import time

from msgspec import Struct

from bench import frames
from bench.connection import NotWelcome, connect
from bench.measuring import until
from bench.processes import machine_busy_seconds
from bench.roles import Counted, Load, Quiet
from bench.rows import Row, ratio_row
from bench.scenarios.idle import FILES_BESIDE_CONNECTIONS, allow_files
from bench.server import Server
from bench.stage import Stage
from bench.world import Person, World

GROUPS = 100
"""Each of 51 people, who share a chat and watch each other."""
WATCHED = 50
RETURN_SECONDS_MAX = 180.0
QUIET_SECONDS = 3.0
"""Longer than the server delays a frame about a user after the last one."""

STATE = b'"type":"presence_state"'
TOLD = b'"type":"presence",'


class Watcher(Quiet):
    """Subscribes as soon as it is welcomed, and counts presence frames."""

    def __init__(self, load: Load, subscribe: bytes) -> None:
        super().__init__(load)
        self._subscribe = subscribe
        self._answers = Counted(STATE)
        self._told = Counted(TOLD)

    def welcomed(self, transport: asyncio.Transport, rest: bytes) -> None:
        transport.write(self._subscribe)
        super().welcomed(transport, rest)

    def data_received(self, data: bytes) -> None:
        self.load.acks += self._answers.feed(data)
        self.load.delivered += self._told.feed(data)

    def leave(self) -> None:
        self.transport.write(frames.close())
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            super().connection_lost(error)


class Storm(Struct):
    """The cost until all people are connected, subscribed, and have all frames."""

    people: int
    changes: int
    """How often a person came online or went offline."""
    cpu_seconds: float
    seconds: float
    frames: int
    """Frames that the server has sent."""
    heard: int
    others_cores: float

    @property
    def cpu_us(self) -> float:
        """For each change."""
        return 1e6 * self.cpu_seconds / self.changes


class Crowd:
    """Groups of people who watch each other."""

    def __init__(self, server: Server, groups: list[list[Person]], watches: bool = True) -> None:
        self._server = server
        self._hellos: list[tuple[bytes, bytes]] = []
        self._here: list[Watcher] = []
        self.load = Load()
        for members in groups:
            for person in members:
                others = [other.user_id for other in members if watches and other is not person]
                hello = frames.hello(person.token, person.device_id, live=True)
                self._hellos.append((hello, frames.presence_subscribe(others)))

    @property
    def people(self) -> int:
        return len(self._hellos)

    async def come(self) -> None:
        """Connect all people at once; wait until all have subscribed and no more frames arrive."""
        answers = self.load.acks + self.people
        self._here = [Watcher(self.load, subscribe) for _, subscribe in self._hellos]
        await asyncio.gather(*map(self._connect, self._hellos, self._here))
        if not await until(lambda: self.load.acks >= answers, RETURN_SECONDS_MAX):
            self.load.note_problem(f"{answers - self.load.acks} subscriptions were never answered")
        await self._until_quiet()

    async def _connect(self, hello: tuple[bytes, bytes], watcher: Watcher) -> None:
        try:
            await connect(self._server.address, hello[0], watcher)
        except (OSError, NotWelcome) as error:
            self.load.note_problem(f"somebody was not let in: {error!r}")

    async def _until_quiet(self) -> None:
        """Wait until no frame has arrived for a while."""
        heard, since = self.load.delivered, time.perf_counter()
        while time.perf_counter() - since < QUIET_SECONDS:
            await asyncio.sleep(QUIET_SECONDS / 10)
            if self.load.delivered != heard:
                heard, since = self.load.delivered, time.perf_counter()

    async def go(self) -> None:
        self._leave()
        await self._until_quiet()

    def _leave(self) -> None:
        for watcher in self._here:
            watcher.leave()
        self._here = []

    async def return_(self) -> Storm:
        """Disconnect all people, and connect all of them at once."""
        server, load = self._server, self.load
        told, heard, changes = await _told(server), load.delivered, self.people + len(self._here)
        own, cpu = time.process_time(), server.cpu_seconds()
        machine, start = machine_busy_seconds(), time.perf_counter()
        self._leave()
        await self.come()
        seconds, cpu_seconds = time.perf_counter() - start, server.cpu_seconds() - cpu
        others = machine_busy_seconds() - machine - cpu_seconds - (time.process_time() - own)
        return Storm(
            people=self.people,
            changes=changes,
            cpu_seconds=cpu_seconds,
            seconds=seconds - QUIET_SECONDS,
            frames=int(await _told(server) - told),
            heard=load.delivered - heard,
            others_cores=others / seconds,
        )


async def _told(server: Server) -> float:
    return (await server.metrics()).get("parley_presence_told_total", 0)


async def storm(stage: Stage) -> list[Row]:
    """Half of the people and all of them, in turn on the same server: the cost per change must not grow."""
    count = stage.pick(GROUPS, GROUPS // 5)
    allow_files(2 * count * (WATCHED + 1) + FILES_BESIDE_CONNECTIONS)

    async def populate(world: World) -> list[list[Person]]:
        groups = [await world.people(WATCHED + 1) for _ in range(count)]
        for members in groups:
            await world.group(members)
        return groups

    async with stage.serving(populate) as (server, groups):
        alone, half = Crowd(server, groups, watches=False), Crowd(server, groups[: count // 2])
        whole = Crowd(server, groups)
        played: dict[Crowd, list[Storm]] = {}
        for crowd in (alone, half, whole, half, whole):
            played.setdefault(crowd, []).append(await crowd.return_())
            played[crowd].append(await crowd.return_())
            await crowd.go()
    problems = [problem for crowd in played for problem in crowd.load.problems]
    return rows(added(played[alone]), added(played[half]), added(played[whole]), problems)


def added(storms: list[Storm]) -> Storm:
    """Several storms of the same people as one."""
    return Storm(
        people=storms[0].people,
        changes=sum(storm.changes for storm in storms),
        cpu_seconds=sum(storm.cpu_seconds for storm in storms),
        seconds=max(storm.seconds for storm in storms),
        frames=sum(storm.frames for storm in storms),
        heard=sum(storm.heard for storm in storms),
        others_cores=statistics.mean(storm.others_cores for storm in storms),
    )


def rows(alone: Storm, half: Storm, whole: Storm, problems: list[str]) -> list[Row]:
    label = f"{whole.people:,} people come, go and come back at once, {WATCHED} subscriptions each"
    possible = whole.changes * WATCHED
    return [
        Row(
            name="presence_storm",
            label=label,
            unit="µs a change",
            value=whole.cpu_us,
            others_cores=whole.others_cores,
            notes=[
                f"without subscriptions {alone.cpu_us:.0f} µs, with half the people {half.cpu_us:.0f} µs",
                f"at most {whole.seconds:.1f} s until everybody was back and had been told of everybody",
                *problems,
            ],
        ),
        ratio_row(
            "presence_linear",
            f"CPU for each change, {whole.people:,} people against {half.people:,}",
            whole.cpu_us / half.cpu_us,
            [],
        ),
        ratio_row(
            "presence_frames",
            "frames against changes × watchers",
            whole.frames / possible,
            [f"{whole.frames:,} of {possible:,}, {whole.heard:,} heard"],
        ),
    ]
