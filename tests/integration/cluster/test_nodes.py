"""Two nodes over real sockets: drafts and notices reach each other, and failures harm nobody."""

import asyncio
import re
from collections import Counter
from io import BytesIO

import aiohttp
import pytest
import structlog

from parley.clock import wall_clock
from parley.cluster import bodies
from parley.cluster.calls import CALL_PROOF, CALL_TARGET, NodeRefused, NodeSilent, NodeUnreachable
from parley.cluster.server import NOTICES_REMEMBERED_MAX, NodeServer
from parley.config import ClusterConfig
from parley.core.cluster_keys import ClusterKeys
from parley.core.node_trust import CallKeys, NodeCall, prove_call
from parley.errors import ConfigError, StoreUnavailable
from parley.model import Head, Persisted, StoredEntry
from tests.fakes import KEYS
from tests.integration.cluster.two_nodes import SECRET, Hearing, a_stopped_node, two_nodes
from tests.unit.sending.nodes import message
from tests.waiting import eventually

SENDER_PATIENCE_SECONDS = 5.0
SECONDS = 5.0


async def test_drafts_reach_the_node_that_has_the_chat() -> None:
    """Whatever node people are on, each chat is appended by one, and everybody hears the outcome."""
    async with two_nodes() as place:
        sends = [
            node.code(message(f"{n}", f"chat {n % 20}"))
            for n in range(200)
            for node in (place.one, place.two)
        ]
        told = Counter(await asyncio.gather(*sends))
        assert told == {"stored": 200, "deduplicated": 200}
        assert sum(map(len, place.store.contents.values())) == 200
        for node in (place.one, place.two):
            text = node.metrics.text().decode()
            assert "parley_forwarded_drafts_total 0.0" not in text
            assert 'parley_forward_failures_total{reason="silent"} 0.0' in text


async def test_an_unsigned_call_is_refused() -> None:
    """Without the cluster's secret nobody can append, tell or ask; only health is open."""
    async with two_nodes() as place, aiohttp.ClientSession() as session:
        drafts = bodies.pack([message("foreign")])
        ended = bodies.pack([bodies.SessionsEnded("ntc_1", ["ses_1"])])
        news = bodies.pack([Persisted("chat_1", 1, [StoredEntry(1, b"{}")])])
        calls = {bodies.APPEND: drafts, bodies.NOTICES: ended, bodies.NEWS: news, bodies.PING: b""}
        for path, body in calls.items():
            async with session.post(place.two.url + path, data=body) as response:
                assert response.status == 401
        assert place.store.contents == {}
        assert place.two.hearing.heard == []
        async with session.get(place.two.url + "/healthz") as response:
            assert response.status == 200


async def test_refused_calls_fill_no_log() -> None:
    """Whether a call lacks its proof or its body makes no sense: a line says so, and not one for each."""
    async with two_nodes() as place, aiohttp.ClientSession() as session:
        with structlog.testing.capture_logs() as lines:
            for _ in range(20):
                async with session.post(place.two.url + bodies.APPEND, data=b"x") as response:
                    assert response.status == 401
                with pytest.raises(NodeRefused):
                    await place.one.calls.post(
                        place.two.url + bodies.APPEND, b"no drafts", 5.0, place.two.target
                    )
    assert [line["event"] for line in lines] == ["node call refused"] * 2


async def test_nodes_with_different_secrets_do_without_each_other() -> None:
    """A node that is refused appends for itself, and says what is wrong without telling a secret."""
    with structlog.testing.capture_logs() as lines:
        async with two_nodes(second_secret="another secret than that of the rest") as place:
            draft = message("hello", place.one.chat_of("two"))
            assert await place.one.code(draft) == "stored"
            assert place.one.owners() == {"one"}
    assert {"node call refused", "node suspected"} <= {line["event"] for line in lines}
    assert "secret of" not in str(lines)
    assert SECRET not in str(lines)


async def test_a_stopped_node_is_passed_over_in_time() -> None:
    """A node that the kernel still answers for, and nobody else, costs two seconds and no message."""
    async with two_nodes() as place:
        with a_stopped_node(place.nodes) as stopped:
            await place.one.peers.refresh()
            chat = place.one.chat_of(stopped.node_id)
            now = asyncio.get_running_loop().time
            started = now()
            codes = await asyncio.gather(*(place.one.code(message(f"{n}", chat)) for n in range(10)))
            assert codes == ["stored"] * 10
            assert now() - started < SENDER_PATIENCE_SECONDS
            assert place.store.contents[chat] == [f"{n}" for n in range(10)]
            assert stopped.node_id not in place.one.owners()


