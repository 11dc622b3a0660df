"""Sequence Services as processes: any of them may die or stop at any moment."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley.store.ports import Allocator
from tests.contracts.allocators import new_chat, remote_at
from tests.services import redis_url
from tests.tidy.repository import ROOT
from tests.waiting import eventually

MODULE = "tests.integration.sequencing.sequencer_process"
TAKERS = 10


class Service:
    """One instance and its address."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"


@asynccontextmanager
async def a_service() -> AsyncIterator[Service]:
    url = await asyncio.to_thread(redis_url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield Service(process, int(await process.stdout.readline()))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def under_load(allocator: Allocator) -> AsyncIterator[list[int]]:
    """Numbers that several senders take all the time; none of them may fail."""
    chat, given, enough = new_chat(), list[int](), asyncio.Event()
    await allocator.create(chat)

    async def take() -> None:
        while not enough.is_set():
            number = await allocator.allocate(chat, 1, max(given, default=0))
            given.append(number)

    takers = [asyncio.create_task(take()) for _ in range(TAKERS)]
    yield given
    enough.set()
    await asyncio.gather(*takers)


async def more(given: list[int]) -> None:
    enough = len(given) + 200
    await eventually(lambda: len(given) >= enough)


async def test_a_killed_instance_takes_no_sender_with_it() -> None:
    """kill -9 of one of two instances under load fails nobody, and no number comes twice."""
    async with (
        a_service() as doomed,
        a_service() as staying,
        remote_at(doomed.url, staying.url, answer_seconds=10) as allocator,
        under_load(allocator) as given,
    ):
        await more(given)
        doomed.process.kill()
        await doomed.process.wait()
        await more(given)
    assert len(set(given)) == len(given)


async def test_an_instance_that_hangs_is_passed_over() -> None:
    """An instance that is stopped, answers too late and goes on later, costs time and numbers only."""
    async with (
        a_service() as hanging,
        a_service() as staying,
        remote_at(hanging.url, staying.url, answer_seconds=1) as allocator,
        under_load(allocator) as given,
    ):
        await more(given)
        hanging.process.send_signal(signal.SIGSTOP)
        await more(given)
        hanging.process.send_signal(signal.SIGCONT)
        await more(given)
    assert len(set(given)) == len(given)
