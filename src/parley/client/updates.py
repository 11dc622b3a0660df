"""How an application hears that something it shows has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from parley.client.live import Update


class Updates:
    """A loop over what changes. Updates that nobody took yet are told once each, however slow the loop is."""

    def __init__(self, concerns: Callable[[Update], bool], check_open: Callable[[], None]) -> None:
        self._concerns = concerns
        self._check_open = check_open
        self._waiting: dict[Update, None] = {}
        self._changed = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        while not self._waiting:
            self._check_open()
            self._changed.clear()
            await self._changed.wait()
        update = next(iter(self._waiting))
        del self._waiting[update]
        return update

    def tell(self, update: Update) -> None:
        if self._concerns(update):
            self._waiting[update] = None
            self._changed.set()

    def end(self) -> None:
        """Nothing more will come: the loop raises why."""
        self._changed.set()
