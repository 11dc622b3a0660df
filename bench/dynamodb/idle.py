"""What an idle connection costs: its heartbeats, and what the store reads for it; and a head, if in doubt."""

from __future__ import annotations

import asyncio
import time

from bench import frames
from bench.connection import connect_all
from bench.dynamodb.nodes import Nodes
from bench.dynamodb.stage import SharedStage
from bench.measuring import measure
from bench.roles import Counted, Load, Quiet
from bench.rows import Row
from bench.world import Person, World
from parley.wire.limits import HEARTBEAT_SECONDS

CONNECTIONS = 50
CHATS = 100
LOOKS = 40
HEARTBEAT_ACK = b'"type":"heartbeat_ack"'
UNITS = "parley_dynamodb_units_total"
QUIET_SECONDS = 35
"""Longer than the pause between two heartbeats."""


class Beater(Quiet):
    """Sends a heartbeat as soon as the last one is answered, which no client does."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._answers = Counted(HEARTBEAT_ACK)

    def start(self) -> None:
        self.load.sent += 1
        self.transport.write(frames.heartbeat())

    def data_received(self, data: bytes) -> None:
        answered = self._answers.feed(data)
        self.load.acks += answered
        for _ in range(answered if self.load.running else 0):
            self.start()


async def idle(stage: SharedStage) -> list[Row]:
    people, chats = await stage.populate(_populate)
    return [*await _heartbeats(stage, people), await _heads(stage, chats)]


async def _populate(world: World) -> tuple[list[Person], list[str]]:
    people = await world.people(CONNECTIONS)
    return people, [await world.group(people[:1]) for _ in range(CHATS)]


async def _heartbeats(stage: SharedStage, people: list[Person]) -> list[Row]:
    load = Load()
    async with stage.nodes() as nodes:
        beaters = [Beater(load) for _ in people]
        hellos = [frames.hello(person.token, person.device_id, live=True) for person in people]
        await connect_all(nodes[0].address, list(zip(hellos, beaters, strict=True)), at_once=10)
        quiet_seconds = stage.pick(QUIET_SECONDS, 1)
        quiet = -await _units(nodes)
        await asyncio.sleep(quiet_seconds)
        quiet += await _units(nodes)
        sent, units = load.sent, -await _units(nodes)
        for beater in beaters:
            beater.start()
        stretch = await measure(load, nodes, stage.seconds, stage.warm_up_seconds)
        load.running = False
        await asyncio.sleep(1)
        units += await _units(nodes)
    beat = Row(
        name="shared_heartbeat",
        label="a heartbeat, with the session read",
        unit="µs",
        value=stretch.cpu_us_per(stretch.acks),
        others_cores=stretch.others_cores,
        notes=[f"{stretch.acks:,.0f} heartbeats/s, as fast as DynamoDB Local reads", *stretch.notes],
    )
    reads = Row(
        name="shared_idle_units",
        label="units that an idle connection reads in a minute",
        unit="units",
        value=units / max(load.sent - sent, 1) * 60 / HEARTBEAT_SECONDS,
        notes=[
            f"without heartbeats: {quiet:.0f} units in {quiet_seconds} s, of all {len(people)} connections"
        ],
    )
    return [beat, reads]


async def _units(nodes: Nodes) -> float:
    return (await nodes.metrics()).get(UNITS, 0.0)


async def _heads(stage: SharedStage, chats: list[str]) -> Row:
    """The store's part of a read of heads, in this process: the hub only compares numbers."""
    looks = stage.pick(LOOKS, LOOKS // 4)
    async with stage.store() as store:
        await store.log.heads(chats)
        cpu = time.process_time()
        for _ in range(looks):
            await store.log.heads(chats)
        cpu = time.process_time() - cpu
    return Row(
        name="shared_head_look",
        label=f"a look at one head, {len(chats)} in a request",
        unit="µs",
        value=1e6 * cpu / (looks * len(chats)),
    )
