"""The Sequence Service over real sockets: who may call it, how it is, and what happens when it goes."""

import asyncio
import secrets
from collections.abc import Callable

import aiohttp
import msgspec
import pytest
import structlog

from parley.clock import wall_clock
from parley.cluster.calls import CALL_PROOF, CALL_TARGET, SignedCalls
from parley.core.cluster_keys import ClusterKeys
from parley.core.node_trust import CALL_AGE_MS_MAX, CallKeys, NodeCall, prove_call
from parley.errors import CounterMissingError, StoreUnavailable
from parley.sequencing import bodies
from parley.sequencing.remote import RemoteAllocator
from parley.sequencing.service import Sequencer
from parley.telemetry import Metrics
from tests.contracts.allocators import SECRET, SERVICE, remote_at, sequencer_over
from tests.harness.allocator import MemoryAllocator
from tests.waiting import eventually

OTHER_SECRET = "the secret of another cluster"
BODY = msgspec.json.encode(bodies.Allocations([bodies.Allocation("a", 1, 0)]))


async def raw(url: str, body: bytes = BODY, proof: str | None = None) -> tuple[int, str]:
    headers = {} if proof is None else {CALL_TARGET: SERVICE, CALL_PROOF: proof}
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
        return response.status, await response.text()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


def sequencer_of(counters: MemoryAllocator, name: str = SERVICE) -> Sequencer:
    return Sequencer(
        counters,
        host="127.0.0.1",
        port=0,
        keys=ClusterKeys(SECRET),
        name=name,
        clock=wall_clock,
        metrics=Metrics(wall_clock),
    )


def proof_of(
    secret: str = SECRET,
    path: str = bodies.ALLOCATE,
    age_ms: int = 0,
    body: bytes = BODY,
    target: str = SERVICE,
) -> str:
    call = NodeCall(target, "POST", path, body)
    return prove_call(CallKeys(ClusterKeys(secret)), call, wall_clock() - age_ms, secrets.token_bytes(16))


FOREIGN: dict[str, Callable[[], str | None]] = {
    "unsigned": lambda: None,
    "garbage": lambda: "let me in",
    "no secret": lambda: proof_of(""),
    "wrong secret": lambda: proof_of(OTHER_SECRET),
    "too old": lambda: proof_of(age_ms=CALL_AGE_MS_MAX + 1000),
    "too new": lambda: proof_of(age_ms=-CALL_AGE_MS_MAX - 5000),
    "of another path": lambda: proof_of(path=bodies.LAST),
    "of another body": lambda: proof_of(body=BODY + b" "),
    "to another service": lambda: proof_of(target="sequencer.2"),
}


@pytest.mark.parametrize("how", FOREIGN)
async def test_a_foreign_call_burns_no_number(how: str) -> None:
    """Whoever cannot prove the secret is refused with 401, and no counter moves."""
    counters = MemoryAllocator(a=5)
    async with sequencer_over(counters) as url:
        status, said = await raw(url + bodies.ALLOCATE, proof=FOREIGN[how]())
    assert status == 401
    assert SECRET not in said
    assert counters.asked == []
    assert counters.counters == {"a": 5}


@pytest.mark.parametrize("path", [bodies.CREATE, bodies.LAST, bodies.RESTORE])
async def test_no_verb_is_open(path: str) -> None:
    """Creating, reading and restoring need the secret as much as allocating does."""
    counters = MemoryAllocator()
    async with sequencer_over(counters) as url:
        status, _ = await raw(url + path, b'{"chat_id":"a","at_least":9}')
    assert status == 401
    assert counters.counters == {}


async def test_a_replayed_call_burns_no_number() -> None:
    """A call that was seen on the network works once, for whoever made it."""
    counters = MemoryAllocator(a=5)
    async with sequencer_over(counters) as url:
        proof = proof_of()
        answers = [await raw(url + bodies.ALLOCATE, proof=proof) for _ in range(3)]
    assert [status for status, _ in answers] == [200, 401, 401]
    assert counters.counters == {"a": 6}


async def test_another_clusters_node_gets_nothing() -> None:
    """A node with another secret is told that there is no number for it, and the secret is told to nobody."""
    counters = MemoryAllocator(a=5)
    with structlog.testing.capture_logs() as lines:
        async with (
            sequencer_over(counters) as url,
            remote_at(url, secret="the secret of another one") as remote,
        ):
            with pytest.raises(StoreUnavailable) as refused:
                await remote.allocate("a", 1, 0)
    told = f"{lines} {refused.value} {refused.value.__cause__!r}"
    assert "the signature is wrong" in told
    assert SECRET not in told
    assert OTHER_SECRET not in told
    assert counters.counters == {"a": 5}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"allocations":[]}', b"[" * 5000, b'{"allocations":[{"chat_id":"a"}]}']
)
async def test_a_malformed_call_burns_no_number(body: bytes) -> None:
    """What cannot be read as a whole is refused as a whole."""
    counters = MemoryAllocator(a=5)
    async with sequencer_over(counters) as url:
        assert (await raw(url + bodies.ALLOCATE, body, proof_of(body=body)))[0] == 400
    assert counters.asked == []


async def test_too_much_at_once_burns_no_number() -> None:
    """A count or a list beyond its limit is refused, and counters stay."""
    counters = MemoryAllocator(a=5)
    count = msgspec.json.encode(
        {"allocations": [{"chat_id": "a", "count": bodies.COUNT_MAX + 1, "floor": 0}]}
    )
    many = msgspec.json.encode({"allocations": [{"chat_id": "a", "count": 1, "floor": 0}] * 1001})
    async with sequencer_over(counters) as url:
        for body in map(msgspec.json.encode, (count, many)):
            assert (await raw(url + bodies.ALLOCATE, body, proof_of(body=body)))[0] == 400
    assert counters.counters == {"a": 5}


