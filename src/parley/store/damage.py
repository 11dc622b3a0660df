"""What is done when the store is found damaged: it is counted and logged, and the server may not be ready.

Damage is no outage. A retry meets it again, so it is refused as `store_damaged`, which is not temporary. An
engine says what damage is in its driver's words and calls `note_damage`; what follows is the same for all.
"""

from __future__ import annotations

import msgspec
import structlog

from parley.core.damage import WRITES_STOPPED_SECONDS
from parley.errors import Refusal, StoreDamaged, StoreError, refusal_of
from parley.telemetry import Metrics

HINT = "what is here cannot be read; run: parley doctor, and see the runbook of ParleyStoreDamaged"

FAILURES = (StoreError, msgspec.DecodeError)
"""What a use case raises when the store failed it. Bodies of requests are decoded before."""

log = structlog.get_logger("parley.store")


def note_damage(
    metrics: Metrics,
    error: BaseException,
    *,
    by_write: bool = False,
    seconds: float = WRITES_STOPPED_SECONDS,
) -> None:
    """Note the damage that an error tells of; of other errors nothing.

    `seconds`: how long the server is not ready after a write that met it.
    """
    if not isinstance(error, StoreDamaged):
        return
    now = metrics.now()
    if by_write:
        metrics.damage.stop_writes(now, seconds)
    if metrics.damage.met(error.place, now):
        log.error(
            "the store is damaged", place=error.place, problem=error.problem, by_write=by_write, hint=HINT
        )


def refusal_for(error: Exception, metrics: Metrics, reader: str, *, by_write: bool) -> Refusal:
    """What a caller is told of a failure, which is noted. A record that does not decode is damage.

    `reader`: who read it, because that is all that is known of the place.
    """
    if isinstance(error, StoreError):
        failure = error
    else:
        problem = f"it does not decode ({type(error).__name__})"
        failure = StoreDamaged(f"a record that {reader} reads", problem)
    note_damage(metrics, failure, by_write=by_write)
    return refusal_of(failure)
