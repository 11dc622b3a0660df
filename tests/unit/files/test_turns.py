"""Turns of people: few at once, one of a person, and nobody waits for all of somebody else's."""

import asyncio

import pytest

from parley.errors import Refused
from parley.files.turns import FairTurns


class Working:
    """Pieces of work that end when a test says so."""

    def __init__(self, at_once_max: int) -> None:
        self.turns = FairTurns(at_once_max)
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    def work(self, piece: str) -> asyncio.Task[None]:
        """The first letter is the person's."""
        self._ends[piece] = asyncio.Event()

        async def run() -> None:
            async with self.turns.turn(piece[0]):
                self.begun.append(piece)
                await self._ends[piece].wait()

        return asyncio.ensure_future(run())

    async def end(self, piece: str) -> None:
        self._ends[piece].set()
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_work_of_one_person_waits_for_itself() -> None:
    """Another person's begins at once; people who wait are served round about."""
    working = Working(2)
    tasks = [working.work(piece) for piece in ("a1", "a2", "a3", "b1", "b2", "c1")]
    await settle()
    assert working.begun == ["a1", "b1"]
    for ended, begins in (("a1", "c1"), ("c1", "a2"), ("b1", "b2"), ("a2", "a3")):
        await working.end(ended)
        assert working.begun[-1] == begins
    for piece in ("b2", "a3"):
        await working.end(piece)
    await asyncio.gather(*tasks)


async def test_who_gives_up_leaves_the_turn_to_others() -> None:
    """While waiting, in the moment in which the turn comes, and in the midst of it."""
    working = Working(1)
    held, waiting, third, fourth = (working.work(piece) for piece in ("a1", "b1", "c1", "d1"))
    await settle()
    waiting.cancel()
    await settle()
    held.cancel()
    await asyncio.sleep(0)
    third.cancel()  # its turn has come, and it has not run since
    await settle()
    assert working.begun == ["a1", "d1"]
    await working.end("d1")
    await fourth


async def test_nobody_waits_for_what_is_closed() -> None:
    """Who waits is refused, and who comes later."""
    working = Working(1)
    held, waiting = working.work("a1"), working.work("b1")
    await settle()
    working.turns.close()
    for refused in (waiting, working.work("c1")):
        with pytest.raises(Refused):
            await refused
    await working.end("a1")
    await held