async def test_callers_of_many_nodes_share_an_addition() -> None:
    """While one addition is under way, what others ask for the same chat becomes a single one."""
    counters = MemoryAllocator(a=0)
    counters.gate.clear()
    async with sequencer_over(counters) as url, remote_at(url) as one, remote_at(url) as two:
        first = asyncio.create_task(one.allocate("a", 1, 0))
        await eventually(lambda: len(counters.asked) == 1)
        others = [asyncio.create_task(node.allocate("a", 1, 0)) for node in (one, two) for _ in range(20)]
        await asyncio.sleep(0.2)
        counters.gate.set()
        assert sorted([await first, *await asyncio.gather(*others)]) == list(range(1, 42))
    assert [count for _, count, _ in counters.asked] == [1, 40]


async def test_an_instance_that_goes_takes_no_sender_with_it() -> None:
    """Two instances over one counter give distinct numbers, and none fails when one of them stops."""
    counters = MemoryAllocator(a=0)
    going, staying = sequencer_of(counters, "going"), sequencer_of(counters, "staying")
    urls = [f"http://127.0.0.1:{await each.start()}" for each in (going, staying)]
    async with remote_at(*urls) as remote:
        given: list[int] = []
        takers = [asyncio.create_task(take(remote, given, 100)) for _ in range(5)]
        await eventually(lambda: len(given) >= 50)
        await going.stop()
        await asyncio.gather(*takers)
    await staying.stop()
    assert len(set(given)) == len(given) == 500


async def take(allocator: RemoteAllocator, given: list[int], times: int) -> None:
    for _ in range(times):
        number = await allocator.allocate("a", 1, 0)
        given.append(number)


async def test_an_instance_that_goes_finishes_what_it_took() -> None:
    """A number that was asked for before the end is answered, not burned."""
    counters = MemoryAllocator(a=0)
    counters.gate.clear()
    sequencer = sequencer_of(counters)
    async with remote_at(f"http://127.0.0.1:{await sequencer.start()}") as remote:
        asked = asyncio.create_task(remote.allocate("a", 1, 0))
        await eventually(lambda: len(counters.asked) == 1)
        stopping = asyncio.create_task(sequencer.stop())
        await asyncio.sleep(0.05)
        counters.gate.set()
        assert await asked == 1
        await stopping
        with pytest.raises(StoreUnavailable):
            await remote.allocate("a", 1, 0)


async def test_health_and_readiness() -> None:
    """It is well while it runs, and ready only while its counters can be read."""
    counters = MemoryAllocator()
    async with sequencer_over(counters) as url:
        assert await get(f"{url}/healthz") == (200, '{"status":"ok"}')
        assert await get(f"{url}/readyz") == (200, '{"status":"ready"}')
        counters.trouble = StoreUnavailable("away")

        async def is_unready() -> bool:
            return (await get(f"{url}/readyz"))[0] == 503

        await eventually(is_unready)
        assert (await get(f"{url}/healthz"))[0] == 200


async def test_metrics_tell_what_was_given() -> None:
    """Latencies, errors and missing counters are counted by the names of the sources."""
    metrics = Metrics(wall_clock)
    async with sequencer_over(MemoryAllocator(a=0), metrics) as url, remote_at(url) as remote:
        await remote.allocate("a", 1, 0)
        with pytest.raises(CounterMissingError):
            await remote.allocate("b", 1, 0)
        status, text = await get(f"{url}/metrics")
    lines = text.splitlines()
    assert status == 200
    assert "sequence_allocation_latency_count 1.0" in lines
    assert "sequence_allocation_errors 1.0" in lines
    assert "counter_missing_errors 1.0" in lines
    assert 'parley_http_requests_total{route="/v1/sequences/allocate",status="200"} 2.0' in lines


async def test_a_missing_counter_is_critical() -> None:
    """The operator of the service reads of it too."""
    with structlog.testing.capture_logs() as lines:
        async with sequencer_over(MemoryAllocator()) as url, remote_at(url) as remote:
            with pytest.raises(CounterMissingError):
                await remote.allocate("b", 1, 0)
    assert ("COUNTER_MISSING", "critical") in [(line["event"], line["log_level"]) for line in lines]


async def test_an_unforeseen_failure_gives_nothing() -> None:
    """A bug below the service is no number above it."""
    counters = MemoryAllocator(a=0)
    counters.trouble = RuntimeError("boom")
    async with sequencer_over(counters) as url, remote_at(url) as remote:
        with pytest.raises(StoreUnavailable):
            await remote.allocate("a", 1, 0)


async def test_the_body_is_what_the_page_says() -> None:
    """Any program with the secret can call it: JSON in, JSON out."""
    calls = SignedCalls(ClusterKeys(SECRET), clock=wall_clock, random_bytes=secrets.token_bytes)
    asked = b'{"allocations":[{"chat_id":"a","count":2,"floor":0},{"chat_id":"b","count":1,"floor":9}]}'
    try:
        async with sequencer_over(MemoryAllocator(a=3, b=4)) as url:
            answer = await calls.post(url + bodies.ALLOCATE, asked, 5)
    finally:
        await calls.close()
    behind = '{"chat_id":"b","error":"counter_inconsistent","counter":4}'
    assert answer.decode() == f'{{"allocations":[{{"chat_id":"a","last":5}},{behind}]}}'
