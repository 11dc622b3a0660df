"""What only an engine of its own can do while the server runs: lists of everything, repairs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from parley.store.ports import Engine

T = TypeVar("T")


class EngineBeside:
    """As a command beside the server: with an engine that is not opened, in a thread, so that what takes long
    holds up nobody. One question at a time: operators who ask again and again cost no more than one of them.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self._turn = asyncio.Lock()

    async def ask(self, question: Callable[[Engine], Awaitable[T]]) -> T:
        async with self._turn:
            return await asyncio.to_thread(asyncio.run, self._ask(question))

    async def _ask(self, question: Callable[[Engine], Awaitable[T]]) -> T:
        engine = self._make_engine()
        try:
            return await question(engine)
        finally:
            await engine.close()
