"""What was deleted is gone from every node when the delete is answered, over real DynamoDB and Redis.

There is no Kafka here: nothing but the call of the node that deletes tells the others.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from parley.app.search import told_of_removals
from parley.archive.tiers import TieredEngine
from parley.core.message_actions import tombstone
from parley.ephemeral.ports import Node
from parley.errors import ConfigError
from parley.model import Persisted, StoredEntry
from parley.store.folder import SEARCH_NAME
from parley.wire.limits import ANSWER_SECONDS_MAX
from tests.clusters import ATOMIC, own_names
from tests.harness.clients import Frame, HttpClient, RawClient
from tests.harness.cluster import ClusterProcess
from tests.integration.cluster.processes import stop, wake
from tests.integration.gateway.serving import Place, Served, message
from tests.integration.gateway.test_erasure import archiver_of
from tests.integration.gateway.test_message_life import about
from tests.services import service_environment
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)  # DynamoDB may have to be started first

WORD = "unspeakable"
LEFT = WORD.encode()
ROLES = {"one": "gateway,ingest,delivery", "two": "gateway,delivery,search", "three": "gateway,search"}
AWAY_SECONDS_MAX = 30.0
BEYOND = 100


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamoDB Local takes any; nodes in this process look for them where every program does."""
    for name, value in service_environment("dynamodb").items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)


def environment(folder: Path, **settings: str) -> dict[str, str]:
    found = [service_environment(name) for name in ("dynamodb", "redis")]
    shared = {name: value for variables in found for name, value in variables.items()}
    archive = {"PARLEY_ARCHIVE_TARGET": str(folder / "cold"), "PARLEY_ARCHIVE_AFTER_DAYS": "0"}
    return {**shared, **own_names(), **ATOMIC, **archive, **settings}


class Nodes:
    """Nodes in this process, each with its own data folder, and Ann, who is on the first."""

    def __init__(self, folder: Path, served: Mapping[str, Served]) -> None:
        self.folder = folder
        self.served = dict(served)
        self.one = next(iter(served.values()))

    @property
    def others(self) -> list[Served]:
        return [served for served in self.served.values() if served is not self.one]

    async def settle(self) -> None:
        self.ann, self.ben = await self.one.people("ann", "ben")
        self.chat = await self.one.as_(self.ann).create_group(self.ben)
        texts = ["hay", f"my {WORD} secret", "more hay", "the end"]
        self.target = (await self.one.said(self.ann, self.chat, *texts))[1]

    async def delete(self, client_message_id: str = "", target: str = "") -> Frame:
        """Ann deletes on the first node; the answer."""
        asked = about(self.chat, target or self.target["message_id"])
        if client_message_id:
            asked["client_message_id"] = client_message_id
        async with self.one.client(self.ann) as client:
            return await client.request("delete_message", **asked)

    def files_with(self, trace: bytes) -> list[str]:
        """The files of all data folders that have it."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [str(path.relative_to(self.folder)) for path in paths if trace in path.read_bytes()]


def archive_of(served: Served) -> TieredEngine:
    assert isinstance(served.app.store, TieredEngine)
    return served.app.store


def cached(served: Served) -> bytes:
    """Every block of the archive in a node's memory."""
    blocks = archive_of(served).archive._blocks._blocks.values()
    return b"".join(wire for block in blocks for wire in block if wire is not None)


def waiting(served: Served) -> bytes:
    """Every entry that a node keeps for its clients until a gap is filled."""
    chats = served.app.subscribers.chats.values()
    return b"".join(stored.wire or b"" for chat in chats for stored in chat.pending.values())


@asynccontextmanager
async def nodes_of(folder: Path, roles: Mapping[str, str]) -> AsyncIterator[Nodes]:
    settings = environment(folder, PARLEY_STORE_ENGINE="dynamodb")
    cluster = ClusterProcess(folder, settings, [])
    await asyncio.to_thread(cluster.init)
    async with AsyncExitStack() as stack:
        served: dict[str, Served] = {}
        for name, own in roles.items():
            place = Place(folder / name, {**cluster.environment, "PARLEY_CLUSTER_NODE": name})
            served[name] = await stack.enter_async_context(place.serving({"PARLEY_CLUSTER_ROLES": own}))
        nodes = Nodes(folder, served)
        await nodes.settle()
        yield nodes


async def test_a_deleted_body_is_left_on_no_node(tmp_path: Path) -> None:
    """Not in the index of any node, not in its cache of the archive, not in what waits for its clients."""
    async with nodes_of(tmp_path, ROLES) as nodes, AsyncExitStack() as stack:
        await archiver_of(nodes.one).run()
        for served in nodes.others:
            await stack.enter_async_context(served.client(nodes.ben))
            assert served.app.search.indexer is not None
            await served.app.search.indexer.catch_up(nodes.chat)
            page = await served.as_(nodes.ben).get(f"/v1/chats/{nodes.chat}/messages", after=0, limit=9)
            body = next(entry for entry in page.body["entries"] if WORD in entry["content"])
            wire = str(body["content"]).encode()
            served.app.hub.persisted_elsewhere(
                [Persisted(nodes.chat, page.body["epoch"], [StoredEntry(BEYOND, wire)])]
            )
            assert LEFT in cached(served)
            assert LEFT in waiting(served)
        kept = nodes.files_with(LEFT)
        assert any(name.startswith(f"two/{SEARCH_NAME}") for name in kept)
        assert any(name.startswith(f"three/{SEARCH_NAME}") for name in kept)
        assert any(name.startswith("cold/") for name in nodes.files_with(b"PRLYSEG1"))

        answer = await nodes.delete()

        assert nodes.files_with(LEFT) == []
        assert [cached(served) + waiting(served) for served in nodes.served.values()] == [b"", b"", b""]
        assert answer["type"] == "ack", answer


