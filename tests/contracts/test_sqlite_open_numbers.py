"""Several numbers of one chat open at once: nobody reads, or starts to listen, past the first of them."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest

from parley.gateway.subscribers import LiveChat
from parley.model import Scope
from parley.wire.codec import JSON, Codec
from parley.wire.codes import Close
from tests.contracts.acting import (
    add_group,
    add_people,
    head_of,
    listed,
    message,
    position_of,
    read_all,
    stored,
)
from tests.contracts.engines import SqliteEngine, SqliteOpenStore
from tests.fakes import hub_over
from tests.waiting import eventually


class Gates:
    """Keeps every batch that has taken its numbers, each at a gate of its own, until that is opened."""

    def __init__(self, count: int) -> None:
        self._closed = count
        self.opened: list[asyncio.Event] = []

    def __call__(self, label: str) -> Awaitable[bool] | None:
        if label != "after_allocate" or len(self.opened) == self._closed:
            return None
        self.opened.append(asyncio.Event())
        return self.opened[-1].wait()

    async def reached(self, count: int) -> None:
        await eventually(lambda: len(self.opened) == count)


class Ear:
    """A connection that remembers the positions it was sent."""

    def __init__(self, user_id: str) -> None:
        self.user_id, self.session_id, self.live = user_id, "ses_1", True
        self.device_id, self.heard_from_ms = "phone", 0
        self.scopes: frozenset[Scope] | None = None
        self.codec: Codec = JSON
        self.chats: dict[str, LiveChat] = {}
        self.heard: list[int] = []

    def offer(self, data: bytes) -> None:
        frame = msgspec.json.decode(data[data.index(b"{") :])
        self.heard += [entry["sequence"] for entry in frame["entries"]]

    def close(self, close: Close) -> None:
        raise AssertionError(close)

    async def verify(self) -> None:
        """Its session never ends."""


@pytest.fixture
def two_phase(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine("two_phase", tmp_path)


async def with_two_open(store: SqliteOpenStore, gates: Gates) -> tuple[str, str, list[asyncio.Task[object]]]:
    """A person's chat in which 1 and 2 are taken and wait, and 3 is written."""
    (ann,) = await add_people(store, "ann")
    chat = await add_group(store, ann)
    slow: list[asyncio.Task[object]] = []
    for number in (1, 2):
        slow.append(asyncio.create_task(stored(store, message(chat, ann, f"{number}"))))
        await gates.reached(number)
    assert (await stored(store, message(chat, ann, "3"))).sequence == 3
    return ann, chat, slow


async def test_the_head_is_before_the_first_of_several_open_numbers(two_phase: SqliteEngine) -> None:
    """The lowest open number ends the log for every reader; as it is written, the head moves to the next."""
    gates = Gates(2)
    async with two_phase.opened(fault_point=gates) as store:
        ann, chat, slow = await with_two_open(store, gates)
        heads = [(await head_of(store, chat), (await position_of(store, ann, chat)).head)]
        assert await read_all(store, chat) == []
        for gate, task in zip(gates.opened, slow, strict=True):
            gate.set()
            await task
            heads.append((await head_of(store, chat), (await position_of(store, ann, chat)).head))
        assert heads == [(0, 0), (1, 1), (3, 3)]


async def test_the_second_of_two_open_numbers_moves_no_head(two_phase: SqliteEngine) -> None:
    """What is written above a number that is still open is not read before it."""
    gates = Gates(2)
    async with two_phase.opened(fault_point=gates) as store:
        _, chat, slow = await with_two_open(store, gates)
        gates.opened[1].set()
        await slow[1]
        assert (await head_of(store, chat), await read_all(store, chat)) == (0, [])
        gates.opened[0].set()
        await slow[0]
        assert await head_of(store, chat) == 3


async def test_a_device_that_subscribes_meanwhile_misses_nothing(two_phase: SqliteEngine) -> None:
    """Who starts to listen while two numbers are open hears both of them, and what is above, in order."""
    gates = Gates(2)
    async with two_phase.opened(fault_point=gates) as store:
        ann, chat, slow = await with_two_open(store, gates)
        hub, ear = hub_over(store.log, store.directory, store.metrics), Ear(ann)
        await hub.subscribe(ear)
        for gate in gates.opened:
            gate.set()
        await asyncio.gather(*slow)
        await hub.check_heads()
        await eventually(lambda: len(ear.heard) == 3, seconds=5)
        await hub.close()
        assert (ear.heard, chat in ear.chats) == ([1, 2, 3], True)


async def test_a_number_that_is_written_after_an_overview_is_a_change(two_phase: SqliteEngine) -> None:
    """Taking a number is one change and writing it another: who asked in between is told of it next time."""
    gates = Gates(1)
    async with two_phase.opened(fault_point=gates) as store:
        (ann,) = await add_people(store, "ann")
        chat = await add_group(store, ann)
        slow = asyncio.create_task(stored(store, message(chat, ann, "slow")))
        await gates.reached(1)
        _, token = await listed(store, ann, None)
        gates.opened[0].set()
        await slow
        assert (await listed(store, ann, token))[0] == [chat]
