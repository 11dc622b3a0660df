"""Who is connected here, and telling the registry of it, which nobody who connects waits for.

What has changed is gathered while the registry is told of earlier changes, so a crowd that comes at once
costs few calls. Leases are renewed a part at a time. See docs/ephemeral.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import islice

from parley.ephemeral.ports import DEVICE_RENEW_SECONDS, Device, Registry

STEP_SECONDS = 5.0
"""How often leases that are due are renewed, and those that ran out are ended."""
DEVICES_PER_CALL_MAX = 1_000
CHANGES_WAITING_MAX = 50_000
"""Beyond it a device that came is told of with the next renewals, and one that went by its lease."""
LONG_AGO = float("-inf")
assert DEVICE_RENEW_SECONDS > STEP_SECONDS


class Lobby:
    """The devices that are connected to this node."""

    def __init__(self, registry: Registry, node_id: str) -> None:
        self._registry = registry
        self.node_id = node_id
        self._renewed_at: dict[Device, float] = {}
        """Of every device that is here; who is due first stands in front."""
        self._again: dict[Device, int] = {}
        """How many more connections a device has than one."""
        self._changed: dict[Device, None] = {}
        self._step_at = 0.0
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._end_watch = registry.on_return(self._renew_all)

    def arrived(self, user_id: str, device_id: str) -> None:
        """A connection of this device is here. To be called before the log is read for it."""
        device = user_id, device_id
        if device in self._renewed_at:
            self._again[device] = self._again.get(device, 0) + 1
        else:
            self._renewed_at[device] = asyncio.get_running_loop().time()
        self._note(device)

    def left(self, user_id: str, device_id: str) -> None:
        """One connection of it has ended."""
        device = user_id, device_id
        more = self._again.pop(device, 0)
        if more > 1:
            self._again[device] = more - 1
        elif not more and self._renewed_at.pop(device, None) is not None:
            self._note(device)

    def _note(self, device: Device) -> None:
        if len(self._changed) < CHANGES_WAITING_MAX:
            self._changed[device] = None
            self._woken.set()

    def _renew_all(self) -> None:
        """The registry may have forgotten everybody."""
        for device in self._renewed_at:
            self._renewed_at[device] = LONG_AGO
        self._step_at = LONG_AGO
        self._woken.set()

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Nobody is here any more, and the registry is told so."""
        self._end_watch()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        gone = {**self._renewed_at, **self._changed}
        self._renewed_at, self._again, self._changed = {}, {}, {}
        if gone:
            await self._registry.disconnected(gone, self.node_id)

    async def _work(self) -> None:
        """One task tells everything, so the registry hears it in the order in which it happened."""
        loop = asyncio.get_running_loop()
        self._step_at = loop.time() + STEP_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._step_at):
                    await self._woken.wait()
            self._woken.clear()
            await self._tell_changes()
            if loop.time() >= self._step_at:
                self._step_at = loop.time() + STEP_SECONDS
                await self._renew_due(loop.time())

    async def _tell_changes(self) -> None:
        while self._changed:
            some = list(islice(self._changed, DEVICES_PER_CALL_MAX))
            for device in some:
                del self._changed[device]
            came = [device for device in some if device in self._renewed_at]
            gone = [device for device in some if device not in self._renewed_at]
            if came:
                await self._registry.connected(came, self.node_id)
            if gone:
                await self._registry.disconnected(gone, self.node_id)
            await asyncio.sleep(0)

    async def _renew_due(self, now: float) -> None:
        """At least one call, even for nobody: it ends what has run out elsewhere."""
        while True:
            due = self._take_due(now)
            await self._registry.renew(due, self.node_id)
            if len(due) < DEVICES_PER_CALL_MAX:
                return
            await asyncio.sleep(0)

    def _take_due(self, now: float) -> list[Device]:
        """Those in front whose turn it is go to the back."""
        due: list[Device] = []
        for device, renewed_at in self._renewed_at.items():
            if renewed_at > now - DEVICE_RENEW_SECONDS + STEP_SECONDS or len(due) == DEVICES_PER_CALL_MAX:
                break
            due.append(device)
        for device in due:
            del self._renewed_at[device]
            self._renewed_at[device] = now
        return due
