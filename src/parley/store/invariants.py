"""The invariants of every store, by name, and the findings of a check.

The names are stable: runbooks refer to them. Each sentence is about what a store holds: of acks and requests,
only what they stored can be checked. `ALIASES` are former names, by which programs may still look for counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from parley.errors import StoreError

BREACHES_LISTED_MAX = 200
"""All breaches are counted; only the first ones are listed."""

INVARIANTS = {
    "counter_must_exist": "every chat has its counter",
    "sequence_uniqueness": "no two entries of a chat have the same sequence",
    "allocation_monotonicity": "no number was allocated after higher ones had been written long before",
    "counter_is_last_allocated": "the counter is the highest number allocated: an entry, a void or open",
    "entries_within_counter": "no entry lies beyond the counter",
    "counter_lower_bound": "a chat has no more messages than its counter",
    "idempotency_sequence_consistency": "an idempotency key and its message agree on sequence and ids",
    "ack_implies_persistence": "every position that a device acknowledged is in the log",
    "no_zero_sequence": "sequences are whole numbers from 1",
    "gap_is_allocation_without_persistence": "a number without a message is a void or an open allocation",
    "add_operation_atomicity": "no number was allocated twice: none is both open and written",
    "stored_in_order": "no entry was stored long after entries with a higher sequence",
    "idempotency_guarantee": "a client_message_id is the key of at most one message of its chat",
    "sync_completeness": "a reader reaches every entry: no hole lies before it, and each has a body",
    "delivery_state_consistency": "no device or person has received or read more than the log holds",
    "log_density": "every number from 1 to the counter is an entry, a void or an open allocation",
    "wire_agreement": "the body of an entry agrees with its row",
    "log_hash_agreement": "every stored hash of a log is that of its entries: none was changed afterwards",
    "membership": "members are known people with a role and a place in their overview; a group has an owner",
    "direct_uniqueness": "two people have at most one direct chat, and it has no other members",
    "change_order": "no change is numbered beyond the last change",
    "references": "nothing belongs to a chat that does not exist",
    "schema": "the tables, views, indexes and triggers are those of this version",
    "file_integrity": "the file itself is sound",
}

ALIASES = {"sequence_monotonicity": "entries_within_counter", "sequence_monotonic": "stored_in_order"}


class Breach(Struct, frozen=True):
    """One broken invariant: what is wrong, where, and what to do about it."""

    invariant: str
    says: str
    remedy: str
    chat_id: str | None = None
    sequence: int | None = None


class NoSuchChat(StoreError):
    """There is no chat with this id."""


class StoreUnreadable(StoreError):
    """A check cannot continue; `breach` problem why."""

    def __init__(self, breach: Breach) -> None:
        super().__init__(breach.says)
        self.breach = breach


class Findings(Struct):
    """What a check has read, and the breaches that it has found."""

    chats: int = 0
    entries: int = 0
    voids: int = 0
    open_allocations: int = 0
    breaches: list[Breach] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    not_shown: frozenset[str] = frozenset()
    """Invariants that this engine cannot break, or whose breach leaves no trace in it."""

    @property
    def is_clean(self) -> bool:
        return not self.counts

    @property
    def shown(self) -> list[str]:
        """The invariants that were checked."""
        return [name for name in INVARIANTS if name not in self.not_shown]

    @property
    def counted(self) -> dict[str, int]:
        """How many breaches of each invariant that was checked were found, also by former names."""
        names = {name: name for name in INVARIANTS} | ALIASES
        return {said: self.counts[name] for said, name in names.items() if name not in self.not_shown}

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


OnProgress = Callable[[Progress], None]


def no_progress(_: Progress) -> None:
    """For a check without a progress display."""
