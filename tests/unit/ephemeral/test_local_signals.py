"""Signals within one process are values: nothing is encoded on the way from a publisher to a subscriber."""

import pytest

from parley.ephemeral.local import LocalSignals
from parley.ephemeral.signals import ReceiptSignal, Signal, TypingSignal
from parley.model import ReceiptKind
from tests.tidy.repository import ROOT

RECEIPT = ReceiptSignal("chat_a", "usr_ann", ReceiptKind.READ, 7, "2026-01-01T00:00:00.000Z", True)


def test_a_subscriber_gets_the_very_value() -> None:
    """What is published is handed over as it is, not as a copy that was encoded and decoded."""
    signals = LocalSignals()
    heard: list[Signal] = []
    signals.subscribe(ReceiptSignal, heard.append)
    signals.subscribe(TypingSignal, heard.append)
    signals.publish(RECEIPT)
    assert len(heard) == 1
    assert heard[0] is RECEIPT


@pytest.mark.parametrize("room", ["ephemeral/local.py", "ephemeral/signals.py", "people"])
def test_only_an_engine_beyond_the_process_encodes(room: str) -> None:
    """Neither the engine in this process nor the services for people make a codec."""
    path = ROOT / "src/parley" / room
    texts = [file.read_text(encoding="utf-8") for file in ([path] if path.is_file() else path.glob("*.py"))]
    assert texts
    assert not [text for text in texts if "msgpack" in text or "Encoder" in text or "Decoder" in text]
