"""Rates over several nodes: messages are decided at once, and in the long run the sum of all nodes holds."""

import asyncio
from collections.abc import Mapping

from parley.core.rates import (
    COST_PER_USER,
    FAILED_LOGINS,
    MEMBER_CHANGES_PER_USER,
    MESSAGES_PER_USER,
    NEW_CHATS_PER_USER,
)
from parley.ephemeral.local import LocalEphemeral, LocalRates
from parley.gateway.shared_rates import REPORT_SECONDS, SharedRates
from tests.harness.clock import VirtualClock, run_virtual

RATE, BURST = MESSAGES_PER_USER.per_second, MESSAGES_PER_USER.burst
TICK_SECONDS = 0.01


class CountingRates(LocalRates):
    """An engine that may be out of reach, and counts what it is asked."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.reports = 0
        self.answer_seconds = 0.0
        self.is_away = False

    async def report(
        self, name: str, used: Mapping[str, float], per_second: float, burst: float
    ) -> dict[str, float]:
        self.reports += 1
        left = {} if self.is_away else await super().report(name, used, per_second, burst)
        await asyncio.sleep(self.answer_seconds)
        return left


def shared_by(clock: VirtualClock, nodes: int) -> tuple[CountingRates, list[SharedRates]]:
    """Nodes at work over one engine."""
    ephemeral = LocalEphemeral(clock)
    engine = CountingRates(clock)
    ephemeral.is_shared, ephemeral.rates = True, engine
    shared = [SharedRates(ephemeral, clock) for _ in range(nodes)]
    for rates in shared:
        rates.start()
    return engine, shared


async def flood(nodes: list[SharedRates], clock: VirtualClock, seconds: float) -> int:
    """How many messages pass when somebody sends to all nodes as fast as it goes."""
    passed = 0
    for _ in range(round(seconds / TICK_SECONDS)):
        for node in nodes:
            while not node.messages.take("usr_ann", clock()):
                passed += 1
        await asyncio.sleep(TICK_SECONDS)
    return passed


def test_who_spreads_over_nodes_gains_only_a_burst() -> None:
    """In the long run three nodes together let through what one would; at first each gives its burst."""

    async def scenario(clock: VirtualClock) -> None:
        _, nodes = shared_by(clock, 3)
        first = await flood(nodes, clock, 30)
        assert first <= 3 * BURST + 30 * RATE
        later = await flood(nodes, clock, 60)
        assert 0.8 * 60 * RATE <= later <= 1.2 * 60 * RATE
        for node in nodes:
            node.close()

    run_virtual(scenario)


def test_messages_cost_no_call_each() -> None:
    """A thousand messages are reported with the next report, and silence not at all."""

    async def scenario(clock: VirtualClock) -> None:
        engine, (node,) = shared_by(clock, 1)
        for number in range(1_000):
            assert node.messages.take(f"usr_{number % 10}", clock()) == 0
        assert engine.reports == 0
        await asyncio.sleep(10 * REPORT_SECONDS)
        assert engine.reports == 1
        node.close()

    run_virtual(scenario)


def test_what_passed_during_a_report_is_not_forgotten() -> None:
    """An answer that is older than some messages leaves no more than there is without them."""

    async def scenario(clock: VirtualClock) -> None:
        engine, (node,) = shared_by(clock, 1)
        engine.answer_seconds = 0.2
        assert node.messages.take("usr_ann", clock(), cost=BURST - 50) == 0
        await asyncio.sleep(REPORT_SECONDS + engine.answer_seconds / 2)
        assert node.messages.take("usr_ann", clock(), cost=40) == 0
        await asyncio.sleep(engine.answer_seconds)
        assert node.messages.take("usr_ann", clock(), cost=25) > 0
        node.close()

    run_virtual(scenario)


def test_without_the_engine_a_node_decides_alone() -> None:
    """While the engine is away each node keeps its own count, and the sum holds again afterwards."""

    async def scenario(clock: VirtualClock) -> None:
        engine, nodes = shared_by(clock, 2)
        engine.is_away = True
        await flood(nodes, clock, 20)
        alone = await flood(nodes, clock, 20)
        assert 1.9 * 20 * RATE <= alone <= 2.1 * 20 * RATE
        engine.is_away = False
        await flood(nodes, clock, 30)
        assert await flood(nodes, clock, 30) <= 1.2 * 30 * RATE
        for node in nodes:
            node.close()

    run_virtual(scenario)


def test_alone_nothing_is_reported() -> None:
    """A node that shares with nobody starts no job, and its limiter keeps no account."""

    async def scenario(clock: VirtualClock) -> None:
        before = len(asyncio.all_tasks())
        rates = SharedRates(LocalEphemeral(clock), clock)
        rates.start()
        assert len(asyncio.all_tasks()) == before
        assert [rates.messages.take("usr_ann", clock()) for _ in range(int(BURST))] == [0] * int(BURST)
        assert rates.messages.take("usr_ann", clock()) == 20

    run_virtual(scenario)


async def test_guesses_made_at_once_count() -> None:
    """Before any of them is known to be wrong, no more logins are tried than may fail."""
    clock = VirtualClock()
    rates = SharedRates(LocalEphemeral(clock), clock)
    tries = [await rates.login("ann", "203.0.113.1", nobody_knows) for _ in range(20)]
    assert [wait_ms for wait_ms, _ in tries].count(0) == FAILED_LOGINS.burst
    await rates.give_back(tries[0][1])
    assert (await rates.login("ann", "203.0.113.1", nobody_knows))[0] == 0
    assert (await rates.login("ann", "203.0.113.1", nobody_knows))[0] > 0


async def nobody_knows() -> bool:
    return False


def test_costs_are_counted_over_all_nodes() -> None:
    """Who has spent their budget on one node finds little of it on another."""

    async def scenario(clock: VirtualClock) -> None:
        _, (one, other) = shared_by(clock, 2)
        assert one.charge("usr_ann", COST_PER_USER.burst) == 0
        assert other.charge("usr_ann", 1) == 0
        await asyncio.sleep(2 * REPORT_SECONDS)
        assert other.charge("usr_ann", COST_PER_USER.burst / 2) > 0
        assert other.charge("usr_ben", COST_PER_USER.burst) == 0
        for node in (one, other):
            node.close()

    run_virtual(scenario)


async def test_chats_are_counted_over_all_nodes() -> None:
    """New chats are asked of the engine, so two nodes together allow what one would."""
    clock = VirtualClock()
    _, nodes = shared_by(clock, 2)
    waits_ms = [await node.new_chat("usr_ann", 1) for node in nodes for _ in range(60)]
    assert waits_ms.count(0) == NEW_CHATS_PER_USER.burst
    for node in nodes:
        node.close()


async def test_a_chat_that_has_to_wait_for_its_members_is_not_counted() -> None:
    """What is refused because of its members takes no chat from the allowance."""
    clock = VirtualClock()
    rates = SharedRates(LocalEphemeral(clock), clock)
    assert await rates.member_changes("usr_ann", int(MEMBER_CHANGES_PER_USER.burst)) == 0
    assert await rates.new_chat("usr_ann", 2) > 0
    waits_ms = [await rates.new_chat("usr_ann", 0) for _ in range(int(NEW_CHATS_PER_USER.burst))]
    assert set(waits_ms) == {0}


async def test_more_members_than_a_minute_allows_take_the_whole_minute() -> None:
    """A group of ten thousand can be made, and then nobody is added for a minute."""
    clock = VirtualClock()
    rates = SharedRates(LocalEphemeral(clock), clock)
    assert await rates.member_changes("usr_ann", 10_000) == 0
    assert await rates.member_changes("usr_ann", 600) == 60_000
