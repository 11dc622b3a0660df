"""The JSON bodies between the Sequence Service and its callers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from parley.errors import (
    COUNTER_INCONSISTENT,
    COUNTER_MISSING,
    STORE_UNAVAILABLE,
    CounterMissingError,
    InconsistentCounterError,
    StoreError,
    StoreUnavailable,
)
from parley.wire.limits import SEQUENCE_MAX

ALLOCATIONS_MAX = 1_000
COUNT_MAX = 10_000
CHAT_ID_CHARS_MAX = 64
REQUEST_BYTES_MAX = 1024 * 1024
assert ALLOCATIONS_MAX * (CHAT_ID_CHARS_MAX * 6 + 128) < REQUEST_BYTES_MAX, "the largest request fits"

ALLOCATE = "/v1/sequences/allocate"
CREATE = "/v1/sequences/create"
LAST = "/v1/sequences/last"
RESTORE = "/v1/sequences/restore"

ChatId = Annotated[str, Meta(min_length=1, max_length=CHAT_ID_CHARS_MAX)]
Number = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]


class Allocation(Struct, frozen=True):
    """`count` numbers for a chat whose log is known to reach `floor`."""

    chat_id: ChatId
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)]
    floor: Number


class Allocations(Struct, frozen=True):
    allocations: Annotated[list[Allocation], Meta(min_length=1, max_length=ALLOCATIONS_MAX)]


class Named(Struct, frozen=True):
    """The counter to create, or to read."""

    chat_id: ChatId


class Restoration(Struct, frozen=True):
    chat_id: ChatId
    at_least: Number


class AllocationOutcome(Struct, frozen=True, omit_defaults=True):
    """The last number that was allocated, or the code of an error. A missing counter has no `last` either.

    `counter` comes with `counter_inconsistent`: the value of the counter.
    """

    chat_id: str
    last: int | None = None
    error: str | None = None
    reason: str | None = None
    counter: int | None = None


class AllocationOutcomes(Struct, frozen=True):
    """One for each allocation, in their order."""

    allocations: list[AllocationOutcome]


def check_allocation(chat_id: str, count: int, floor: int) -> Allocation:
    """ValueError for what the service would refuse: it would refuse the whole request with it."""
    if not 1 <= count <= COUNT_MAX or not 0 <= floor <= SEQUENCE_MAX:
        raise ValueError(f"count must be 1 to {COUNT_MAX}, and floor 0 to {SEQUENCE_MAX}")
    if not 1 <= len(chat_id) <= CHAT_ID_CHARS_MAX:
        raise ValueError(f"a chat id has 1 to {CHAT_ID_CHARS_MAX} characters")
    return Allocation(chat_id, count, floor)


def failure(chat_id: str, error: StoreError) -> AllocationOutcome:
    """The outcome that carries an error."""
    if isinstance(error, CounterMissingError):
        return AllocationOutcome(chat_id, error=COUNTER_MISSING.code)
    if isinstance(error, InconsistentCounterError):
        return AllocationOutcome(chat_id, error=COUNTER_INCONSISTENT.code, counter=error.counter)
    return AllocationOutcome(chat_id, error=STORE_UNAVAILABLE.code, reason=str(error))


def error_in(outcome: AllocationOutcome, floor: int) -> StoreError:
    """The error that an outcome carries."""
    if outcome.error == COUNTER_MISSING.code:
        return CounterMissingError(f"{outcome.chat_id} has no counter")
    if outcome.error == COUNTER_INCONSISTENT.code:
        return InconsistentCounterError(outcome.counter or 0, floor)
    return StoreUnavailable(f"the Sequence Service gave no number: {outcome.reason or outcome.error}")
