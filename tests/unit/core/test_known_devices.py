"""Which devices of a person are known."""

from parley.core.known_devices import USED_EVERY_MS, with_device
from parley.model import PersonDevices
from parley.wire.limits import DEVICES_MAX


def test_the_longest_unused_device_ends() -> None:
    """When there is one too many, and never the one that is used now."""
    full = PersonDevices("user_1", {f"d{n}": 10_000 - n for n in range(DEVICES_MAX)})
    changed, ended = with_device(full, "new", 0)
    assert ended == [f"d{DEVICES_MAX - 1}"]
    assert len(changed.devices) == DEVICES_MAX
    assert changed.devices["new"] == 0


def test_a_device_is_noted_once_a_day() -> None:
    """A list that says so already stays as it is."""
    known, _ = with_device(PersonDevices("user_1", {}), "d", 5)
    assert with_device(known, "d", 5 + USED_EVERY_MS - 1) == (known, [])
    later, _ = with_device(known, "d", 5 + USED_EVERY_MS)
    assert later.devices == {"d": 5 + USED_EVERY_MS}
