"""Conversations of two people: 100 pairs, and 5,000 chats."""

from __future__ import annotations

from bench import frames
from bench.connection import connect_all
from bench.measuring import drain, measure
from bench.roles import Load, Talker, Wanderer, Writer
from bench.rows import Row, deliveries_row
from bench.stage import Stage
from bench.world import Person, World

PAIRS = 100
MANY_CHATS = 5_000
MANY_PEOPLE = 500

Pair = tuple[Person, Person, str]


async def one_to_one(stage: Stage) -> list[Row]:
    """Both of each pair write with one message in flight; counts the deliveries to the partner."""

    async def populate(world: World) -> list[Pair]:
        people = await world.people(2 * PAIRS)
        pairs = zip(people[::2], people[1::2], strict=True)
        return [(one, other, await world.direct(one, other)) for one, other in pairs]

    load = Load()
    async with stage.serving(populate) as (server, pairs):
        talkers = [
            (frames.hello(me.token, me.device_id, live=True), Talker(load, chat_id, partner.user_id))
            for one, other, chat_id in pairs
            for me, partner in ((one, other), (other, one))
        ]
        await connect_all(server.address, [*talkers])
        for _, talker in talkers:
            talker.start()
        stretch = await measure(load, server, stage.seconds, stage.warm_up_seconds)
        stretch.notes += await drain(load, deliveries_per_ack=1)
    return [deliveries_row("one_to_one", f"1:1, {PAIRS} pairs", stretch)]


async def many_chats(stage: Stage) -> list[Row]:
    """Each person is in twenty conversations and writes to each in turn."""
    chats_each = 2 * stage.pick(MANY_CHATS, MANY_CHATS // 5) // MANY_PEOPLE

    async def populate(world: World) -> tuple[list[Person], list[list[str]]]:
        people = await world.people(MANY_PEOPLE)
        chats: list[list[str]] = [[] for _ in people]
        for index, person in enumerate(people):
            for step in range(1, chats_each // 2 + 1):
                partner = (index + step) % len(people)
                chat_id = await world.direct(person, people[partner])
                chats[index].append(chat_id)
                chats[partner].append(chat_id)
        return people, chats

    load = Load()
    async with stage.serving(populate) as (server, (people, chats)):
        writers: list[tuple[bytes, Writer]] = [
            (frames.hello(me.token, me.device_id, live=True), Wanderer(load, me.user_id, chats[index]))
            for index, me in enumerate(people)
        ]
        await connect_all(server.address, [*writers])
        for _, writer in writers:
            writer.start()
        stretch = await measure(load, server, stage.seconds, stage.warm_up_seconds)
        stretch.notes += await drain(load, deliveries_per_ack=1)
    count = len(people) * chats_each // 2
    return [deliveries_row("many_chats", f"{count:,} chats of two, {MANY_PEOPLE} people", stretch)]
