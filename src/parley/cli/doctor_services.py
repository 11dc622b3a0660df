"""The checks that `parley doctor` makes of services: it uses each as a node would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import aiohttp

from parley.cli.doctor import job_findings
from parley.cli.problems import explain
from parley.clock import CLOCK_MS_OFF_MAX, wall_clock
from parley.cluster.trust import client_tls, cluster_keys, server_tls
from parley.config import Config
from parley.ephemeral.ports import Node
from parley.errors import ParleyError
from parley.store.rows import Finding

ANSWER_SECONDS_MAX = 5.0
SECRET_CHARS_MIN = 16


async def examine_services(config: Config) -> list[Finding]:
    """Every finding about the services that nodes share, beside their store."""
    findings = [finding async for finding in _kafka(config)]
    findings += [finding async for finding in _redis(config)]
    findings += [finding async for finding in _sequencers(config)]
    return findings + [finding async for finding in _cluster(config)]


async def _kafka(config: Config) -> AsyncIterator[Finding]:
    kafka = config.kafka
    if not kafka.brokers:
        says = "no brokers: nodes do not get each other's messages"
        yield Finding("look", "Kafka", says, "set kafka.brokers where there is more than one node")
        return
    from parley.app.kafka import topics_in
    from parley.bus.kafka.admin import admin_of, check_topics

    try:
        async with admin_of(kafka) as admin:
            brokers = len((await admin.describe_cluster())["brokers"])
        count = f"{brokers} broker{'' if brokers == 1 else 's'}"
        yield Finding("ok", "Kafka", f"{', '.join(kafka.brokers)}, {count}")
        topics = topics_in(config)
        warnings = await check_topics(kafka, topics)
        yield Finding("ok", "topics", f"{len(topics)} with {kafka.partitions} partitions")
        for warning in warnings[:1]:
            yield Finding("look", "topics", warning, "see docs/install.md, Services")
        if kafka.replication < 3 and not config.is_loopback:
            says = f"kafka.replication is {kafka.replication}"
            yield Finding("look", "topics", says, "3 survives the loss of a broker; it applies to new topics")
    except ParleyError as error:
        yield Finding("wrong", "Kafka", explain(error), "a node does not start without it")


async def _redis(config: Config) -> AsyncIterator[Finding]:
    url = config.redis.url
    if not url:
        yield Finding(
            "look", "Redis", "none: nodes do not find each other", "set redis.url for more than one node"
        )
        return
    from parley.ephemeral.redis.check import check_redis
    from parley.sequencing.redis import durability_problems

    try:
        facts = await check_redis(url)
        yield Finding(
            "ok", "Redis", f"{facts.product} {facts.version} at {facts.address}, {facts.persistence}"
        )
        off_ms = facts.clock_ms - wall_clock()
        if abs(off_ms) > CLOCK_MS_OFF_MAX:
            says = f"Redis's clock differs by {off_ms / 1000:.0f} s"
            yield Finding("look", "clock", says, "synchronise both with NTP")
        if config.store.sequencing == "two_phase" and config.store.allocator == "redis":
            for problem in await durability_problems(url):
                yield Finding("wrong", "counters", problem, "or choose another store.allocator")
    except ParleyError as error:
        remedy = "sends and sync work without it; presence and shared rates do not"
        yield Finding("wrong", "Redis", explain(error), remedy)


async def _sequencers(config: Config) -> AsyncIterator[Finding]:
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX)
    try:
        tls = client_tls(config.cluster)
    except ParleyError:
        return  # `_cluster` says what is wrong with it
    for url in config.cluster.sequencers:
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.get(f"{url}/readyz", ssl=tls or True) as answer,
            ):
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
            yield Finding(
                "wrong", "sequencer", f"{url} is not ready (HTTP status {status})", "its log says why"
            )


def routing_findings(config: Config, nodes: Sequence[Node]) -> Iterator[Finding]:
    """What keeps live entries from those whose people hear them."""
    if config.kafka.brokers and not any("delivery" in node.roles for node in nodes):
        says = "no node that is alive has the role delivery: entries of other nodes come up to 30 s late"
        yield Finding("wrong", "routing", says, "start a node with: parley serve --roles delivery")


async def _cluster(config: Config) -> AsyncIterator[Finding]:
    cluster = config.cluster
    try:
        keys = cluster_keys(cluster, cluster.host)
        server_tls(cluster)
    except ParleyError as error:
        yield Finding("wrong", "cluster", explain(error), "a node does not start without it")
        return
    if 0 < len(cluster.secret) < SECRET_CHARS_MIN:
        says = f"cluster.secret has {len(cluster.secret)} characters"
        yield Finding("look", "cluster", says, "openssl rand -hex 32 makes one that is hard to guess")
    if not config.redis.url:
        return
    from parley.ephemeral.redis.engine import RedisEphemeral

    ephemeral = RedisEphemeral(config.redis.url, keys, wall_clock, prefix=config.redis.prefix)
    try:
        nodes, jobs = await ephemeral.nodes.alive(), await ephemeral.job_records.all() or []
    finally:
        await ephemeral.close()
    if nodes:
        listed = ", ".join(f"{node.node_id} ({'+'.join(node.roles)})" for node in nodes)
        yield Finding("ok", "nodes", listed)
        if config.bus.ingest == "bus" and not any("ingest" in node.roles for node in nodes):
            says = "drafts go through the bus, and no node that is alive appends them"
            yield Finding("wrong", "ingest", says, "parley serve --roles ingest starts one")
        for finding in routing_findings(config, nodes):
            yield finding
        now_ms = wall_clock()
        overdue = [f"{job.name} ({job.node_id})" for job in jobs if job.is_overdue(now_ms)]
        failing = [
            f"{job.name} ({job.node_id})" for job in jobs if job.is_failing and not job.is_overdue(now_ms)
        ]
        for finding in job_findings(len(jobs), overdue, failing):
            yield finding
    else:
        yield Finding("look", "nodes", "none is alive", "parley serve starts one")