async def test_a_draining_node_sends_callers_elsewhere_at_once() -> None:
    """It takes nothing more, finishes what it took, and its caller does not wait for its lease."""
    async with two_nodes() as place:
        chat = place.one.chat_of("two")
        place.two.log.open.clear()
        taken = asyncio.create_task(place.one.code(message("taken before", chat)))
        await eventually(lambda: place.two.sender._workers != set())
        stopping = asyncio.create_task(place.two.stop())
        await eventually(lambda: place.two.server._draining)
        other = next(c for c in map("other {}".format, range(99)) if place.one.peers.owner_of(c) == "two")
        assert await place.one.code(message("goes elsewhere", other)) == "stored"
        assert place.one.owners() == {"one"}
        place.two.log.open.set()
        assert await taken == "stored"
        await stopping
        assert place.store.contents == {chat: ["taken before"], other: ["goes elsewhere"]}


async def test_a_dead_node_is_passed_over_at_once() -> None:
    """Nobody listens at its address any more: its chats are appended here."""
    async with two_nodes() as place:
        chat = place.one.chat_of("two")
        assert await place.one.code(message("first", chat)) == "stored"
        await place.two.server.close()
        assert await place.one.code(message("second", chat)) == "stored"
        assert place.store.contents[chat] == ["first", "second"]


async def test_a_slow_store_is_waited_for() -> None:
    """A node that answers pings is not given up while its store takes its time."""
    async with two_nodes() as place:
        chat = place.one.chat_of("two")
        place.two.log.open.clear()
        sent = asyncio.create_task(place.one.code(message("hello", chat)))
        pinged = asyncio.get_running_loop().time() + 2.1
        await eventually(lambda: asyncio.get_running_loop().time() > pinged)
        place.two.log.open.set()
        assert await sent == "stored"
        assert place.one.owners() == {"one", "two"}


async def test_a_node_without_its_store_refuses_as_temporary() -> None:
    """Its caller's sender hears that nothing was stored and that it may try again."""
    async with two_nodes() as place:
        place.two.log.failure = StoreUnavailable("gone")
        with structlog.testing.capture_logs():
            code = await place.one.code(message("hello", place.one.chat_of("two")))
        assert code == "store_unavailable"


async def test_notices_reach_the_other_node() -> None:
    """A session that ends here, and a chat that is created here, is heard there; not here again."""
    async with two_nodes() as place:
        place.one.bus.publish_sessions_ended(["ses_1"])
        place.one.bus.publish_joined("chat", Head(1, 0), ["ann", "ben"])
        await eventually(lambda: len(place.two.hearing.heard) == 2)
        assert place.two.hearing.heard == [["ses_1"], ("chat", Head(1, 0), ["ann", "ben"])]
        assert place.one.hearing.heard == []


async def test_a_notice_is_heard_once() -> None:
    """Told again because its acknowledgement was lost, a notice changes nothing."""
    async with two_nodes() as place:
        (node,) = place.one.peers.others("gateway")
        notice = bodies.SessionsEnded("ntc_1", ["ses_1"])
        for _ in range(3):
            await place.one.peers.tell(node, [notice, notice])
        assert place.two.hearing.heard == [["ses_1"]]


async def test_a_listener_that_fails_is_told_again() -> None:
    """A notice counts as heard only when it was acted on."""
    async with two_nodes() as place:
        place.two.hearing.failures = 2
        with structlog.testing.capture_logs() as lines:
            place.one.bus.publish_sessions_ended(["ses_1"])
            await eventually(lambda: place.two.hearing.heard == [["ses_1"]])
        assert [line["event"] for line in lines].count("node call failed") == 2


async def test_a_server_does_not_remember_notices_for_ever() -> None:
    """The memory of what was heard is bounded."""
    server = node_server(ClusterConfig())
    for n in range(NOTICES_REMEMBERED_MAX + 50):
        server._hear(bodies.SessionsEnded(f"ntc_{n}", []))
    assert len(server._heard) == NOTICES_REMEMBERED_MAX


