"""Which devices are connected to this node, and their leases in the shared registry.

No connection waits for the registry. Changes are gathered while the registry is told of earlier ones, so a
crowd that connects at once costs few calls. A lease is renewed for a device that was heard, not for one that
merely has a socket here. See docs/ephemeral.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from itertools import islice

import structlog

from parley.ephemeral.attention import is_person, unattended
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, DEVICE_RENEW_SECONDS, Device, Presence, Registry
from parley.wire.limits import ATTENTION_SECONDS

STEP_SECONDS = 5.0
"""How often leases that ran out are ended, on whichever node they were."""
RENEWED_SECONDS_MIN = DEVICE_RENEW_SECONDS / 2
"""What is heard sooner after a renewal renews nothing; every heartbeat that comes in time does."""
DEVICES_PER_CALL_MAX = 1_000
CHANGES_WAITING_MAX = 50_000
"""Beyond it a device that came is told of when it is heard again, and one that went by its lease."""
assert RENEWED_SECONDS_MIN + DEVICE_RENEW_SECONDS + 2 * STEP_SECONDS < DEVICE_LEASE_SECONDS, (
    "heard just too soon to be renewed, and then not before the next heartbeat: the lease still holds"
)

log = structlog.get_logger("parley.lobby")


class DeviceLeases:
    """The devices that are connected to this node.

    `gone` is called with people who went offline by what this node told or found; of all nodes exactly one
    calls it for each of them.
    """

    def __init__(self, registry: Registry, node_id: str, gone: Callable[[list[Presence]], None]) -> None:
        self._registry = registry
        self.node_id = node_id
        self._gone = gone
        self._here: dict[Device, int] = {}
        """How many connections each device has; 1 for one that nobody looks at, under its other name."""
        self._glances: dict[str, tuple[Device, asyncio.TimerHandle]] = {}
        """The connections at which nobody looks, since a while or not yet that long."""
        self._unattended: dict[Device, set[str]] = {}
        """Of each device, the connections at which nobody has looked for long."""
        self._changed: dict[Device, None] = {}
        self._heard: dict[Device, None] = {}
        self._step_at = 0.0
        self._is_closing = False
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._end_watch = registry.on_return(self._renew_all)

    def arrived(self, user_id: str, device_id: str) -> None:
        """A connection of this device is here. To be called before the log is read for it."""
        device = user_id, device_id
        self._here[device] = self._here.get(device, 0) + 1
        self._note(device)
        self._settle(device)

    def heard(self, user_id: str, device_id: str) -> None:
        """It said something, `RENEWED_SECONDS_MIN` or more after what it was last renewed for."""
        device = user_id, device_id
        if device in self._here:
            self._heard[device] = None
            if (other := _other_name(device)) in self._here:
                self._heard[other] = None
            self._woken.set()

    def left(self, user_id: str, device_id: str, clean: bool) -> None:
        """One connection of it has ended.

        `clean`: it said so, and with its last connection the device is gone at once. Otherwise it may be on
        its way back: its lease runs out unless it is.
        """
        device = user_id, device_id
        connections = self._here.pop(device, 0)
        if connections > 1:
            self._here[device] = connections - 1
        elif connections:
            self._heard.pop(device, None)
            if clean:
                self._note(device)
            else:
                self._changed.pop(device, None)
        self._settle(device)

    def attention(self, connection_id: str, user_id: str, device_id: str, *, is_looking: bool) -> None:
        """Whether somebody looks at this connection of a device. At a new one somebody does."""
        device = user_id, device_id
        glance = self._glances.get(connection_id)
        if is_looking and glance is not None:
            del self._glances[connection_id]
            glance[1].cancel()
            self._unattended.get(device, set()).discard(connection_id)
            self._settle(device)
        elif not is_looking and glance is None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(ATTENTION_SECONDS, self._left_alone, connection_id, device)
            self._glances[connection_id] = device, timer

    def _left_alone(self, connection_id: str, device: Device) -> None:
        self._unattended.setdefault(device, set()).add(connection_id)
        self._settle(device)

    def _settle(self, device: Device) -> None:
        """Claim its other name while nobody looks at any of its connections here."""
        alone = self._unattended.get(device)
        if alone is None:
            return
        if not alone:
            del self._unattended[device]
        other, is_alone = _other_name(device), 0 < self._here.get(device, 0) <= len(alone)
        if is_alone and other not in self._here:
            self._here[other] = 1
            self._note(other)
        elif not is_alone and other in self._here:
            del self._here[other]
            self._heard.pop(other, None)
            self._note(other)

    def _note(self, device: Device) -> None:
        if len(self._changed) < CHANGES_WAITING_MAX:
            self._changed[device] = None
            self._woken.set()

    def _renew_all(self) -> None:
        """The registry may have forgotten everybody."""
        self._heard = dict.fromkeys(self._here)
        self._woken.set()

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """End the leases of all devices that are connected here."""
        self._end_watch()
        for _, timer in self._glances.values():
            timer.cancel()
        self._is_closing = True
        self._woken.set()
        if self._worker is not None:
            # It ends what it is about: its answer may say who goes offline by it.
            await asyncio.gather(self._worker, return_exceptions=True)
        gone = {**self._here, **self._changed}
        self._here, self._heard, self._changed = {}, {}, {}
        if gone:
            self._tell_gone(await self._registry.disconnected(gone, self.node_id))

    async def _work(self) -> None:
        """One task tells everything, so the registry hears it in the order in which it happened."""
        loop = asyncio.get_running_loop()
        self._step_at = loop.time() + STEP_SECONDS
        while not self._is_closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._step_at):
                    await self._woken.wait()
            self._woken.clear()
            await self._tell_changes()
            if self._heard or loop.time() >= self._step_at:
                self._step_at = loop.time() + STEP_SECONDS
                await self._renew_heard()

    async def _tell_changes(self) -> None:
        while self._changed and not self._is_closing:
            some = _taken(self._changed)
            came = [device for device in some if device in self._here]
            gone = [device for device in some if device not in self._here]
            if came:
                await self._registry.connected(came, self.node_id)
            if gone:
                self._tell_gone(await self._registry.disconnected(gone, self.node_id))
            await asyncio.sleep(0)

    async def _renew_heard(self) -> None:
        """At least one call, even without devices: it ends leases that have run out, here or elsewhere."""
        while not self._is_closing:
            some = _taken(self._heard)
            self._tell_gone(await self._registry.renew(some, self.node_id))
            if not self._heard:
                return
            await asyncio.sleep(0)

    def _tell_gone(self, gone: list[Presence]) -> None:
        gone = [presence for presence in gone if is_person(presence.user_id)]
        if not gone:
            return
        try:
            self._gone(gone)
        except Exception:  # a failing listener must not end the renewing of everybody's leases
            log.exception("devices that went offline were not noted")


def _other_name(device: Device) -> Device:
    """The name under which it is registered while nobody looks at it."""
    return unattended(device[0]), device[1]


def _taken(devices: dict[Device, None]) -> list[Device]:
    """Some of them, which are then no longer there."""
    some = list(islice(devices, DEVICES_PER_CALL_MAX))
    for device in some:
        del devices[device]
    return some
