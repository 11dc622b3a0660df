"""A memory of the store that forgets in time."""

import asyncio
from collections.abc import Sequence

from parley.people.caches import EXPIRES_MS, ReadCache
from tests.harness.clock import VirtualClock


class Source:
    """What is read, and how often."""

    def __init__(self) -> None:
        self.values = {"a": 1, "b": 2}
        self.reads: list[list[str]] = []
        self.held: asyncio.Event | None = None

    async def read(self, keys: Sequence[str]) -> dict[str, int]:
        self.reads.append(list(keys))
        found = {key: self.values[key] for key in keys if key in self.values}
        if self.held is not None:
            await self.held.wait()
        return found


async def test_what_is_known_is_not_read_again() -> None:
    """Only what is unknown is read, together, and what does not exist is left out."""
    source = Source()
    memory = ReadCache[int](source.read, VirtualClock())
    assert await memory.get(["a"]) == {"a": 1}
    assert await memory.get(["a", "b", "c"]) == {"a": 1, "b": 2}
    assert source.reads == [["a"], ["b", "c"]]
    assert (memory.known("a"), memory.known("c")) == (1, None)


async def test_what_changed_is_read_again() -> None:
    """Whatever is forgotten, because it changed or because tellings were lost, is read anew."""
    source = Source()
    memory = ReadCache[int](source.read, VirtualClock())
    await memory.get(["a", "b"])
    source.values = {"a": 10, "b": 20}
    memory.forget("a")
    assert await memory.get(["a", "b"]) == {"a": 10, "b": 2}
    memory.forget_all()
    assert await memory.one("b") == 20


async def test_nothing_is_believed_for_long() -> None:
    """If the telling of a change was lost, the old value ends by itself."""
    source, clock = Source(), VirtualClock()
    memory = ReadCache[int](source.read, clock)
    await memory.get(["a"])
    source.values["a"] = 10
    clock.advance(EXPIRES_MS - 1)
    assert await memory.one("a") == 1
    clock.advance(1)
    assert await memory.one("a") == 10


async def test_what_was_read_before_a_change_is_not_remembered_after() -> None:
    """A read that is under way when something changes may bring the old value: it is used once, not kept."""
    source = Source()
    memory = ReadCache[int](source.read, VirtualClock())
    source.held = asyncio.Event()
    reading = asyncio.create_task(memory.one("a"))
    await asyncio.sleep(0)
    source.values["a"] = 10
    memory.forget("a")
    source.held.set()
    assert await reading == 1
    assert await memory.one("a") == 10


async def test_memory_is_bounded() -> None:
    """The oldest goes when there are too many."""
    source = Source()
    source.values = {str(number): number for number in range(10)}
    memory = ReadCache[int](source.read, VirtualClock(), entries_max=3)
    await memory.get(list(source.values))
    assert [memory.known(str(number)) for number in range(10)] == [None] * 7 + [7, 8, 9]
