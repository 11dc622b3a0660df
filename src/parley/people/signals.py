"""What people notice of each other right now, on whichever node they are. Nothing of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import msgspec
import structlog
from msgspec import Struct

from parley.ephemeral.ports import Signals
from parley.model import ReceiptKind

log = structlog.get_logger("parley.signals")


class Typed(Struct, frozen=True, tag="typed"):
    """Somebody types in a chat, or stopped: then `shown_ms` is 0. Those it is hidden from are not told."""

    chat_id: str
    user_id: str
    shown_ms: int
    hidden_from: list[str] = []


class Receipted(Struct, frozen=True, tag="receipted"):
    """A person's position in a chat rose.

    `is_public`: other members are told too, but for those it is hidden from; the person's own devices always.
    `is_named`: they are told who it is.
    """

    chat_id: str
    user_id: str
    kind: ReceiptKind
    up_to: int
    at: str
    is_public: bool
    is_named: bool = True
    hidden_from: list[str] = []


class PersonChanged(Struct, frozen=True, tag="person_changed"):
    """Somebody's settings, contacts or blocks are no longer what they were."""

    user_id: str


class Muted(Struct, frozen=True, tag="muted"):
    """A person muted a chat for themself, or no longer."""

    chat_id: str
    user_id: str
    until: str | None


Signal = Typed | Receipted | PersonChanged | Muted
Told = TypeVar("Told", Typed, Receipted, PersonChanged, Muted)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Signal).decode


class Signalling:
    """Signals as values, each kind to those who asked for it."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._heard: dict[type, list[Callable[[Signal], None]]] = {}
        self._end = signals.hear(self._hear)

    def tell(self, signal: Signal) -> None:
        """Everybody on every node who asked for this kind hears it, here too."""
        self._signals.tell(_encode(signal))

    def on(self, kind: type[Told], heard: Callable[[Told], None]) -> None:
        """Call `heard` with every signal of a kind."""
        self._heard.setdefault(kind, []).append(cast(Callable[[Signal], None], heard))

    def close(self) -> None:
        self._end()

    def _hear(self, data: bytes) -> None:
        try:
            signal = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.debug("not a signal", error=str(error))  # of a newer version, or a stranger's
            return
        for heard in self._heard.get(type(signal), ()):
            heard(signal)
