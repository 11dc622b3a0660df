"""Every state of the routing protocol: none loses an entry, and each step of its order is needed."""

import pytest

from tests.unit.cluster.routing_model import Protocol, explore

CHANGES = {
    "the head is read before the interest is registered": Protocol(registers_first=False),
    "a renewal sets again what was gone": Protocol(notices_loss=False),
    "the interest is looked up before the event is read": Protocol(looks_up_afterwards=False),
    "the offset is committed before the node confirmed": Protocol(waits_for_confirmation=False),
}


def test_no_state_loses_an_entry() -> None:
    """Whatever is forgotten, dies or does not confirm: when nothing more happens the node has every entry."""
    count, lost = explore(Protocol())
    assert lost == []
    assert count > 1_000


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_alone_loses_one(change: str) -> None:
    """A model that cannot fail would prove nothing: each of these breaks the promise somewhere."""
    assert explore(CHANGES[change])[1]