async def test_a_node_that_does_not_answer_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """Nothing is acknowledged while it is on the list; once its lease is gone the retry is answered."""
    async with nodes_of(tmp_path, {"one": ROLES["one"]}) as nodes:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            listed = nodes.one.app.ephemeral.nodes
            await listed.announce(Node("stuck", url, ("search",), "stuck.1"))
            asked = about(nodes.chat, nodes.target["message_id"])
            began = asyncio.get_running_loop().time()
            answer = await nodes.delete(asked["client_message_id"])
            assert asyncio.get_running_loop().time() - began < ANSWER_SECONDS_MAX
            assert (answer["type"], answer["code"]) == ("refused", "outcome_unknown")
            assert len(await nodes.one.app.kinds.amendments.under_way()) == 1

            await listed.withdraw("stuck")
            answer = await nodes.delete(asked["client_message_id"])
            assert (answer["type"], answer["deduplicated"]) == ("ack", True)
            assert await nodes.one.app.kinds.amendments.under_way() == []


async def test_a_node_alone_calls_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with one live node pays nothing for others."""
    async with nodes_of(tmp_path, {"one": "gateway,ingest,delivery,search"}) as nodes:
        assert nodes.one.app.cluster is not None
        made: list[str] = []
        post = nodes.one.app.cluster.calls.post

        async def counted(url: str, *rest: Any) -> bytes:
            made.append(url)
            return await post(url, *rest)

        monkeypatch.setattr(nodes.one.app.cluster.calls, "post", counted)
        assert (await nodes.delete())["type"] == "ack"
        assert made == []


async def test_a_node_that_slept_beyond_its_lease_forgets_when_it_wakes(tmp_path: Path) -> None:
    """While it is paused and listed a delete is unknown; then it is answered, and the sleeper finds out."""
    settings = {name: {"PARLEY_CLUSTER_ROLES": ROLES[name]} for name in ("one", "two")}
    with ClusterProcess(tmp_path, environment(tmp_path), list(settings), settings) as cluster:
        async with ClientSession() as session:
            http = HttpClient(session, cluster["one"].url)
            ann = await http.newcomer("ann")
            chat = await http.of(ann).create_group()
            answer = await http.of(ann).post(f"/v1/chats/{chat}/messages", message(f"my {WORD} secret"))
            target = answer.body["message_id"]

            async def is_found() -> bool:
                found = await http.of(ann).get("/v1/search", q=WORD)
                return found.status == 200 and bool(found.body["hits"])

            await eventually(is_found, AWAY_SECONDS_MAX)
            assert left_in(tmp_path / "two")
            stop(cluster["two"])
            try:
                asked, codes = about(chat, target), list[str]()

                async def is_answered() -> bool:
                    async with RawClient(session, cluster["one"].url, ann) as client:
                        answer = await client.request("delete_message", **asked)
                    codes.append(answer.get("code", "") or answer["type"])
                    return bool(answer["type"] == "ack")

                await eventually(is_answered, AWAY_SECONDS_MAX)
                assert codes[0] == "outcome_unknown"
                assert left_in(tmp_path / "two")
            finally:
                wake(cluster["two"])
            await eventually(lambda: not left_in(tmp_path / "two"), AWAY_SECONDS_MAX)


async def test_nodes_forget_what_a_command_removes(tmp_path: Path) -> None:
    """A command is no node; while Redis does not answer it does not claim that all have forgotten."""
    async with nodes_of(tmp_path, {name: ROLES[name] for name in ("one", "two")}) as nodes:
        (two,) = nodes.others
        assert two.app.search.indexer is not None
        await two.app.search.indexer.catch_up(nodes.chat)
        assert left_in(tmp_path / "two")
        bodies = nodes.one.app.message_actions._bodies
        assert bodies is not None
        await bodies.rewrite(nodes.chat, [nodes.target["sequence"]], tombstone)
        config, engine = nodes.one.app.config, nodes.one.app.store
        async with told_of_removals(config, engine, nodes.one.app.metrics) as told:
            assert told is not None
            await told(nodes.chat)
        assert not left_in(tmp_path / "two")
        nowhere = replace(config, redis=replace(config.redis, url="redis://127.0.0.1:9"))
        async with told_of_removals(nowhere, engine, nodes.one.app.metrics) as told:
            assert told is not None
            with pytest.raises(ConfigError):
                await told(nodes.chat)


def left_in(folder: Path) -> bool:
    return any(LEFT in path.read_bytes() for path in folder.glob(f"{SEARCH_NAME}*"))
