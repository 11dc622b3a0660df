"""Signals over Redis: few messages, bounded memory, and nobody who waits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from parley.core.cluster_keys import SIGNALS, TAG_BYTES
from parley.ephemeral.redis import signals as signals_module
from parley.ephemeral.redis.signals import (
    Bundle,
    RedisSignals,
    decode_bundle,
    decode_signal,
    encode_bundle,
    encode_signal,
)
from parley.ephemeral.signals import UserChangedSignal
from tests.fakes import KEYS
from tests.harness.clock import VirtualClock, run_virtual

CALL_SECONDS = 0.01
ENVELOPE_BYTES = len(encode_signal(UserChangedSignal("")))
"""Of each signal, beside the few letters that these tests tell apart."""


class SlowLink:
    """A Redis that takes its time, and keeps what was published."""

    def __init__(self) -> None:
        self.redis = self
        self.bundles: list[Bundle] = []
        self.is_away = False

    async def call(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(CALL_SECONDS)
        return None if self.is_away else await ask()

    async def publish(self, channel: str, data: bytes) -> int:
        assert channel == "test:signals_channel"
        self.bundles.append(decode_bundle(data[TAG_BYTES:]))
        return 1


class Channels:
    """Whatever is said here is heard."""

    def __init__(self) -> None:
        self.say: Callable[[bytes], None] = lambda _: None

    def subscribe(self, name: str, receive: Callable[[bytes], None]) -> None:
        self.say = receive


class World:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.link, self.channels = SlowLink(), Channels()
        self.signals = RedisSignals(self.link, self.channels, KEYS, clock, "test:")  # type: ignore[arg-type]
        self.heard: list[str] = []
        self.signals.subscribe(UserChangedSignal, lambda signal: self.heard.append(signal.user_id))

    def tell(self, *letters: str) -> None:
        for some in letters:
            self.signals.publish(UserChangedSignal(some))

    @property
    def published(self) -> list[list[str]]:
        return [[letters_in(data) for data in bundle.signals] for bundle in self.link.bundles]


def signed(bundle: Bundle) -> bytes:
    data = encode_bundle(bundle)
    return KEYS.ring(SIGNALS, "test:signals_channel").tag(data) + data


def letters_in(data: bytes) -> str:
    signal = decode_signal(data)
    assert isinstance(signal, UserChangedSignal)
    return signal.user_id


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        await scenario(World(clock))

    run_virtual(run)


def test_what_is_told_at_once_travels_together() -> None:
    """One message holds what was told in one turn, the next what was told while it was on its way."""

    async def scenario(world: World) -> None:
        world.tell("a", "b")
        await asyncio.sleep(CALL_SECONDS / 2)
        world.tell("c")
        world.tell("d")
        await asyncio.sleep(1)
        world.tell("e")
        await asyncio.sleep(1)
        assert world.published == [["a", "b"], ["c", "d"], ["e"]]
        assert world.heard == ["a", "b", "c", "d", "e"]

    in_world(scenario)


def test_a_message_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither too many nor too long: the rest comes with the next, and one that is too long alone."""
    monkeypatch.setattr(signals_module, "SIGNALS_PER_MESSAGE_MAX", 2)
    monkeypatch.setattr(signals_module, "MESSAGE_BYTES_MAX", 10 + 2 * ENVELOPE_BYTES)

    async def scenario(world: World) -> None:
        world.tell("1", "2", "3", "12345678", "12345678901234", "4")
        await asyncio.sleep(1)
        assert world.published == [["1", "2"], ["3", "12345678"], ["12345678901234"], ["4"]]

    in_world(scenario)


@pytest.mark.parametrize("bound", ["SIGNALS_WAITING_MAX", "WAITING_BYTES_MAX"])
def test_the_oldest_are_dropped_when_redis_is_slow(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """What waits is bounded in number and size; those on this node have heard it all the same."""
    size = ENVELOPE_BYTES + 1 if bound == "WAITING_BYTES_MAX" else 1
    monkeypatch.setattr(signals_module, bound, 3 * size)

    async def scenario(world: World) -> None:
        world.tell("1", "2", "3", "4", "5")
        await asyncio.sleep(1)
        assert world.published == [["3", "4", "5"]]
        assert world.signals.dropped == 2
        assert world.heard == ["1", "2", "3", "4", "5"]

    in_world(scenario)


def test_what_redis_does_not_take_is_dropped() -> None:
    """It is counted, not kept for later, and what is told afterwards travels again."""

    async def scenario(world: World) -> None:
        world.link.is_away = True
        world.tell("1", "2")
        await asyncio.sleep(1)
        world.link.is_away = False
        world.tell("3")
        await asyncio.sleep(1)
        assert (world.published, world.signals.dropped) == ([["3"]], 2)

    in_world(scenario)


def test_nobody_hears_themself_again() -> None:
    """What comes back from the channel is passed over, what others told is heard."""

    async def scenario(world: World) -> None:
        world.tell("mine")
        await asyncio.sleep(1)
        (mine,) = world.link.bundles
        theirs = [UserChangedSignal("theirs"), UserChangedSignal("more")]
        world.channels.say(signed(mine))
        told = [*map(encode_signal, theirs), b"of a newer version"]
        world.channels.say(signed(Bundle("other", 1, world.clock(), told)))
        assert world.heard == ["mine", "theirs", "more"]

    in_world(scenario)


def test_closing_waits_for_nothing() -> None:
    """What was not sent yet is not sent any more."""

    async def scenario(world: World) -> None:
        world.tell("1")
        await world.signals.close()
        await asyncio.sleep(1)
        assert world.published == []

    in_world(scenario)
