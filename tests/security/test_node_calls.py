"""Calls between nodes, made again, changed, misdirected or answered by somebody else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from parley import config
from parley.app import App
from parley.clock import wall_clock
from parley.cluster import bodies
from parley.cluster.calls import ANSWER_PROOF, CALL_PROOF, CALL_TARGET, NodeSilent
from parley.cluster.server import NodeServer
from parley.config import ClusterConfig
from parley.core.cluster_keys import ANNOUNCEMENTS, EVENTS, SEQUENCER, SIGNALS, ClusterKeys, KeyRing
from parley.core.node_trust import (
    CALL_AGE_MS_MAX,
    REPLAYED,
    WRONG_SIGNATURE,
    WRONG_TARGET,
    CallKeys,
    NodeCall,
    prove_call,
)
from parley.ephemeral.ports import Node
from parley.errors import OutcomeUnknown
from parley.model import Action, Appended, Change, Draft, Kind
from tests.integration.cluster.two_nodes import SECRET, Hearing, Place, two_nodes
from tests.unit.sending.nodes import message

KEYS = ClusterKeys(SECRET)
CALL_KEYS = CallKeys(KEYS)
SECONDS = 5.0
STORED = Appended(message_id="msg_forged", sequence=7, epoch=1, created_at="2026-01-01T00:00:00.000Z")


class Recorded:
    """A call as it went over the network, to be sent by somebody who has seen it."""

    def __init__(
        self, target: str, path: str, body: bytes, ahead_ms: int = 0, keys: CallKeys = CALL_KEYS
    ) -> None:
        self.path, self.body = path, body
        call = NodeCall(target, "POST", path, body)
        proof = prove_call(keys, call, wall_clock() + ahead_ms, b"a nonce of 16 by")
        self.headers = {CALL_TARGET: target, CALL_PROOF: proof}

    async def send(self, url: str, path: str = "", body: bytes | None = None) -> tuple[int, str]:
        """Its status and what is said about it, on whichever node, at another path or with another body."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                url + (path or self.path), data=self.body if body is None else body, headers=self.headers
            ) as response,
        ):
            return response.status, await response.text(errors="replace")


def append_to(place: Place, keys: CallKeys = CALL_KEYS) -> Recorded:
    return Recorded(place.two.target, bodies.APPEND, bodies.pack([message("hello")]), keys=keys)


async def test_a_call_that_is_sent_again_to_the_same_node_is_refused() -> None:
    """What somebody recorded on the network does nothing a second time."""
    async with two_nodes() as place:
        recorded = append_to(place)
        assert (await recorded.send(place.two.url))[0] == 200
        status, said = await recorded.send(place.two.url)
        assert (status, REPLAYED in said) == (401, True)
        assert sum(map(len, place.store.contents.values())) == 1


async def test_a_call_that_is_sent_to_another_node_is_refused() -> None:
    """A proof names the process it is meant for: no other one takes it, though it knows the same secret."""
    async with two_nodes() as place:
        status, said = await append_to(place).send(place.one.url)
        assert (status, WRONG_TARGET in said) == (401, True)
        assert place.store.contents == {}


async def test_a_call_that_names_another_node_by_hand_is_refused() -> None:
    """The target is signed: it cannot be written over on the way."""
    async with two_nodes() as place:
        recorded = append_to(place)
        recorded.headers[CALL_TARGET] = place.one.target
        status, said = await recorded.send(place.one.url)
        assert (status, WRONG_SIGNATURE in said) == (401, True)


async def test_a_call_to_a_node_that_started_anew_is_refused() -> None:
    """Also one from a clock that is ahead, which a rule about time alone would take for a new call."""
    ahead = Recorded("node_7.first", bodies.PING, b"", ahead_ms=CALL_AGE_MS_MAX - 1_000)
    statuses = []
    for run in ("node_7.first", "node_7.second"):
        server = NodeServer(
            ClusterConfig(), keys=KEYS, target=run, clock=wall_clock, sender=None, listener=Hearing()
        )
        url = await server.start()
        try:
            statuses.append((await ahead.send(url))[0])
        finally:
            await server.close()
    assert statuses == [200, 401]


