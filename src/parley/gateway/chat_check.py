"""Checks one chat for an operator while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from parley.archive.tiers import archived_rows
from parley.checks.check import check
from parley.errors import BUSY, TOO_LARGE, Refused
from parley.store.invariants import Findings, Progress
from parley.store.ports import Engine

CHECK_SECONDS_MAX = 4.0
TOO_LONG = TOO_LARGE.because("checking this chat takes longer than a request may; run: parley check CHAT")


class ChatChecker:
    """As `parley check` does it: with an engine of its own, in a thread, so that a long log holds up nobody.

    One at a time, so that operators who ask again and again cost no more than one of them.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self._is_checking = asyncio.Lock()

    async def check(self, chat_id: str) -> Findings:
        """What is found; no chat if there is none. Refused while another check runs, and if it takes long."""
        if self._is_checking.locked():
            raise Refused(BUSY)
        async with self._is_checking:
            return await asyncio.to_thread(asyncio.run, self._check(chat_id))

    async def _check(self, chat_id: str) -> Findings:
        time = asyncio.get_running_loop().time
        give_up_at = time() + CHECK_SECONDS_MAX

        def go_on(_: Progress) -> None:
            if time() > give_up_at:
                raise Refused(TOO_LONG)

        engine = self._make_engine()
        try:
            return await check(engine, [chat_id], go_on, whole=False, archived=archived_rows(engine))
        finally:
            await engine.close()
