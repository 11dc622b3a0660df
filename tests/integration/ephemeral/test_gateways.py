"""Whole servers that share a Redis: they count together, know each other's people, and go on without it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession

from parley.core.rates import MESSAGES_PER_USER
from parley.ephemeral.ports import Presence
from parley.gateway.shared_rates import REPORT_SECONDS
from tests.harness.clients import Person
from tests.integration.ephemeral.own_redis import OwnRedis
from tests.integration.gateway.serving import Place, Served, message
from tests.waiting import eventually

SETTINGS = {"PARLEY_LIMITS_RATES": "on", "PARLEY_ACCOUNTS_REGISTRATION": "open"}


@asynccontextmanager
async def two_gateways(own_redis: OwnRedis, folder: Path) -> AsyncIterator[tuple[Served, Served]]:
    """Each with a store of its own: what they share is in Redis alone."""
    settings = {**SETTINGS, "PARLEY_REDIS_URL": own_redis.url}
    async with (
        Place(folder / "a", settings).serving() as one,
        Place(folder / "b", settings).serving() as two,
    ):
        yield one, two


async def is_online(served: Served, person: Person) -> bool:
    (presence,) = await served.app.ephemeral.registry.presences([person.user_id])
    return presence.is_online


async def test_people_of_one_gateway_are_known_to_the_other(own_redis: OwnRedis, tmp_path: Path) -> None:
    """Who connects to one is online for both, is found there, and is offline for both afterwards."""
    async with two_gateways(own_redis, tmp_path) as (one, two):
        (ann,) = await one.people("ann")
        heard: list[Presence] = []
        two.app.ephemeral.registry.watch(heard.append)
        async with one.client(ann):
            await eventually(lambda: is_online(two, ann))
            found = await two.app.ephemeral.registry.whereabouts([ann.user_id])
            assert found == {ann.user_id: {"phone": one.app.devices.node_id}}
        await eventually(lambda: [presence.is_online for presence in heard] == [True, False])
        assert not await is_online(two, ann)


async def test_accounts_are_limited_over_gateways(own_redis: OwnRedis, tmp_path: Path) -> None:
    """Ten accounts of one address within an hour are all there are, wherever they are asked for."""
    async with two_gateways(own_redis, tmp_path) as gateways, ClientSession() as session:
        statuses = []
        for number in range(12):
            url = f"{gateways[number % 2].url}/v1/accounts"
            body = {"username": f"p{number}", "password": "correct horse battery"}
            async with session.post(url, json=body) as answer:
                statuses.append(answer.status)
        assert statuses == [201] * 10 + [429] * 2


async def test_messages_are_limited_over_gateways(own_redis: OwnRedis, tmp_path: Path) -> None:
    """What a person sent through one gateway is missing from their allowance at the other."""
    async with two_gateways(own_redis, tmp_path) as (one, two):
        limiters = [served.app.rates.messages for served in (one, two)]
        clock = one.app.clock
        for _ in range(int(MESSAGES_PER_USER.burst)):
            assert limiters[0].take("usr_ann", clock()) == 0
        assert limiters[1].take("usr_ann", clock()) == 0

        def is_told() -> bool:
            return limiters[1].take("usr_ann", clock(), cost=MESSAGES_PER_USER.burst / 2) > 0

        await eventually(is_told, seconds=20 * REPORT_SECONDS)


async def test_without_redis_people_connect_send_and_catch_up(own_redis: OwnRedis, tmp_path: Path) -> None:
    """Redis dies and comes back empty: nobody is refused or cut off, and the other one knows all again."""
    async with two_gateways(own_redis, tmp_path) as (one, two):
        ann, ben = await one.people("ann", "ben")
        chat = await one.as_(ann).create_group(ben)
        async with one.client(ann) as before:
            assert (await before.send_message(chat, "with"))["sequence"] == 1
            await own_redis.kill()
            await eventually(lambda: one.metric("parley_ephemeral_available") == 0)
            async with one.client(ben) as meanwhile:
                assert (await before.send_message(chat, "without"))["sequence"] == 2
                await meanwhile.live_entry(chat, 2)
                assert len(await meanwhile.sync_all(chat)) == 2
                answer = await one.as_(ben).post(f"/v1/chats/{chat}/messages", message("over HTTP"))
                assert answer.status == 201
                assert await is_online(one, ben)
                await own_redis.start_empty()
                for person in (ann, ben):
                    await eventually(lambda person=person: is_online(two, person))  # type: ignore[misc]
        assert one.metric("parley_ephemeral_available") == 1
