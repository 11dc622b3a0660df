"""How long to wait before the next try: a decision over numbers. Chance is an argument."""

from __future__ import annotations

BACKOFF_BASE_MS = 1_000
BACKOFF_MS_MAX = 60_000
JITTER_SHARE = 0.1
DOUBLINGS_MAX = 32


def backoff_ms(attempt: int, chance: float, most_ms: int = BACKOFF_MS_MAX) -> int:
    """min(1 s * 2^attempt, 60 s), and up to a tenth more; `attempt` counts from 0, chance is 0..1."""
    delay = min(BACKOFF_BASE_MS << min(max(attempt, 0), DOUBLINGS_MAX), most_ms)
    return delay + int(delay * JITTER_SHARE * chance)
