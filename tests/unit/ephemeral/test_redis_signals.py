"""Signals over Redis: few messages, bounded memory, and nobody who waits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from parley.ephemeral.redis import signals as signals_module
from parley.ephemeral.redis.signals import Bundle, RedisSignals, decode_bundle, encode_bundle
from parley.testing.clock import VirtualClock, run_virtual

CALL_SECONDS = 0.01


class SlowLink:
    """A Redis that takes its time, and keeps what was published."""

    def __init__(self) -> None:
        self.client = self
        self.bundles: list[Bundle] = []
        self.is_away = False

    async def call(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(CALL_SECONDS)
        return None if self.is_away else await ask()

    async def publish(self, channel: str, data: bytes) -> int:
        assert channel == "test:signals_channel"
        self.bundles.append(decode_bundle(data))
        return 1


class Channels:
    """Whatever is said here is heard."""

    def __init__(self) -> None:
        self.say: Callable[[bytes], None] = lambda _: None

    def hear(self, name: str, heard: Callable[[bytes], None]) -> None:
        self.say = heard


class World:
    def __init__(self) -> None:
        self.link, self.channels = SlowLink(), Channels()
        self.signals = RedisSignals(self.link, self.channels, "test:")  # type: ignore[arg-type]
        self.heard: list[bytes] = []
        self.signals.hear(self.heard.append)

    def tell(self, *signals: bytes) -> None:
        for signal in signals:
            self.signals.tell(signal)

    @property
    def published(self) -> list[list[bytes]]:
        return [bundle.signals for bundle in self.link.bundles]


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        await scenario(World())

    run_virtual(run)


def test_what_is_told_at_once_travels_together() -> None:
    """One message holds what was told in one turn, the next what was told while it was on its way."""

    async def scenario(world: World) -> None:
        world.tell(b"a", b"b")
        await asyncio.sleep(CALL_SECONDS / 2)
        world.tell(b"c")
        world.tell(b"d")
        await asyncio.sleep(1)
        world.tell(b"e")
        await asyncio.sleep(1)
        assert world.published == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
        assert world.heard == [b"a", b"b", b"c", b"d", b"e"]

    in_world(scenario)


def test_a_message_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither too many nor too long: the rest comes with the next, and one that is too long alone."""
    monkeypatch.setattr(signals_module, "SIGNALS_PER_MESSAGE_MAX", 2)
    monkeypatch.setattr(signals_module, "MESSAGE_BYTES_MAX", 10)

    async def scenario(world: World) -> None:
        world.tell(b"1", b"2", b"3", b"12345678", b"12345678901234", b"4")
        await asyncio.sleep(1)
        assert world.published == [[b"1", b"2"], [b"3", b"12345678"], [b"12345678901234"], [b"4"]]

    in_world(scenario)


@pytest.mark.parametrize("bound", ["SIGNALS_WAITING_MAX", "WAITING_BYTES_MAX"])
def test_the_oldest_are_dropped_when_redis_is_slow(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """What waits is bounded in number and size; those on this node have heard it all the same."""
    monkeypatch.setattr(signals_module, bound, 3)

    async def scenario(world: World) -> None:
        world.tell(b"1", b"2", b"3", b"4", b"5")
        await asyncio.sleep(1)
        assert world.published == [[b"3", b"4", b"5"]]
        assert world.signals.dropped == 2
        assert world.heard == [b"1", b"2", b"3", b"4", b"5"]

    in_world(scenario)


def test_what_redis_does_not_take_is_dropped() -> None:
    """It is counted, not kept for later, and what is told afterwards travels again."""

    async def scenario(world: World) -> None:
        world.link.is_away = True
        world.tell(b"1", b"2")
        await asyncio.sleep(1)
        world.link.is_away = False
        world.tell(b"3")
        await asyncio.sleep(1)
        assert (world.published, world.signals.dropped) == ([[b"3"]], 2)

    in_world(scenario)


def test_nobody_hears_themself_again() -> None:
    """What comes back from the channel is passed over, what others told is heard."""

    async def scenario(world: World) -> None:
        world.tell(b"mine")
        await asyncio.sleep(1)
        (mine,) = world.link.bundles
        world.channels.say(encode_bundle(mine))
        world.channels.say(encode_bundle(Bundle("other", [b"theirs", b"more"])))
        world.channels.say(b"nonsense")
        assert world.heard == [b"mine", b"theirs", b"more"]

    in_world(scenario)


def test_closing_waits_for_nothing() -> None:
    """What was not sent yet is not sent any more."""

    async def scenario(world: World) -> None:
        world.tell(b"1")
        await world.signals.close()
        await asyncio.sleep(1)
        assert world.published == []

    in_world(scenario)
