"""When a recipient that does not answer is tried: it is paused, and one delivery at a time is a probe.

A recipient in which one chat alone fails is not paused for the others: that chat waits by its own retries.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from parley.core.backoff import JITTER_SHARE, backoff
from parley.core.retry import RETRY_AFTER_MS_MAX, RETRY_FIRST_MS, DeliveryFailure, Fault

PAUSE_AFTER_FAILURES = 5
"""So many failures in a row pause a recipient."""
PROBE_MS = 15_000
"""A probe of which nothing was heard for so long is not waited for. An attempt takes less."""

AWAY = frozenset({Fault.UNREACHABLE, Fault.TIMEOUT, Fault.BUSY, Fault.SERVER_ERROR})
"""Faults that say that a recipient does not work, whatever it is sent."""


class RecipientHealth(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recipient that fails. One that answers has none.

    `failures`: how many in a row. `stream_id`: where all of them were; empty once they were in several chats.
    `probes`: how many have begun, which tells two probes at the same time apart.
    """

    recipient: str
    failing_since_ms: int
    failed_ms: int
    error: str
    detail: str = ""
    failures: int = 1
    stream_id: str = ""
    paused_until_ms: int = 0
    probes: int = 0

    @property
    def is_paused(self) -> bool:
        return self.failures >= PAUSE_AFTER_FAILURES

    @property
    def is_paused_everywhere(self) -> bool:
        return self.is_paused and not self.stream_id


class Gate(Enum):
    """What may be done about what is owed to a recipient. See `gate_of`."""

    OPEN = "open"
    PROBE = "probe"
    PAUSED = "paused"
    GIVE_UP = "give_up"


def answers(failure: DeliveryFailure | None) -> bool | None:
    """What an attempt says of its recipient: whether it works, or None if it says nothing of that."""
    if failure is None or failure.fault is Fault.REFUSED:
        return True
    return False if failure.fault in AWAY else None


def gate_of(health: RecipientHealth | None, now_ms: int, give_up_ms: int | None) -> Gate:
    """Everything may be tried; or one delivery, to see; or nothing.

    `GIVE_UP`: it has failed for so long that what has waited all the time is given up without an attempt.
    """
    if health is None or not health.is_paused_everywhere:
        return Gate.OPEN
    if now_ms >= health.paused_until_ms:
        return Gate.PROBE
    is_over = give_up_ms is not None and now_ms - health.failing_since_ms >= give_up_ms
    return Gate.GIVE_UP if is_over else Gate.PAUSED


def with_probe(health: RecipientHealth, now_ms: int) -> RecipientHealth:
    """As it is while a probe is under way."""
    return replace(health, paused_until_ms=now_ms + PROBE_MS, probes=health.probes + 1)


def with_failure(
    health: RecipientHealth | None,
    recipient: str,
    stream_id: str,
    failure: DeliveryFailure,
    retry_ms: int,
    now_ms: int,
    longest_ms: int,
    chance: float,
    *,
    is_probe: bool,
) -> RecipientHealth:
    """After another failure. `retry_ms`: when it would be tried again by itself.

    Pauses double like the waits of retries. What had begun before a pause does not make it longer.
    """
    first = RecipientHealth(
        recipient=recipient,
        failing_since_ms=now_ms,
        failed_ms=now_ms,
        error=failure.fault.value,
        detail=failure.detail,
        stream_id=stream_id,
    )
    if health is None:
        return first
    health = replace(health, failed_ms=now_ms, error=first.error, detail=first.detail)
    is_alone = health.stream_id == stream_id
    if health.is_paused_everywhere and not is_probe and now_ms < health.paused_until_ms:
        return health
    failures = health.failures + 1
    if health.is_paused and health.stream_id and not is_alone:
        failures = 2  # one chat failed alone for long; this is the first failure of another
    wait_ms = backoff(failures - PAUSE_AFTER_FAILURES, RETRY_FIRST_MS, longest_ms, JITTER_SHARE * chance)
    wait_ms = max(round(wait_ms), min(failure.retry_after_ms, RETRY_AFTER_MS_MAX))
    if is_alone:
        wait_ms = max(wait_ms, retry_ms)
    return replace(
        health,
        failures=failures,
        stream_id=stream_id if is_alone else "",
        paused_until_ms=now_ms + wait_ms if failures >= PAUSE_AFTER_FAILURES else 0,
    )
