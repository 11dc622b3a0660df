"""The channel of signals in Redis, written to by somebody who wants to fool people."""

from collections.abc import Callable

import pytest
import structlog

from parley.core.cluster_keys import EVENTS, SIGNALS, TAG_BYTES, ClusterKeys
from parley.core.node_trust import CALL_AGE_MS_MAX
from parley.ephemeral.redis import signals as signals_module
from parley.ephemeral.redis.signals import Bundle, encode_bundle, encode_signal
from parley.ephemeral.signals import ReceiptSignal, Signal
from parley.model import ReceiptKind
from tests.fakes import KEYS
from tests.harness.clock import VirtualClock, run_virtual
from tests.unit.ephemeral.test_redis_signals import Channels, SlowLink

CHANNEL = "test:signals_channel"
READ = ReceiptSignal("chat_a", "usr_ann", ReceiptKind.READ, 7, "2026-01-01T00:00:00.000Z", True)


class SpoofedNode:
    """One node, the channel it listens to, and what its people would be told."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.channels = Channels()
        self.heard: list[Signal] = []
        self.passed_over: list[str] = []
        signals = signals_module.RedisSignals(
            SlowLink(),  # type: ignore[arg-type]
            self.channels,  # type: ignore[arg-type]
            KEYS,
            clock,
            "test:",
            self.passed_over.append,
        )
        signals.subscribe(ReceiptSignal, self.heard.append)

    def bundle(self, number: int = 1, publisher: str = "other") -> Bundle:
        return Bundle(publisher, number, self.clock(), [encode_signal(READ)])


def sealed(bundle: Bundle, keys: ClusterKeys = KEYS, purpose: str = SIGNALS, channel: str = CHANNEL) -> bytes:
    data = encode_bundle(bundle)
    return keys.ring(purpose, channel).tag(data) + data


def spoofing(scenario: Callable[[SpoofedNode], None]) -> None:
    async def run(clock: VirtualClock) -> None:
        with structlog.testing.capture_logs():
            scenario(SpoofedNode(clock))

    run_virtual(run)


FORGERIES: dict[str, Callable[[Bundle], bytes]] = {
    "not signed": encode_bundle,
    "signed with zeros": lambda bundle: bytes(TAG_BYTES) + encode_bundle(bundle),
    "signed with another secret": lambda bundle: sealed(bundle, ClusterKeys("a guess of some length")),
    "signed as an event": lambda bundle: sealed(bundle, purpose=EVENTS),
    "signed for another deployment": lambda bundle: sealed(bundle, channel="staging:signals_channel"),
    "changed": lambda bundle: sealed(bundle).replace(b"usr_ann", b"usr_bob"),
    "cut": lambda bundle: sealed(bundle)[:-1],
    "empty": lambda bundle: b"",
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_signal_is_not_heard(how: str) -> None:
    """Nobody is told of a receipt that no node of this cluster has told, and it is counted."""

    def scenario(node: SpoofedNode) -> None:
        node.channels.say(FORGERIES[how](node.bundle()))
        assert (node.heard, node.passed_over) == ([], ["signals"])

    spoofing(scenario)


def test_a_signal_that_is_sent_again_is_not_heard_again() -> None:
    """Whoever listens to the channel cannot repeat what they heard, nor bring earlier signals after it."""

    def scenario(node: SpoofedNode) -> None:
        first, second = sealed(node.bundle(1)), sealed(node.bundle(2))
        for message in (first, second, second, first):
            node.channels.say(message)
        assert node.heard == [READ, READ]

    spoofing(scenario)


@pytest.mark.parametrize("off_ms", [-CALL_AGE_MS_MAX - 1, CALL_AGE_MS_MAX + 1])
def test_a_signal_that_was_kept_back_is_not_heard(off_ms: int) -> None:
    """A genuine one is good for half a minute, also on a node that has just started and remembers nothing."""

    def scenario(node: SpoofedNode) -> None:
        recorded = sealed(node.bundle())
        node.clock.set(node.clock() + off_ms)
        node.channels.say(recorded)
        assert node.heard == []

    spoofing(scenario)


def test_many_tellers_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many starts of nodes as there may be, the ones that spoke last are remembered."""
    monkeypatch.setattr(signals_module, "PUBLISHERS_REMEMBERED_MAX", 2)

    def scenario(node: SpoofedNode) -> None:
        kept = sealed(node.bundle(1, "b"))
        for message in (sealed(node.bundle(1, "a")), kept, sealed(node.bundle(1, "c")), kept):
            node.channels.say(message)
        assert len(node.heard) == 3

    spoofing(scenario)
