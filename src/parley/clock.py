"""Time is an argument: code that needs the time gets a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]
"""Milliseconds since 1970."""

MS_PER_SECOND = 1000
MS_PER_HOUR = 3_600_000
MS_PER_DAY = 86_400_000
SECOND_CHARS = len("2026-01-01T00:00:00")
CLOCK_MS_OFF_MAX = 2_500
"""Clocks that differ by more are told to an operator. A Date in HTTP has whole seconds."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def iso(now_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds: the format of every time on the wire."""
    seconds, ms = divmod(now_ms, MS_PER_SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:SECOND_CHARS]}.{ms:03d}Z"


def from_iso(text: str) -> int:
    """Milliseconds of an ISO 8601 time, with or without milliseconds; ValueError if it is not one."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * MS_PER_SECOND)
