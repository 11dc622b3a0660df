"""How long to wait before the next attempt. Every retry in the project uses this function."""

from __future__ import annotations

DOUBLINGS_MAX = 32
JITTER_SHARE = 0.1
"""The default jitter: by how much a wait may exceed its plain length."""


def backoff(attempt: int, base: float, longest: float, jitter: float = 0.0) -> float:
    """`base` doubled `attempt` times, at most `longest`, then made longer or shorter by the share `jitter`.

    `attempt` counts from 0. The answer has the unit of `base`. The caller draws the jitter:
    `JITTER_SHARE * random()` adds up to a tenth; `random() - 1` is full jitter, from 0 to the whole wait.
    """
    wait = min(base * 2.0 ** min(max(attempt, 0), DOUBLINGS_MAX), longest)
    return wait + wait * jitter
