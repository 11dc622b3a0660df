"""Calls between nodes, signals and events that no node of ours would make, signed or not.

Who knows the secret is a node, perhaps of another version and perhaps with a bug: what it says is refused or
passed over, and does not stop the node that hears it.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import pytest
from aiokafka import ConsumerRecord

from parley.bus import events
from parley.bus.kafka.records import RecordReader
from parley.clock import wall_clock
from parley.cluster import bodies
from parley.cluster.calls import CALL_PROOF, CALL_TARGET
from parley.core.cluster_keys import EVENTS, SIGNALS, ClusterKeys
from parley.core.node_trust import CallKeys, NodeCall, prove_call
from parley.ephemeral.redis.signals import Bundle, RedisSignals, encode_bundle, encode_signal
from parley.ephemeral.signals import MuteSignal, ReceiptSignal, TypingSignal, UserChangedSignal
from parley.model import Action, Change, Draft, Head, Kind, Persisted, ReceiptKind, Role, StoredEntry
from parley.sequencing import bodies as sequencing
from parley.telemetry import Metrics
from tests import corpus, seeds
from tests.contracts import allocators
from tests.contracts.acting import add_group, add_people, message
from tests.contracts.engines import SqliteEngine
from tests.fakes import KEYS
from tests.harness.allocator import MemoryAllocator
from tests.harness.scripted_log import wire_at
from tests.integration.cluster.two_nodes import SECRET, Place, two_nodes
from tests.integration.sequencing.test_service import sequencer_of
from tests.simulation.fuzzing import (
    CASES,
    Finding,
    LogWatch,
    as_json,
    mutate_bytes,
    mutate_value,
    watched_log,
)
from tests.unit.ephemeral.test_redis_signals import Channels, SlowLink

STATUSES = {200, 400, 401, 404, 405, 413, 503}
CALL_KEYS = CallKeys(ClusterKeys(SECRET))
PATHS = {"append": bodies.APPEND, "notices": bodies.NOTICES, "news": bodies.NEWS}
TOPIC = "messages.persisted"


class CallFuzzer:
    """Draws bodies of calls about a chat that is there, and how they are sent."""

    def __init__(self, random: Random, chat_id: str, user_id: str) -> None:
        self._random = random
        joining = Draft(
            chat_id=chat_id,
            sender_id=user_id,
            content='{"action":"joined","user_id":"user_x","role":"member"}',
            kind=Kind.MEMBER.value,
            change=Change(Action.JOINED, "user_x", Role.MEMBER),
        )
        drafts = [message(chat_id, user_id, "hello"), joining]
        self.valid: list[tuple[str, Any]] = [
            (bodies.APPEND, msgspec.to_builtins(drafts)),
            (bodies.APPEND, msgspec.to_builtins(drafts[:1])),
            (bodies.NOTICES, msgspec.to_builtins([bodies.Joined("ntc_1", chat_id, Head(1, 2), [user_id])])),
            (bodies.NOTICES, msgspec.to_builtins([bodies.SessionsEnded("ntc_2", ["ses_1"])])),
            (bodies.NEWS, msgspec.to_builtins([Persisted(chat_id, 1, [StoredEntry(1, b"{}")])])),
            (bodies.PING, []),
        ]

    def body(self) -> tuple[str, bytes]:
        path, value = self._random.choice(self.valid)
        if self._random.random() < 0.6:
            return path, _packed(mutate_value(self._random, mutate_value(self._random, value)))
        return path, mutate_bytes(self._random, msgspec.msgpack.encode(value))

    def headers(self, path: str, body: bytes, target: str) -> dict[str, str]:
        """Mostly as a node signs it; sometimes with a proof that was tampered with, or none."""
        call = NodeCall(target, "POST", path, body)
        proof = prove_call(CALL_KEYS, call, wall_clock(), secrets.token_bytes(16))
        if self._random.random() < 0.2:
            proof = mutate_bytes(self._random, proof.encode()).decode("latin-1")
            proof = "".join(letter for letter in proof if letter.isprintable())[:5_000]
        return {CALL_TARGET: target, CALL_PROOF: proof} if self._random.random() < 0.95 else {}


def _packed(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, msgspec.MsgspecError):  # a number that MessagePack does not have
        return msgspec.json.encode(value)


async def posted(
    session: aiohttp.ClientSession, url: str, path: str, body: bytes, headers: dict[str, str]
) -> int:
    async with session.post(url + path, data=body, headers=headers) as response:
        await response.read()
        return response.status


async def check_node(place: Place, log: LogWatch, case: bytes, status: int) -> None:
    """It answered as it should, logged no error, and still answers another node."""
    if status not in STATUSES:
        raise Finding(case, f"a node answered {status}")
    log.check(case)
    url = place.two.url + bodies.PING
    if await place.one.calls.post(url, b"", 5.0, place.two.target) not in (b"", bodies.LISTED):
        raise Finding(case, "the node answers others no longer")


@pytest.mark.timeout(600)
async def test_calls_that_no_node_makes_harm_nobody(tmp_path: Path, seed: int) -> None:
    """Whatever a body holds and however it is signed, a node answers with a documented status and goes on."""
    random = Random(seed)
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        (ann,) = await add_people(store, "ann")
        fuzzer = CallFuzzer(random, await add_group(store, ann), ann)
        with watched_log() as log:
            async with two_nodes(log=store.log) as place, aiohttp.ClientSession() as session:
                for _ in range(CASES):
                    seeds.try_seed()
                    path, body = fuzzer.body()
                    headers = fuzzer.headers(path, body, place.two.target)
                    status = await posted(session, place.two.url, path, body, headers)
                    await check_node(place, log, body, status)


@pytest.mark.parametrize("name", corpus.cases("node_calls"))
async def test_a_call_of_the_corpus_harms_nobody(tmp_path: Path, name: str) -> None:
    """What was met badly once is answered as it should be, though a node has signed it."""
    async with SqliteEngine("atomic", tmp_path).opened() as store:
        body, path = corpus.cases("node_calls")[name], PATHS[name.rpartition(".")[2]]
        with watched_log() as log:
            async with two_nodes(log=store.log) as place, aiohttp.ClientSession() as session:
                call = NodeCall(place.two.target, "POST", path, body)
                proof = prove_call(CALL_KEYS, call, wall_clock(), b"a nonce of 16 by")
                headers = {CALL_TARGET: place.two.target, CALL_PROOF: proof}
                status = await posted(session, place.two.url, path, body, headers)
                await check_node(place, log, body, status)


SEQUENCES: list[tuple[str, Any]] = [
    (sequencing.ALLOCATE, {"allocations": [{"chat_id": "a", "count": 2, "floor": 0}]}),
    (sequencing.CREATE, {"chat_id": "b"}),
    (sequencing.LAST, {"chat_id": "a"}),
    (sequencing.RESTORE, {"chat_id": "a", "at_least": 3}),
]


@pytest.mark.timeout(300)
async def test_calls_that_no_node_makes_stop_no_sequencer(seed: int) -> None:
    """Whatever is asked of the Sequence Service, it answers, and gives no number twice or backwards."""
    random, counters = Random(seed), MemoryAllocator(a=0)
    keys, sequencer = CallKeys(ClusterKeys(allocators.SECRET)), sequencer_of(counters)
    with watched_log() as log:
        url = f"http://127.0.0.1:{await sequencer.start()}"
        async with aiohttp.ClientSession() as session, allocators.remote_at(url) as remote:
            last = 0
            for _ in range(CASES):
                seeds.try_seed()
                path, value = random.choice(SEQUENCES)
                data = msgspec.json.encode(value)
                is_shaped = random.random() < 0.6
                body = as_json(mutate_value(random, value)) if is_shaped else mutate_bytes(random, data)
                call = NodeCall(allocators.SERVICE, "POST", path, body)
                proof = prove_call(keys, call, wall_clock(), random.randbytes(16))
                headers = {CALL_TARGET: call.target, CALL_PROOF: proof}
                status = await posted(session, url, path, body, headers)
                if status not in STATUSES:
                    raise Finding(body, f"the service answered {status}")
                log.check(body)
                number = await remote.allocate("a", 1, 0)
                if number <= last:
                    raise Finding(body, f"the number {number} came after {last}")
                last = number
        await sequencer.stop()


async def test_signals_that_no_node_tells_stop_nobody(seed: int) -> None:
    """Signed or not, what makes no sense is passed over, and the next signal is heard."""
    random, channels = Random(seed), Channels()
    signals = RedisSignals(SlowLink(), channels, KEYS, wall_clock)  # type: ignore[arg-type]
    heard: list[str] = []
    signals.subscribe(UserChangedSignal, lambda signal: heard.append(signal.user_id))
    ring = KEYS.ring(SIGNALS, "signals_channel")
    valid = [
        TypingSignal("chat_a", "usr_a", 6_000, ["usr_b"]),
        ReceiptSignal("chat_a", "usr_a", ReceiptKind.READ, 7, "2026-01-01T00:00:00.000Z", True),
        MuteSignal("chat_a", "usr_a", None),
    ]
    with watched_log() as log:
        for number in range(CASES):
            seeds.try_seed()
            told = mutate_bytes(random, encode_signal(random.choice(valid)))
            data = encode_bundle(Bundle("fuzzer", number, wall_clock(), [told]))
            data = mutate_bytes(random, data) if random.random() < 0.3 else data
            channels.say((ring.tag(data) if random.random() < 0.8 else random.randbytes(16)) + data)
            fine = encode_bundle(
                Bundle("other", number + 1, wall_clock(), [encode_signal(UserChangedSignal(f"{number}"))])
            )
            channels.say(ring.tag(fine) + fine)
            log.check(data)
            if heard[-1:] != [f"{number}"]:
                raise Finding(data, "the next signal was not heard")
    await asyncio.sleep(0)


async def test_events_that_no_node_publishes_stop_nobody(seed: int) -> None:
    """Whatever stands in a topic, a reader takes it for an event or passes it over, and reads on."""
    random, reader = Random(seed), RecordReader(TOPIC, KEYS, Metrics(wall_clock))
    ring = KEYS.ring(EVENTS, TOPIC)
    valid = [
        events.encode("chat_1", 1, StoredEntry(1, wire_at("chat_1", 1)), "node", 0),
        events.encode("chat_1", 1, StoredEntry(2, None), "node", 0),
    ]
    for _ in range(CASES):
        seeds.try_seed()
        record = random.choice(valid)
        value = mutate_bytes(random, record.value)
        proof = ring.tag(value) if random.random() < 0.8 else random.randbytes(16)
        headers = ((mutate_bytes(random, b"node").decode("latin-1"), b"x"), (events.PROOF, proof))
        told = reader.read(ConsumerRecord(TOPIC, 0, 1, 0, 0, record.key, value, 0, 0, 0, headers))
        assert told is None or isinstance(told, events.PositionEvent)


@pytest.mark.parametrize("name", corpus.cases("events"))
async def test_an_event_of_the_corpus_stops_nobody(name: str) -> None:
    """What was met badly once is passed over, though a node has signed it."""
    value = corpus.cases("events")[name]
    reader = RecordReader(TOPIC, KEYS, Metrics(wall_clock))
    headers = ((events.PROOF, KEYS.ring(EVENTS, TOPIC).tag(value)),)
    assert reader.read(ConsumerRecord(TOPIC, 0, 1, 0, 0, b"chat_1", value, 0, 0, 0, headers)) is None
