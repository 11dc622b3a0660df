"""The list of nodes in Redis, written to by somebody who wants their drafts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from parley.clock import MS_PER_SECOND
from parley.cluster.calls import SignedCalls
from parley.cluster.peers import ClusterPeers
from parley.core.cluster_keys import ANNOUNCEMENTS, ClusterKeys
from parley.core.jobs import JobRecord
from parley.core.node_trust import CALL_AGE_MS_MAX
from parley.ephemeral.ports import NODE_LEASE_SECONDS, Node
from parley.ephemeral.redis.engine import RedisEphemeral
from parley.ephemeral.redis.nodes import Announcement
from parley.model import JobScope
from parley.telemetry import Metrics
from tests.fakes import KEYS
from tests.harness.clock import VirtualClock
from tests.services import fresh_prefix, redis_url

OWN = Node("one", "http://127.0.0.1:7071", ("gateway", "ingest"), "one.1")
FORGED = Node("two", "http://198.51.100.66:7070", ("gateway", "ingest"), "two.1")
LEASE_MS = round(NODE_LEASE_SECONDS * MS_PER_SECOND)


class ForgerPlace:
    """One node that asks for the list, and a connection of somebody who may write to the same Redis."""

    def __init__(self, engine: RedisEphemeral, redis: Redis, key: str, clock: VirtualClock) -> None:
        self.nodes = engine.nodes
        self.records = engine.job_records
        self.redis = redis
        self.key = key
        self.clock = clock
        self.passed_over: list[str] = []

    async def write(self, field: str, value: str) -> None:
        """As an announcement is kept, with a lease that holds."""
        seconds, _ = await self.redis.time()
        await self.redis.hset(self.key, field, f"{seconds * MS_PER_SECOND + LEASE_MS} {value}")

    async def value_of(self, node_id: str) -> str:
        """A genuine announcement as it stands there, without its lease."""
        kept = await self.redis.hget(self.key, node_id)
        assert isinstance(kept, bytes)
        return kept.decode().partition(" ")[2]

    async def listed(self) -> list[str]:
        return [node.url for node in await self.nodes.alive()]


@asynccontextmanager
async def place_of_forger() -> AsyncIterator[ForgerPlace]:
    url, prefix, clock = await asyncio.to_thread(redis_url), fresh_prefix(), VirtualClock()
    redis = Redis.from_url(url)
    passed_over: list[str] = []
    engine = RedisEphemeral(url, KEYS, clock, prefix=prefix, passed_over=passed_over.append)
    place = ForgerPlace(engine, redis, f"{prefix}nodes", clock)
    place.passed_over = passed_over
    try:
        yield place
    finally:
        await engine.close()
        await redis.aclose()


def signed(node: Node, now_ms: int, keys: ClusterKeys, key: str) -> str:
    data = msgspec.json.encode(Announcement(node, now_ms))
    return f"{keys.ring(ANNOUNCEMENTS, key).tag(data).hex()} {data.decode()}"


FORGERIES: dict[str, Callable[[ForgerPlace], str]] = {
    "not signed": lambda place: msgspec.json.encode(FORGED).decode(),
    "signed with zeros": lambda place: (
        f"{'00' * 16} {msgspec.json.encode(Announcement(FORGED, place.clock())).decode()}"
    ),
    "signed with another secret": lambda place: signed(
        FORGED, place.clock(), ClusterKeys("a guess of some length"), place.key
    ),
    "signed for another deployment": lambda place: signed(FORGED, place.clock(), KEYS, "staging-nodes"),
}


@pytest.mark.parametrize("how", FORGERIES)
async def test_a_forged_announcement_is_not_believed(how: str) -> None:
    """An address that no node of this cluster has signed is not on the list, and is counted."""
    async with place_of_forger() as place:
        await place.nodes.announce(OWN)
        await place.write("two", FORGERIES[how](place))
        assert await place.listed() == [OWN.url]
        assert place.passed_over == ["announcement"]


@pytest.mark.parametrize("change", ["url", "roles", "node_id", "target"])
async def test_a_changed_announcement_is_not_believed(change: str) -> None:
    """Neither the address nor the roles, the id or the target of a genuine announcement can be exchanged."""
    async with place_of_forger() as place:
        await place.nodes.announce(OWN)
        tag, _, data = (await place.value_of("one")).partition(" ")
        said = msgspec.json.decode(data)
        said["node"][change] = {"roles": ["sequencer"]}.get(change, getattr(FORGED, change))
        await place.write("one", f"{tag} {msgspec.json.encode(said).decode()}")
        assert await place.listed() == []


async def test_an_announcement_that_is_put_back_is_not_believed() -> None:
    """A node that moved is not called at the address that it announced before."""
    async with place_of_forger() as place:
        await place.nodes.announce(OWN)
        recorded = await place.value_of("one")
        place.clock.advance(LEASE_MS + CALL_AGE_MS_MAX + 1)
        await place.write("one", recorded)
        assert await place.listed() == []


async def test_an_old_announcement_does_not_hide_the_newer_one() -> None:
    """Of two that are genuine, wherever they stand in the list, the later one counts."""
    async with place_of_forger() as place:
        await place.nodes.announce(OWN)
        recorded = await place.value_of("one")
        place.clock.advance(1)
        moved = Node("one", "http://127.0.0.1:7072", OWN.roles, "one.2")
        await place.nodes.announce(moved)
        for field in ("a", "one more", "z"):
            await place.write(field, recorded)
        assert await place.listed() == [moved.url]


async def test_garbage_in_the_list_hides_nobody() -> None:
    """What cannot be read is passed over alone."""
    async with place_of_forger() as place:
        await place.redis.hset(place.key, "bad", "no lease and no node")
        for number, value in enumerate(("", "x", "zz zz", "\N{SNOWMAN} {}", "00 {")):
            await place.write(f"bad {number}", value)
        await place.nodes.announce(OWN)
        assert await place.listed() == [OWN.url]


async def test_no_draft_goes_to_a_forged_address() -> None:
    """A node connects to nobody who wrote themself into the list."""
    async with place_of_forger() as place:
        connected = asyncio.Event()

        async def connect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set()
            writer.close()

        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        forged = msgspec.json.encode(Node("two", url, ("gateway", "ingest"))).decode()
        await place.write("two", forged)
        calls = SignedCalls(KEYS, clock=place.clock, random_bytes=bytes)
        peers = ClusterPeers(
            node_id="one", roles=("gateway",), nodes=place.nodes, calls=calls, metrics=Metrics(place.clock)
        )
        await peers.start(OWN.url)
        try:
            assert {peers.owner_of(f"chat {number}") for number in range(100)} == {None}
            assert not connected.is_set()
        finally:
            await peers.stop()
            await calls.close()
            server.close()


async def test_a_job_record_of_somebody_else_is_passed_over() -> None:
    """It would tell operators that a job is well, and its next runner that it has just run."""
    async with place_of_forger() as place:
        key = place.key.removesuffix("nodes") + "job_records"
        genuine = JobRecord(name="sweep", scope=JobScope.CLUSTER, node_id="one", runs=1)
        await place.records.put([genuine])
        forged = msgspec.json.encode(replace(genuine, node_id="two", runs=9)).decode()
        ends_ms = (await place.redis.time())[0] * MS_PER_SECOND + LEASE_MS
        kept = await place.redis.hget(key, "sweep")
        assert isinstance(kept, bytes)
        taken = kept.decode().split(" ")[1]
        for tag in ("00" * 16, taken, "no tag"):
            await place.redis.hset(key, "sweep", f"{ends_ms} {tag} {forged}")
            assert await place.records.all() == []
        assert place.passed_over == ["job record"] * 3
        await place.records.put([genuine])
        assert await place.records.all() == [genuine]
