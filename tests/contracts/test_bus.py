"""The `Bus` port: news reaches every listener, in the order of the commits."""

from collections.abc import Callable

import pytest

from parley.bus.embedded import EmbeddedBus
from parley.bus.ports import Bus
from parley.model import Head, Persisted, Stored

BUSES: dict[str, Callable[[], Bus]] = {"embedded": EmbeddedBus}


@pytest.fixture(params=BUSES)
def bus(request: pytest.FixtureRequest) -> Bus:
    return BUSES[request.param]()


class Ear:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def persisted(self, news: list[Persisted]) -> None:
        self.heard += news

    def joined(self, chat_id: str, head: Head, user_ids: list[str]) -> None:
        self.heard.append((chat_id, head, user_ids))

    def sessions_ended(self, session_ids: list[str]) -> None:
        self.heard.append(session_ids)


def news(chat_id: str, *positions: int) -> Persisted:
    return Persisted(chat_id, 1, [Stored(position, b"{}") for position in positions])


def test_every_listener_hears_everything_in_order(bus: Bus) -> None:
    """Commits, new chats and ended sessions come to all listeners in the order they were published."""
    one, two = Ear(), Ear()
    bus.subscribe(one)
    bus.subscribe(two)
    bus.publish([news("a", 1, 2), news("b", 1)])
    bus.publish_joined("c", Head(1, 0), ["ann"])
    bus.publish([news("a", 3)])
    bus.publish_sessions_ended(["ses_1"])
    expected = [news("a", 1, 2), news("b", 1), ("c", Head(1, 0), ["ann"]), news("a", 3), ["ses_1"]]
    assert one.heard == expected
    assert two.heard == expected


def test_a_listener_hears_what_comes_after_it_subscribed(bus: Bus) -> None:
    """Nothing from before is told."""
    ear = Ear()
    bus.publish([news("a", 1)])
    bus.subscribe(ear)
    bus.publish([news("a", 2)])
    assert ear.heard == [news("a", 2)]


def test_who_has_gone_hears_nothing_more(bus: Bus) -> None:
    """Ending a subscription ends it for that listener alone."""
    one, two = Ear(), Ear()
    leave = bus.subscribe(one)
    bus.subscribe(two)
    leave()
    bus.publish([news("a", 1)])
    assert (one.heard, two.heard) == ([], [news("a", 1)])


def test_a_bus_without_listeners_takes_news(bus: Bus) -> None:
    """Publishing to nobody is no fault."""
    bus.publish([news("a", 1)])
    ear = Ear()
    bus.subscribe(ear)
    assert ear.heard == []