@pytest.mark.parametrize("path", [bodies.APPEND, bodies.NOTICES, bodies.NEWS])
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\x01", b"\x81\xa1a\x01", b'{"drafts": []}'])
async def test_a_bad_body_is_refused(path: str, body: bytes) -> None:
    """Even from a node of the cluster, bytes that make no sense are answered 400 and do nothing."""
    async with two_nodes() as place:
        with structlog.testing.capture_logs(), pytest.raises(NodeRefused) as refused:
            await place.one.calls.post(place.two.url + path, body, SECONDS)
        assert refused.value.status == 400


async def test_news_is_confirmed_once_it_was_heard() -> None:
    """The answer comes after the clients of the node were told; a node that fails to has not confirmed."""
    async with two_nodes() as place:
        news = [Persisted("chat_1", 1, [StoredEntry(1, b"{}"), StoredEntry(2, None)], told_by="three")]
        await place.one.peers.refresh()
        await place.one.peers.tell_news("two", news)
        assert place.two.hearing.heard == news
        place.two.hearing.failures = 1
        with structlog.testing.capture_logs(), pytest.raises(NodeSilent):
            await place.one.peers.tell_news("two", news)
        with pytest.raises(NodeUnreachable, match="not on the list"):
            await place.one.peers.tell_news("nobody", news)


async def test_a_body_that_is_too_large_is_not_read_to_its_end() -> None:
    """Nobody makes a node take in more than a full batch."""
    async with two_nodes() as place, aiohttp.ClientSession() as session:
        body = BytesIO(bytes(bodies.BODY_BYTES_MAX + 1))
        call = NodeCall(place.two.target, "POST", bodies.APPEND, body.getvalue())
        proof = prove_call(CallKeys(ClusterKeys(SECRET)), call, wall_clock(), b"1")
        headers = {CALL_TARGET: call.target, CALL_PROOF: proof}
        async with session.post(place.two.url + bodies.APPEND, data=body, headers=headers) as response:
            assert response.status == 413
        assert place.store.contents == {}


async def test_the_largest_batch_fits() -> None:
    """As much as the forwarder puts into one call arrives."""
    async with two_nodes() as place:
        chat = place.one.chat_of("two")
        contents = [f"{n:02}" + "\U0001f600" * 16_000 for n in range(40)]
        codes = await asyncio.gather(*(place.one.code(message(text, chat)) for text in contents))
        assert codes == ["stored"] * 40
        assert place.store.contents[chat] == contents


async def test_a_node_that_does_not_append_takes_no_batch() -> None:
    """Asked all the same, it says so; its caller goes elsewhere."""
    async with two_nodes() as place:
        place.two.server._sender = None
        assert await place.one.code(message("hello", place.one.chat_of("two"))) == "stored"
        assert place.one.owners() == {"one"}


def node_server(cluster: ClusterConfig) -> NodeServer:
    return NodeServer(
        cluster, keys=KEYS, target="node_7.1", clock=wall_clock, sender=None, listener=Hearing()
    )


async def test_others_reach_a_node_where_it_says() -> None:
    """The address on the list is the advertised one, or else the bound one."""
    bound = node_server(ClusterConfig())
    advertised = node_server(ClusterConfig(host="0.0.0.0", advertise="https://node-7.example/"))
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", await bound.start())
        assert await advertised.start() == "https://node-7.example"
    finally:
        await bound.close()
        await advertised.close()


async def test_a_port_that_is_taken_is_a_sentence() -> None:
    """It names the keys to change."""
    async with two_nodes() as place:
        taken = node_server(ClusterConfig(port=int(place.one.url.rpartition(":")[2])))
        try:
            with pytest.raises(ConfigError, match=r"cluster\.host 127\.0\.0\.1, port \d+: .*in use"):
                await taken.start()
        finally:
            await taken.close()


@pytest.mark.parametrize(
    "cluster",
    [
        ClusterConfig(host="0.0.0.0"),
        ClusterConfig(host="::"),
        ClusterConfig(advertise="node-7"),
        ClusterConfig(advertise="ftp://node-7"),
        ClusterConfig(advertise="http://"),
        ClusterConfig(advertise="http://[::1"),
    ],
)
def test_an_address_that_nobody_can_use_is_refused(cluster: ClusterConfig) -> None:
    """A node that the others could not reach is not even made."""
    with pytest.raises(ConfigError, match=r"cluster\.advertise"):
        node_server(cluster)
