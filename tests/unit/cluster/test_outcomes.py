"""Outcomes on their way back: in batches, to the right process, and not for ever."""

import asyncio

import msgspec

from parley.bus.ports import BufferedDraft, ReplyAddress
from parley.cluster.calls import NodeSilent
from parley.cluster.outcomes import OUTCOMES, TELL_SECONDS_MAX, OutcomeReturner, TicketOutcome
from parley.errors import NOT_A_MEMBER, Refusal
from parley.model import Appended, Outcome
from parley.telemetry import Metrics
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.sending.nodes import message

HERE, THERE = ReplyAddress("http://here", "here.1"), ReplyAddress("http://there", "there.1")
STORED = Appended(message_id="msg_1", sequence=1, epoch=1, created_at="")
CALL_SECONDS = 0.1


class FakeCalls:
    """Another node: it keeps what it is told. `is_silent`: it answers nothing."""

    def __init__(self) -> None:
        self.told: list[list[TicketOutcome]] = []
        self.targets: list[tuple[str, str]] = []
        self.is_silent = False

    async def post(self, url: str, body: bytes, timeout: float, target: str = "") -> bytes:
        await asyncio.sleep(CALL_SECONDS)
        self.targets.append((url, target))
        if self.is_silent:
            raise NodeSilent("no answer")
        self.told.append(msgspec.msgpack.decode(body, type=list[TicketOutcome]))
        return b""


class World:
    def __init__(self, clock: VirtualClock) -> None:
        self.calls = FakeCalls()
        self.settled: list[tuple[int, Outcome]] = []
        self.returner = OutcomeReturner(HERE.target, self.settled.extend, self.calls, Metrics(clock))

    def give(self, reply: ReplyAddress, *tickets: int, outcome: Outcome = STORED) -> None:
        for ticket in tickets:
            self.returner.give_back(BufferedDraft(message("a"), ticket, reply, 0), outcome)

    @property
    def tickets(self) -> list[list[int]]:
        return [[one.ticket for one in told] for told in self.calls.told]


def test_outcomes_that_come_together_travel_together() -> None:
    """One call at a time for a node; what comes meanwhile waits for the next one."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.give(THERE, 1, 2)
        await asyncio.sleep(CALL_SECONDS / 2)
        world.give(THERE, 3)
        world.give(THERE, 4, outcome=NOT_A_MEMBER)
        await asyncio.sleep(1)
        assert world.tickets == [[1, 2], [3, 4]]
        assert world.calls.targets == [("http://there" + OUTCOMES, "there.1")] * 2
        told = world.calls.told[1]
        assert told[0].appended == STORED
        assert isinstance(told[1].refusal, Refusal)

    run_virtual(scenario)


def test_this_process_is_told_without_a_call() -> None:
    """And at once: its log publishes the entries right after its outcomes."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.give(HERE, 7)
        assert world.settled == [(7, STORED)]
        assert world.tickets == []

    run_virtual(scenario)


def test_a_node_that_does_not_answer_is_told_again_until_its_senders_are_answered() -> None:
    """Then its outcomes are dropped, and later ones still arrive."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.calls.is_silent = True
        world.give(THERE, 1)
        await asyncio.sleep(TELL_SECONDS_MAX + 1)
        tries = len(world.calls.targets)
        assert tries > 1
        await asyncio.sleep(60)
        assert len(world.calls.targets) == tries
        world.calls.is_silent = False
        world.give(THERE, 2)
        await asyncio.sleep(1)
        assert world.tickets == [[2]]

    run_virtual(scenario)


def test_a_stop_does_not_wait_for_a_silent_node() -> None:
    """What was not told by then is not told."""

    async def scenario(clock: VirtualClock) -> None:
        world = World(clock)
        world.calls.is_silent = True
        world.give(THERE, 1)
        await asyncio.sleep(0)
        async with asyncio.timeout(CALL_SECONDS / 2):
            await world.returner.stop()

    run_virtual(scenario)
