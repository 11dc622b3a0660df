"""What must hold in every store, each by its own name, and what a check of it found.

The names are those of the design documents (ADR-004 and ADR-001, appendix C), followed by our own. Each
sentence says what a store can show of it: acks and requests leave no other trace than what they stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

BREACHES_LISTED_MAX = 200
"""All breaches are counted; the first so many are told one by one."""

INVARIANTS = {
    "counter_must_exist": "every chat has its counter",
    "sequence_uniqueness": "no two entries of a chat have the same sequence",
    "allocation_monotonicity": "no number was allocated after higher ones had been written long before",
    "counter_is_last_allocated": "the counter is the highest number ever given: an entry, a void or open",
    "sequence_monotonicity": "no entry lies beyond the counter",
    "counter_lower_bound": "a chat has at most as many messages as its counter says",
    "idempotency_sequence_consistency": "an idempotency key and its message agree on sequence and ids",
    "ack_implies_persistence": "every position that a device acknowledged is in the log",
    "no_zero_sequence": "sequences are whole numbers from 1",
    "gap_is_allocation_without_persistence": "a number without a message is a void or an open allocation",
    "add_operation_atomicity": "no number was given twice: none is both open and written",
    "sequence_monotonic": "no entry was stored long after entries with a higher sequence",
    "idempotency_guarantee": "a client_message_id is the key of at most one message of its chat",
    "sync_completeness": "a reader reaches every entry: no hole lies before it, and each has a body",
    "delivery_state_consistency": "nobody is recorded as having received or read more than there is",
    "log_density": "every number from 1 to the counter is an entry, a void or an open allocation",
    "wire_agreement": "what an entry says of itself agrees with its row",
    "membership": "members are known people with a role and a place in their overview; a group has an owner",
    "direct_uniqueness": "two people have at most one direct chat, and it is theirs alone",
    "change_order": "no change is numbered beyond the last change",
    "references": "nothing belongs to a chat that does not exist",
    "schema": "the tables, views, indexes and triggers are those of this version",
    "file_integrity": "the file itself is sound",
}


class Breach(Struct, frozen=True):
    """One thing that is broken: what, where, and what to do about it."""

    invariant: str
    says: str
    remedy: str
    chat_id: str | None = None
    sequence: int | None = None


class Findings(Struct):
    """What a check saw and what it found broken."""

    chats: int = 0
    entries: int = 0
    voids: int = 0
    open_allocations: int = 0
    breaches: list[Breach] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    not_shown: frozenset[str] = frozenset()
    """Invariants that this engine keeps by its nature, or leaves no trace of."""

    @property
    def is_clean(self) -> bool:
        return not self.counts

    @property
    def shown(self) -> list[str]:
        """The invariants that were looked for."""
        return [name for name in INVARIANTS if name not in self.not_shown]

    def add(self, breach: Breach) -> None:
        assert breach.invariant in self.shown, breach.invariant
        self.counts[breach.invariant] += 1
        if len(self.breaches) < BREACHES_LISTED_MAX:
            self.breaches.append(breach)


class Progress(Struct, frozen=True):
    """How far a check is."""

    chats: int
    chats_total: int
    entries: int


Tell = Callable[[Progress], None]


def silently(_: Progress) -> None:
    """Nobody watches."""
