"""Ack before entry: the one place that knows which sends of this node have no answer yet.

On each socket a sender's ack precedes the message's own entry. An entry may reach this node before its sender
is answered, by another node's event or a read of the log: such entries are delivered through `after_answers`.
This node's own commits need no check: the sender gives its answers first and publishes after that. See
docs/fan-out.md.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from msgspec import Struct, field

EVERY_CHAT = ""
"""The key of batches that hold drafts of any chat."""
HELD_PER_BATCH_MAX = 1_000
"""Memory is bounded: when more deliveries wait for a batch, all of them are delivered at once."""

log = structlog.get_logger("parley.sending")

Deliver = Callable[[], None]


class HeldDelivery(Struct, eq=False):
    """A delivery that waits until so many batches are answered."""

    chat_id: str
    deliver: Deliver
    batches_left: int


class PendingBatch(Struct, eq=False):
    """Drafts that a log was given and whose senders wait. Their positions are all above `after`."""

    after: int = 0
    held: list[HeldDelivery] = field(default_factory=list)

    def has(self, chat_id: str) -> bool:
        """Whether a draft of this chat is in it. A batch under a chat's key holds no other chat."""
        return True


class PendingSends:
    """Every batch of this node from the moment that a log is given it until its senders are answered."""

    def __init__(self) -> None:
        self._batches: dict[str, list[PendingBatch]] = {}

    def begin(self, key: str, batch: PendingBatch) -> None:
        """A log is about to be given this batch. `key`: its chat, or `EVERY_CHAT`."""
        self._batches.setdefault(key, []).append(batch)

    def end(self, key: str, batch: PendingBatch) -> None:
        """Its senders are answered: deliver what waited for this batch and for no other. May be repeated."""
        batches = self._batches.get(key)
        if batches is not None and batch in batches:
            batches.remove(batch)
            if not batches:
                del self._batches[key]
        if batch.held:
            _deliver_held(batch)

    def after_answers(self, chat_id: str, through: int, deliver: Deliver) -> None:
        """Deliver entries of a chat up to a position: now, or once every send that may be among them is
        answered. A draft that no log was given yet cannot be among them."""
        waits_for = [batch for batch in self._batches.get(chat_id, ()) if batch.after < through]
        waits_for += [batch for batch in self._batches.get(EVERY_CHAT, ()) if batch.has(chat_id)]
        if not waits_for:
            deliver()
            return
        held = HeldDelivery(chat_id, deliver, len(waits_for))
        for batch in waits_for:
            batch.held.append(held)
            if len(batch.held) >= HELD_PER_BATCH_MAX:
                _deliver_held(batch)


def _deliver_held(batch: PendingBatch) -> None:
    """A failure in one delivery is logged and does not keep the others."""
    held, batch.held = batch.held, []
    for one in held:
        one.batches_left -= 1
        if not one.batches_left:
            try:
                one.deliver()
            except Exception:
                log.exception("news could not be delivered", chat=one.chat_id)
