"""Which devices of a person are known, and which of them end when there are too many. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from parley.model import PersonDevices
from parley.wire.limits import DEVICES_MAX

USED_EVERY_MS = 24 * 60 * 60 * 1_000
"""How exact it is known when a device was last used: a device that comes every hour is written once a day."""


def with_device(known: PersonDevices, device_id: str, now_ms: int) -> tuple[PersonDevices, list[str]]:
    """The list with a device that is used now, and the devices that end by it: the longest unused ones."""
    used_ms = known.devices.get(device_id)
    if used_ms is not None and now_ms - used_ms < USED_EVERY_MS:
        return known, []
    devices = {**known.devices, device_id: now_ms}
    others = sorted((one for one in devices if one != device_id), key=lambda one: (devices[one], one))
    ended = others[: max(0, len(devices) - DEVICES_MAX)]
    left = {one: used_ms for one, used_ms in devices.items() if one not in ended}
    return replace(known, devices=left), ended
