"""Listening to channels for as long as there is somebody to hear."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from redis.asyncio.client import PubSub

from parley.ephemeral.redis.link import CALL_SECONDS_MAX, Link

RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 2.0
QUIET_SECONDS_MAX = 5.0
"""After so much silence Redis is asked whether it is there."""


class Channels:
    """All over one connection. The first to notice that Redis is gone, or was: it always waits for it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._heard: dict[bytes, Callable[[bytes], None]] = {}
        self._retry_seconds = RETRY_SECONDS_MIN
        self._task: asyncio.Task[None] | None = None
        self.is_listening = False

    def hear(self, name: str, heard: Callable[[bytes], None]) -> None:
        """Once it has started, `heard` is called with whatever is said there."""
        self._heard[name.encode()] = heard

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen_always())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _listen_always(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # whatever it is, it is tried again
                self._link.lost(error)
            finally:
                self.is_listening = False
            await asyncio.sleep(self._retry_seconds)
            self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    async def _listen(self) -> None:
        """Until the connection fails."""
        async with self._link.listening.pubsub() as pubsub:
            await pubsub.subscribe(*self._heard)
            for _ in self._heard:
                await self._next(pubsub)
            self._retry_seconds = RETRY_SECONDS_MIN
            self.is_listening = True
            self._link.worked()
            while True:
                message = await pubsub.get_message(timeout=QUIET_SECONDS_MAX)
                if message is None:
                    await pubsub.ping()
                    message = await self._next(pubsub)
                self._pass_on(message)

    async def _next(self, pubsub: PubSub) -> dict[str, Any]:
        """Whatever comes, be it the answer to what was just asked; TimeoutError if nothing does."""
        message: dict[str, Any] | None = await pubsub.get_message(timeout=CALL_SECONDS_MAX)
        if message is None:
            raise TimeoutError("redis does not answer")
        return message

    def _pass_on(self, message: dict[str, Any]) -> None:
        if message["type"] == "message":
            self._heard[message["channel"]](message["data"])
