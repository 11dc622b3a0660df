"""The caller of the Sequence Service, over calls that are answered in memory."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
import structlog

from parley.cluster.calls import NodeRefused, NodeSilent, NodeUnreachable, SignedCalls
from parley.errors import ConfigError, StoreUnavailable
from parley.sequencing import bodies
from parley.sequencing.remote import REQUESTS_AT_ONCE_MAX, RemoteAllocator

A, B = "http://a:1", "http://b:1"


class Calls(SignedCalls):
    """Counters behind two addresses; `troubles` are met first, by address."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.troubles: dict[str, list[Exception]] = {}
        self.asked: list[tuple[str, bodies.Allocations]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer: Callable[[bodies.AllocationOutcomes], bytes] = msgspec.json.encode

    async def post(self, url: str, body: bytes, timeout: float, target: str = "") -> bytes:
        assert 0 < timeout < 10
        asked = msgspec.json.decode(body, type=bodies.Allocations)
        base = url.removesuffix(bodies.ALLOCATE)
        self.asked.append((base, asked))
        await self.gate.wait()
        if self.troubles.get(base):
            raise self.troubles[base].pop()
        return self.answer(bodies.AllocationOutcomes([self._give(each) for each in asked.allocations]))

    def _give(self, asked: bodies.Allocation) -> bodies.AllocationOutcome:
        self.counters[asked.chat_id] = self.counters.get(asked.chat_id, 0) + asked.count
        return bodies.AllocationOutcome(asked.chat_id, self.counters[asked.chat_id])


async def test_what_is_asked_in_one_turn_is_one_request() -> None:
    """Many chats and callers, one call over the network."""
    calls = Calls()
    allocator = RemoteAllocator([A], calls)
    asked = [allocator.allocate(f"chat{n % 5}", 1, 0) for n in range(10)]
    assert sorted(await asyncio.gather(*asked)) == [1] * 5 + [2] * 5
    assert len(calls.asked) == 1


async def test_requests_at_once_are_few() -> None:
    """When enough requests are under way, whoever comes waits and goes with the next one."""
    calls = Calls()
    calls.gate.clear()
    allocator = RemoteAllocator([A], calls)
    waiting = []
    for _ in range(REQUESTS_AT_ONCE_MAX + 20):
        waiting.append(asyncio.create_task(allocator.allocate("a", 1, 0)))
        for _ in range(4):
            await asyncio.sleep(0)
    assert len(calls.asked) == REQUESTS_AT_ONCE_MAX
    calls.gate.set()
    assert sorted(await asyncio.gather(*waiting)) == list(range(1, REQUESTS_AT_ONCE_MAX + 21))
    assert len(calls.asked) == REQUESTS_AT_ONCE_MAX + 1


async def test_a_request_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """More allocations than one request may carry go in several."""
    monkeypatch.setattr(bodies, "ALLOCATIONS_MAX", 4)
    monkeypatch.setattr("parley.sequencing.remote.REQUESTS_AT_ONCE_MAX", 1)
    calls = Calls()
    allocator = RemoteAllocator([A], calls)
    assert sorted(await asyncio.gather(*(allocator.allocate("a", 1, 0) for _ in range(10)))) == [
        *range(1, 11)
    ]
    assert [len(asked.allocations) for _, asked in calls.asked] == [4, 4, 2]


@pytest.mark.parametrize(
    "trouble",
    [NodeUnreachable("down"), NodeSilent("lost"), NodeRefused(503, b"draining"), NodeRefused(401, b"")],
)
async def test_the_next_service_is_asked(trouble: Exception) -> None:
    """A service that gives no number is passed over, and the one that does is kept."""
    calls = Calls()
    calls.troubles[A] = [trouble]
    allocator = RemoteAllocator([A, B], calls)
    assert [await allocator.allocate("a", 1, 0) for _ in range(3)] == [1, 2, 3]
    assert [base for base, _ in calls.asked] == [A, B, B, B]


async def test_an_outage_is_a_line_and_its_end_another() -> None:
    """However many allocations pass a service over: once when it fails, once when it answers again."""
    calls = Calls()
    calls.troubles[A] = [NodeUnreachable("down")] * 50
    allocator = RemoteAllocator([A], calls)
    with structlog.testing.capture_logs() as lines:
        for _ in range(50):
            with pytest.raises(StoreUnavailable):
                await allocator.allocate("a", 1, 0)
        await allocator.allocate("a", 1, 0)
    assert [(line["event"], line.get("not_logged")) for line in lines] == [
        ("sequencer does not answer", None),
        ("sequencer answers again", 49),
    ]


async def test_each_service_is_asked_once() -> None:
    """When none answers, that is told, with the reason of the last one."""
    calls = Calls()
    calls.troubles = {A: [NodeUnreachable("down")], B: [NodeSilent("lost")]}
    with pytest.raises(StoreUnavailable, match="down"):
        await RemoteAllocator([A, B], calls, first=1).allocate("a", 1, 0)
    assert [base for base, _ in calls.asked] == [B, A]


@pytest.mark.parametrize(
    "answer",
    [
        lambda outcomes: b"fine",
        lambda outcomes: b'{"allocations":[]}',
        lambda outcomes: msgspec.json.encode(
            bodies.AllocationOutcomes([bodies.AllocationOutcome("other", 1)])
        ),
        lambda outcomes: msgspec.json.encode(bodies.AllocationOutcomes([bodies.AllocationOutcome("a")])),
        lambda outcomes: msgspec.json.encode(
            bodies.AllocationOutcomes([bodies.AllocationOutcome("a", error="unheard_of")])
        ),
    ],
)
async def test_a_strange_answer_is_no_number(answer: Callable[[bodies.AllocationOutcomes], bytes]) -> None:
    """What is not an answer to what was asked gives nobody a number."""
    calls = Calls()
    calls.answer = answer
    with pytest.raises(StoreUnavailable):
        await RemoteAllocator([A], calls).allocate("a", 1, 0)


@pytest.mark.parametrize(
    ("chat", "count", "floor"),
    [("a", 0, 0), ("a", bodies.COUNT_MAX + 1, 0), ("a", 1, -1), ("", 1, 0), ("a" * 65, 1, 0)],
)
async def test_what_the_service_would_refuse_is_not_sent(chat: str, count: int, floor: int) -> None:
    """A bad call fails for itself and takes no neighbour with it."""
    calls = Calls()
    allocator = RemoteAllocator([A], calls)
    bad = allocator.allocate(chat, count, floor)
    outcomes = await asyncio.gather(bad, allocator.allocate("well", 1, 0), return_exceptions=True)
    assert isinstance(outcomes[0], ValueError)
    assert outcomes[1] == 1


@pytest.mark.parametrize(
    "urls", [[], ["a:1"], ["ftp://a"], ["http://"], ["http://a/path"], ["http://a?b"], [A, ""]]
)
def test_addresses_are_checked(urls: list[str]) -> None:
    """What is no base address is refused at the start, in one sentence."""
    with pytest.raises(ConfigError, match=r"cluster\.sequencers"):
        RemoteAllocator(urls, Calls())
