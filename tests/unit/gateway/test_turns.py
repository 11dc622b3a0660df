"""Turns of the loop: what a client has used is counted, and others have theirs before it goes on."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from parley.gateway.turns import REPAID_SECONDS, REQUEST_SECONDS, SLICE_SECONDS, LoopShare, LoopTurns
from parley.telemetry import Tally

STEPS = 20


class Stopwatch:
    """Time that passes only when work is done."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def make() -> tuple[LoopTurns, Stopwatch]:
    watch = Stopwatch()
    return LoopTurns(Tally(), watch), watch


async def work(watch: Stopwatch, done: Callable[[], None], seconds: float = SLICE_SECONDS) -> str:
    """So much, in steps between which it offers to give way."""
    for _ in range(STEPS):
        watch.seconds += seconds
        done()
        await asyncio.sleep(0)
    return "done"


async def test_two_clients_that_want_everything_get_the_same() -> None:
    """Of two that work without end, none is ever more than a few slices ahead."""
    turns, watch = make()
    done = [0, 0]
    ahead = []

    def count(number: int) -> None:
        done[number] += 1
        if max(done) < STEPS:
            ahead.append(abs(done[0] - done[1]))

    await asyncio.gather(*(turns.metered(LoopShare(), work(watch, partial(count, n))) for n in range(2)))
    assert (done, max(ahead) <= 3) == ([STEPS, STEPS], True)


async def test_who_works_little_passes_those_who_work_much() -> None:
    """While a client repays what it used, others have many turns."""
    turns, watch = make()
    heavy = asyncio.ensure_future(turns.metered(LoopShare(), work(watch, lambda: None)))
    counted = 0
    while not heavy.done():
        await asyncio.sleep(0)
        counted += 1
    assert counted >= (STEPS - 1) * SLICE_SECONDS / REPAID_SECONDS


async def test_a_turn_repays_once_whoever_begins_while_it_ends() -> None:
    """A client that goes on works at once, while others wait: its work does not end the turn again."""
    turns, _ = make()
    shares = [LoopShare() for _ in range(3)]

    def go_on(share: LoopShare) -> None:
        turns.begin(share)
        share.spent += SLICE_SECONDS
        turns.wait(share, partial(go_on, share))

    for share in shares:
        go_on(share)
    for _ in range(STEPS * len(shares)):
        number, front = turns.number, sum(share.spent for share in shares)
        await asyncio.sleep(0)
        repaid = front - sum(share.spent for share in shares)
        assert (turns.number - number, repaid <= REPAID_SECONDS * 1.001) == (1, True)


async def test_a_pause_of_the_process_is_not_on_a_clients_account() -> None:
    """A frame during which the machine stood still for a second costs its client no more than one slice."""
    turns, watch = make()
    share = LoopShare()
    began = turns.now()
    watch.seconds += 1.0
    turns.charge(share, began)
    assert SLICE_SECONDS < share.spent < 2 * SLICE_SECONDS


async def test_many_requests_of_one_client_at_once_wait_for_each_other() -> None:
    """Those that fit into its slice begin in one turn, the others later; another client does not wait."""
    turns, _ = make()
    share, entered = LoopShare(), []
    at_once = int(SLICE_SECONDS / REQUEST_SECONDS)

    async def request(client: LoopShare, name: str) -> None:
        await turns.enter(client, REQUEST_SECONDS)
        entered.append(name)

    requests = [asyncio.ensure_future(request(share, "flood")) for _ in range(at_once * 3)]
    other = asyncio.ensure_future(request(LoopShare(), "other"))
    await asyncio.sleep(0)
    assert entered == ["flood"] * at_once + ["other"]
    await asyncio.gather(*requests, other)
    assert entered == ["flood"] * at_once + ["other"] + ["flood"] * at_once * 2


async def test_work_that_fits_its_slice_never_waits() -> None:
    """An offer to give way is not taken while there is time left: it ends in the turn in which it began."""
    turns, watch = make()
    turns_before = turns.number
    assert await turns.metered(LoopShare(), work(watch, lambda: None, SLICE_SECONDS / STEPS / 2)) == "done"
    assert turns.number == turns_before


async def test_connections_of_one_client_share_its_turns() -> None:
    """Ten at work for one client get together as much as the one of another."""
    turns, watch = make()
    done = [0, 0]
    ten, alone = LoopShare(), LoopShare()

    def count(number: int) -> None:
        done[number] += 1

    many = [asyncio.ensure_future(turns.metered(ten, work(watch, lambda: count(0)))) for _ in range(10)]
    await turns.metered(alone, work(watch, lambda: count(1)))
    assert done[0] <= 2 * done[1] + 10
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)


async def test_metered_work_is_cancelled_where_it_waits() -> None:
    """A cancellation reaches the work itself, which may clean up."""
    turns, _ = make()
    cleaned = []

    async def wait_for_ever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    task = asyncio.ensure_future(turns.metered(LoopShare(), wait_for_ever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


async def test_an_error_of_metered_work_is_the_callers() -> None:
    """What the work raises is raised where it is awaited."""
    turns, _ = make()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await turns.metered(LoopShare(), fail())


async def test_what_a_client_owes_makes_it_wait_when_it_begins_something() -> None:
    """What was done for it unasked counts once, and not before it wants something again."""
    turns, watch = make()
    share = LoopShare()
    began = turns.now()
    watch.seconds += 2 * SLICE_SECONDS
    turns.owe(share, began)
    assert share.spent == 0.0
    entering = asyncio.create_task(turns.enter(share, REQUEST_SECONDS))
    await asyncio.sleep(0)
    assert share.waiting
    await entering
    assert share.owed == 0.0