def test_a_node_has_another_name_after_each_start(tmp_path: Path) -> None:
    """Also where its operator has named it, so that no call to the process before it is meant for it."""
    settings = {
        "PARLEY_SERVER_DATA": str(tmp_path),
        "PARLEY_STORE_ENGINE": "dynamodb",
        "PARLEY_DYNAMODB_ENDPOINT": "http://127.0.0.1:9",
        "PARLEY_DYNAMODB_REGION": "local",
        "PARLEY_CLUSTER_SECRET": SECRET,
        "PARLEY_CLUSTER_NODE": "node_7",
    }
    started = [App(config.load(None, settings)[0], environment={}).cluster for _ in range(2)]
    names = {node._peers._target for node in started if node is not None}
    assert len(names) == 2


@pytest.mark.parametrize("what", ["body", "path"])
async def test_a_call_that_was_changed_on_the_way_is_refused(what: str) -> None:
    """Neither what is said nor to which end it is said can be exchanged."""
    async with two_nodes() as place:
        changed = bodies.pack([message("something else")]) if what == "body" else None
        path = bodies.NOTICES if what == "path" else ""
        status, said = await append_to(place).send(place.two.url, path, changed)
        assert (status, WRONG_SIGNATURE in said) == (401, True)
        assert place.store.contents == {}


class KeysOfAnotherPurpose(CallKeys):
    def __init__(self, purpose: str) -> None:
        super().__init__(KEYS)
        self._ring = KEYS.ring(purpose)

    def of(self, path: str) -> KeyRing:
        return self._ring


@pytest.mark.parametrize("purpose", [ANNOUNCEMENTS, SIGNALS, EVENTS, SEQUENCER])
async def test_a_key_of_another_purpose_signs_no_call(purpose: str) -> None:
    """Whoever can make a node sign an event, or a number, cannot call a node with it."""
    async with two_nodes() as place:
        recorded = append_to(place, KeysOfAnotherPurpose(purpose))
        assert (await recorded.send(place.two.url))[0] == 401
        assert place.store.contents == {}


@asynccontextmanager
async def impostor(status: int, body: bytes, **headers: str) -> AsyncIterator[str]:
    """Somebody at a node's address who does not know the secret; its address."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.Response(status=status, body=body, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_an_ack_that_somebody_else_gives_is_not_believed() -> None:
    """An answer without a proof of its call is no ack, whatever it says and however it is signed."""
    answer = bodies.pack_outcomes([STORED])
    async with two_nodes() as place, impostor(200, answer, **{ANSWER_PROOF: "00" * 16}) as url:
        place.nodes.listed["two"] = Node("two", url, ("gateway", "ingest"), place.two.target)
        await place.one.peers.refresh()
        with pytest.raises(OutcomeUnknown):
            await place.one.peers.append("two", [message("hello")])


async def test_an_answer_to_another_call_is_not_believed() -> None:
    """A proof that was recorded with an earlier answer does not fit the next call."""
    async with two_nodes() as place:
        recorded = append_to(place)
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                place.two.url + recorded.path, data=recorded.body, headers=recorded.headers
            ) as response,
        ):
            answer, proof = await response.read(), response.headers[ANSWER_PROOF]
        async with impostor(200, answer, **{ANSWER_PROOF: proof}) as url:
            with pytest.raises(NodeSilent):
                await place.one.calls.post(url + recorded.path, recorded.body, SECONDS, place.two.target)


async def test_a_refusal_that_somebody_else_gives_repeats_no_change() -> None:
    """A forged 401 does not make a node send a change of members again that may have been taken."""
    async with two_nodes() as place, impostor(401, b'{"reason": "go away"}') as url:
        place.nodes.listed["two"] = Node("two", url, ("gateway", "ingest"), place.two.target)
        await place.one.peers.refresh()
        leaving = Draft(
            chat_id=place.one.chat_of("two"),
            sender_id="ann",
            content="{}",
            kind=Kind.MEMBER.value,
            change=Change(Action.LEFT, "ann"),
        )
        assert await place.one.code(leaving) == "outcome_unknown"
        assert place.store.contents == {}
