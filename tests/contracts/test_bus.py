"""The `Bus` port: news reaches every listener, in the order of each chat's commits, wherever it listens."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from parley.model import Head, Persisted
from tests.contracts.buses import BUSES, Places, sequences
from tests.waiting import eventually

Open = Callable[[], AbstractAsyncContextManager[Places]]


@pytest.fixture(params=BUSES)
def opened(request: pytest.FixtureRequest) -> Open:
    return BUSES[request.param]


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

    def wires(self) -> list[bytes | None]:
        news = [item for item in self.heard if isinstance(item, Persisted)]
        return [stored.wire for item in news for stored in item.positions]


async def test_listeners_beside_the_publisher_hear_everything_at_once(opened: Open) -> None:
    """Commits, new chats and ended sessions come to all listeners in the order they were published."""
    async with opened() as places:
        one, two = Ear(), Ear()
        places.here.subscribe(one)
        places.here.subscribe(two)
        first, second = places.log.store("a", 1, 2), places.log.store("b", 1)
        third = places.log.store("a", 3)
        places.here.publish([first, second])
        places.here.publish_joined("c", Head(1, 0), ["ann"])
        places.here.publish([third])
        places.here.publish_sessions_ended(["ses_1"])
        expected = [first, second, ("c", Head(1, 0), ["ann"]), third, ["ses_1"]]
        assert one.heard == expected
        assert two.heard == expected


async def test_listeners_elsewhere_hear_the_same_bytes_in_order(opened: Open) -> None:
    """Each chat's entries and voids arrive as they were published, byte for byte and ascending."""
    async with opened() as places:
        ear = Ear()
        places.there.subscribe(ear)
        published: list[bytes | None] = []
        for sequence in range(1, 101):
            news = places.log.store("a", sequence, content=f"äöü \x00 {sequence}", void=sequence % 10 == 0)
            published += [stored.wire for stored in news.positions]
            places.here.publish([news])
        places.here.publish_joined("c", Head(1, 0), ["ann"])
        places.here.publish_sessions_ended(["ses_1"])
        await eventually(lambda: len(sequences(ear.heard, "a")) == 100)
        assert sequences(ear.heard, "a") == list(range(1, 101))
        assert ear.wires() == published
        assert ("c", Head(1, 0), ["ann"]) in ear.heard
        assert ["ses_1"] in ear.heard


async def test_nobody_hears_anything_twice(opened: Open) -> None:
    """What a listener was told beside the publisher does not come back to it over the bus."""
    async with opened() as places:
        here, there = Ear(), Ear()
        places.here.subscribe(here)
        places.there.subscribe(there)
        for sequence in range(1, 11):
            places.here.publish([places.log.store("a", sequence)])
        await eventually(lambda: len(sequences(there.heard, "a")) == 10)
        places.there.publish([places.log.store("b", 1)])
        await eventually(lambda: sequences(here.heard, "b") == [1])
        assert sequences(here.heard, "a") == list(range(1, 11))


async def test_a_listener_hears_what_comes_after_it_subscribed(opened: Open) -> None:
    """Nothing from before is told."""
    async with opened() as places:
        early, late = Ear(), Ear()
        places.there.subscribe(early)
        places.here.publish([places.log.store("a", 1)])
        await eventually(lambda: bool(early.heard))
        places.there.subscribe(late)
        places.here.publish([places.log.store("a", 2)])
        await eventually(lambda: sequences(early.heard, "a") == [1, 2])
        assert sequences(late.heard, "a") == [2]


async def test_who_has_gone_hears_nothing_more(opened: Open) -> None:
    """Ending a subscription ends it for that listener alone."""
    async with opened() as places:
        one, two = Ear(), Ear()
        leave = places.there.subscribe(one)
        places.there.subscribe(two)
        leave()
        places.here.publish([places.log.store("a", 1)])
        await eventually(lambda: sequences(two.heard, "a") == [1])
        assert one.heard == []


async def test_a_bus_without_listeners_takes_news(opened: Open) -> None:
    """Publishing to nobody is no fault."""
    async with opened() as places:
        places.here.publish([places.log.store("a", 1)])
        ear = Ear()
        places.here.subscribe(ear)
        assert ear.heard == []
