"""The part of `parley doctor` for services: each one that is configured, asked as a node would ask it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime

import aiohttp

from parley.bus.kafka.admin import admin_of, check_topics
from parley.bus.topics import topics
from parley.cli.doctor_findings import CLOCK_MS_OFF_MAX, Finding
from parley.cli.problems import explain
from parley.clock import wall_clock
from parley.cluster.calls import check_exposure
from parley.config import Config
from parley.ephemeral.redis.checking import check_redis
from parley.ephemeral.redis.engine import RedisEphemeral
from parley.errors import ParleyError
from parley.sequencing.redis_durability import durability_problems
from parley.store.dynamodb.client import Dynamo
from parley.store.dynamodb.schema import TABLES, VERSION, check_tables, is_recoverable
from parley.telemetry import configure_logs

ANSWER_SECONDS_MAX = 5.0
ROUND_TRIPS_MEASURED = 5
SLOW_MS = 25.0
SECRET_LETTERS_MIN = 16
INIT = "run: parley store init"


def examine_services(config: Config) -> list[Finding]:
    """Every finding about the services that a configuration names, without clients' own complaints."""
    configure_logs("critical", as_json=False)
    return asyncio.run(_gather(config))


async def _gather(config: Config) -> list[Finding]:
    findings = [finding async for finding in _dynamodb(config)]
    findings += [finding async for finding in _kafka(config)]
    findings += [finding async for finding in _redis(config)]
    findings += [finding async for finding in _sequencers(config)]
    return findings + [finding async for finding in _cluster(config)]


async def _dynamodb(config: Config) -> AsyncIterator[Finding]:
    settings = config.dynamodb
    dynamo = Dynamo(settings.endpoint, settings.region, prefix=settings.prefix)
    try:
        await dynamo.open()
        await dynamo.check()
        milliseconds = await _round_trip_ms(dynamo)
        says = f"{dynamo.endpoint}, region {dynamo.region}, {milliseconds:.1f} ms to answer"
        remedy = "nodes should run in the region of their tables"
        is_slow = milliseconds > SLOW_MS
        yield Finding("look" if is_slow else "ok", "DynamoDB", says, remedy if is_slow else "")
        for finding in await _clock_at(dynamo.endpoint, "DynamoDB"):
            yield finding
        await check_tables(dynamo)
        yield Finding("ok", "tables", f"{len(TABLES)} as they should be, version {VERSION}")
        if await is_recoverable(dynamo) is False:
            remedy = f"point-in-time recovery brings them back after a mistake; {INIT}"
            yield Finding("look", "tables", "have no point-in-time recovery", remedy)
    except ParleyError as error:
        yield Finding("wrong", "DynamoDB", explain(error), "nothing can be stored until this is right")
    finally:
        await dynamo.close()


async def _round_trip_ms(dynamo: Dynamo) -> float:
    started = time.perf_counter()
    for _ in range(ROUND_TRIPS_MEASURED):
        await dynamo.check()
    return (time.perf_counter() - started) * 1000 / ROUND_TRIPS_MEASURED


async def _clock_at(url: str, what: str) -> list[Finding]:
    """Requests are signed with the time: clocks that differ are refused."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url) as answer:
        date = answer.headers.get("Date")
    if date is None:
        return []
    off_ms = int(parsedate_to_datetime(date).timestamp() * 1000) - wall_clock()
    if abs(off_ms) <= CLOCK_MS_OFF_MAX:
        return []
    return [
        Finding("wrong", "clock", f"{what}'s differs by {off_ms / 1000:.0f} s", "let this machine follow NTP")
    ]


async def _kafka(config: Config) -> AsyncIterator[Finding]:
    kafka = config.kafka
    if not kafka.brokers:
        says = "no brokers: news stays within each node"
        yield Finding("look", "Kafka", says, "set kafka.brokers where there is more than one node")
        return
    try:
        async with admin_of(kafka) as admin:
            brokers = len((await admin.describe_cluster())["brokers"])
        count = f"{brokers} broker{'' if brokers == 1 else 's'}"
        yield Finding("ok", "Kafka", f"{', '.join(kafka.brokers)}, {count}")
        warnings = await check_topics(kafka)
        yield Finding("ok", "topics", f"{len(topics(kafka))} with {kafka.partitions} partitions")
        for warning in warnings[:1]:
            yield Finding("look", "topics", warning, "see OPERATING.md, Services")
        if kafka.replication < 3 and not config.is_loopback:
            says = f"kafka.replication is {kafka.replication}"
            yield Finding(
                "look", "topics", says, "3 outlives a broker; it counts for topics made from then on"
            )
    except ParleyError as error:
        yield Finding("wrong", "Kafka", explain(error), "a node does not start without it")


async def _redis(config: Config) -> AsyncIterator[Finding]:
    url = config.redis.url
    if not url:
        yield Finding(
            "look", "Redis", "none: nodes do not find each other", "set redis.url for more than one"
        )
        return
    try:
        facts = await check_redis(url)
        yield Finding(
            "ok", "Redis", f"{facts.product} {facts.version} at {facts.address}, {facts.persistence}"
        )
        off_ms = facts.clock_ms - wall_clock()
        if abs(off_ms) > CLOCK_MS_OFF_MAX:
            says = f"Redis's differs by {off_ms / 1000:.0f} s"
            yield Finding("look", "clock", says, "let both follow NTP")
        if config.store.sequencing == "two_phase" and config.store.allocator == "redis":
            for problem in await durability_problems(url):
                yield Finding("wrong", "counters", problem, "or take another store.allocator")
    except ParleyError as error:
        remedy = "sends and sync go on without it; presence and shared rates do not"
        yield Finding("wrong", "Redis", explain(error), remedy)


async def _sequencers(config: Config) -> AsyncIterator[Finding]:
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
    for url in config.cluster.sequencers:
        try:
            async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"{url}/readyz") as answer:
                status = answer.status
        except (aiohttp.ClientError, OSError, ValueError) as error:
            says = f"{url} does not answer: {str(error) or type(error).__name__}"
            yield Finding(
                "wrong", "sequencer", says, "parley serve --roles sequencer, or correct the address"
            )
            continue
        if status == 200:
            yield Finding("ok", "sequencer", f"{url} is ready")
        else:
            yield Finding("wrong", "sequencer", f"{url} says {status}, not ready", "its log says why")


async def _cluster(config: Config) -> AsyncIterator[Finding]:
    cluster = config.cluster
    try:
        check_exposure(cluster.host, cluster.secret)
    except ParleyError as error:
        yield Finding("wrong", "cluster", explain(error), "set PARLEY_CLUSTER_SECRET on every node")
    if 0 < len(cluster.secret) < SECRET_LETTERS_MIN:
        says = f"cluster.secret has {len(cluster.secret)} letters"
        yield Finding("look", "cluster", says, "openssl rand -hex 32 makes one that nobody guesses")
    if not config.redis.url:
        return
    ephemeral = RedisEphemeral(config.redis.url, wall_clock, prefix=config.redis.prefix)
    try:
        nodes = await ephemeral.nodes.alive()
    finally:
        await ephemeral.close()
    if nodes:
        listed = ", ".join(f"{node.node_id} ({'+'.join(node.roles)})" for node in nodes)
        yield Finding("ok", "nodes", listed)
    else:
        yield Finding("look", "nodes", "none is alive", "parley serve starts one")
