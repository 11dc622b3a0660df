"""Nodes that speak TLS: both sides show a certificate of the cluster's authority, or no call is made."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from msgspec import structs

from parley.clock import wall_clock
from parley.cluster import bodies
from parley.cluster.calls import NodeError, NodeUnreachable, SignedCalls
from parley.cluster.server import NodeServer
from parley.cluster.trust import client_tls, server_tls
from parley.config import ClusterConfig
from parley.errors import ConfigError
from parley.sequencing.bodies import LAST
from parley.sequencing.remote import RemoteAllocator
from parley.sequencing.service import Sequencer
from parley.telemetry import Metrics
from tests.fakes import KEYS
from tests.harness.allocator import MemoryAllocator
from tests.integration.cluster.two_nodes import Hearing
from tests.security.certificates import Authority

TARGET = "node_7.1"
SECONDS = 5.0
ENDED = bodies.pack([bodies.SessionsEnded("ntc_1", ["ses_1"])])
PLAIN = ClusterConfig()


class TlsNode:
    """A node that takes notices, at its address."""

    def __init__(self, url: str, hearing: Hearing) -> None:
        self.url = url
        self.heard = hearing.heard


@asynccontextmanager
async def node_with(cluster: ClusterConfig) -> AsyncIterator[TlsNode]:
    hearing = Hearing()
    server = NodeServer(
        cluster,
        keys=KEYS,
        target=TARGET,
        clock=wall_clock,
        sender=None,
        listener=hearing,
        tls=server_tls(cluster),
    )
    try:
        yield TlsNode(await server.start(), hearing)
    finally:
        await server.close()


async def tell(caller: ClusterConfig | ssl.SSLContext, url: str) -> bytes:
    """One notice from a node with this configuration, which knows the secret."""
    tls = client_tls(caller) if isinstance(caller, ClusterConfig) else caller
    calls = SignedCalls(KEYS, clock=wall_clock, random_bytes=random.randbytes, tls=tls)
    try:
        return await calls.post(url + bodies.NOTICES, ENDED, SECONDS, TARGET)
    finally:
        await calls.close()


async def test_nodes_of_one_authority_speak_tls(tmp_path: Path) -> None:
    """Certificates without any address are enough, and the address on the list says https."""
    authority = Authority(tmp_path)
    async with node_with(authority.config("one")) as node:
        assert node.url.startswith("https://127.0.0.1:")
        assert await tell(authority.config("two"), node.url) == b""
        assert node.heard == [["ses_1"]]


async def test_a_caller_without_a_certificate_is_not_heard(tmp_path: Path) -> None:
    """The secret alone does not open the door, although the caller trusts the node's authority."""
    authority = Authority(tmp_path)
    caller = ssl.create_default_context(cafile=authority.file)
    caller.check_hostname = False
    async with node_with(authority.config("one")) as node:
        with pytest.raises(NodeError):
            await tell(caller, node.url)
        assert node.heard == []


async def test_a_caller_with_a_certificate_of_somebody_else_is_not_heard(tmp_path: Path) -> None:
    """A stranger's authority certifies nobody here, even if the stranger trusts ours."""
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "stranger")
    async with node_with(ours.config("one")) as node:
        with pytest.raises(NodeError):
            await tell(theirs.config("two", trusting=ours), node.url)
        assert node.heard == []


async def test_a_node_with_a_certificate_of_somebody_else_is_told_nothing(tmp_path: Path) -> None:
    """Whoever took over an address is not sent a single draft: nothing was sent, so it goes elsewhere."""
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "stranger")
    async with node_with(theirs.config("one", trusting=ours)) as node:
        with pytest.raises(NodeUnreachable):
            await tell(ours.config("two"), node.url)
        assert node.heard == []


async def test_a_call_is_not_made_in_the_clear(tmp_path: Path) -> None:
    """A node with certificates sends nothing to an address without TLS, whatever the list says."""
    authority = Authority(tmp_path)
    async with node_with(PLAIN) as node:
        with pytest.raises(NodeUnreachable, match="TLS"):
            await tell(authority.config("two"), node.url)
        assert node.heard == []


async def test_a_call_in_the_clear_is_not_heard(tmp_path: Path) -> None:
    """The door that speaks TLS understands nothing else."""
    async with node_with(Authority(tmp_path).config("one")) as node:
        with pytest.raises(NodeError):
            await tell(PLAIN, node.url.replace("https:", "http:"))
        assert node.heard == []


async def test_a_sequencer_asks_for_a_certificate_too(tmp_path: Path) -> None:
    """Numbers go to holders of a certificate; not even health is told to others."""
    authority = Authority(tmp_path)
    sequencer = Sequencer(
        MemoryAllocator(a=5),
        host="127.0.0.1",
        port=0,
        keys=KEYS,
        name="sequencer.1",
        clock=wall_clock,
        metrics=Metrics(wall_clock),
        tls=server_tls(authority.config("one")),
    )
    url = f"https://127.0.0.1:{await sequencer.start()}"
    tls = client_tls(authority.config("two"))
    calls = SignedCalls(KEYS, clock=wall_clock, random_bytes=random.randbytes, tls=tls)
    try:
        assert await RemoteAllocator([url], calls).last("a") == 5
        async with aiohttp.ClientSession() as stranger:
            with pytest.raises((aiohttp.ClientError, asyncio.TimeoutError)):
                await stranger.post(url + LAST, ssl=False)
    finally:
        await calls.close()
        await sequencer.stop()


@pytest.mark.parametrize("missing", ["tls_certificate", "tls_key", "tls_ca"])
def test_tls_by_halves_is_refused(tmp_path: Path, missing: str) -> None:
    """A node that should speak TLS does not start without one of the three files."""
    cluster = structs.replace(Authority(tmp_path).config("one"), **{missing: ""})
    with pytest.raises(ConfigError, match=f"cluster.{missing}"):
        server_tls(cluster)


@pytest.mark.parametrize("broken", ["tls_certificate", "tls_key", "tls_ca"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, broken: str) -> None:
    """One that is not there, or is no certificate, is a sentence with its key."""
    cluster = Authority(tmp_path).config("one")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate", encoding="utf-8")
    for file in (tmp_path / "nowhere.pem", nonsense):
        with pytest.raises(ConfigError, match=f"cluster.{broken}"):
            client_tls(structs.replace(cluster, **{broken: str(file)}))


def test_an_address_without_tls_is_not_advertised(tmp_path: Path) -> None:
    """With certificates, `cluster.advertise` must say https."""
    cluster = structs.replace(Authority(tmp_path).config("one"), advertise="http://10.0.0.7:7070")
    with pytest.raises(ConfigError, match=r"cluster\.advertise must be like https://"):
        NodeServer(
            cluster,
            keys=KEYS,
            target=TARGET,
            clock=wall_clock,
            sender=None,
            listener=Hearing(),
            tls=server_tls(cluster),
        )
