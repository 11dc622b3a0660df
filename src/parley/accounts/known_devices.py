"""The devices of each person: at most `DEVICES_MAX`, so that rows of positions do not grow without bound.

A device is whatever id a client names in `hello`. When there are too many, the longest unused one ends: its
positions go, and its next sync starts from what the device itself knows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import structlog

from parley.clock import Clock
from parley.core.known_devices import USED_EVERY_MS, with_device
from parley.errors import StoreError
from parley.model import PersonDevices
from parley.records.book import Book
from parley.store.ports import Cursors

REMEMBERED_MAX = 100_000
WAITING_MAX = 10_000
"""Beyond it a device is noted when it connects again."""

log = structlog.get_logger("parley.accounts")

PersonDevice = tuple[str, str]


class KnownDevices:
    """No connection waits for it: one task notes the devices that came."""

    def __init__(self, lists: Book[PersonDevices], cursors: Cursors, clock: Clock) -> None:
        self._lists = lists
        self._cursors = cursors
        self._clock = clock
        self._noted: OrderedDict[PersonDevice, int] = OrderedDict()
        """When each was noted on this node."""
        self._waiting: OrderedDict[PersonDevice, None] = OrderedDict()
        self._worker: asyncio.Task[None] | None = None

    def arrived(self, user_id: str, device_id: str) -> None:
        """A connection of this device is here."""
        device = user_id, device_id
        if self._clock() - self._noted.get(device, -USED_EVERY_MS) < USED_EVERY_MS:
            return
        if len(self._waiting) < WAITING_MAX:
            self._waiting[device] = None
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            (user_id, device_id), _ = self._waiting.popitem(last=False)
            try:
                await self.note(user_id, device_id)
            except StoreError as error:
                log.info("a device was not noted; it is when it comes again", reason=str(error))

    async def note(self, user_id: str, device_id: str) -> None:
        """Durable before it returns. The positions of devices that end go first, lest a crash leaves them."""
        now_ms = self._clock()
        while True:
            known = await self._lists.get(user_id) or await self._lists.add(PersonDevices(user_id, {}))
            changed, ended = with_device(known, device_id, now_ms)
            for one in ended:
                await self._cursors.forget_device(user_id, one)
            if changed == known or await self._lists.swap(known, changed):
                break
        for one in ended:
            self._noted.pop((user_id, one), None)
        self._noted[user_id, device_id] = now_ms
        self._noted.move_to_end((user_id, device_id))
        if len(self._noted) > REMEMBERED_MAX:
            self._noted.popitem(last=False)

    async def close(self) -> None:
        """What was not noted is noted when it comes again."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
