"""Dead letters counted as operators look at them: by error, hour and recipient, and by job."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from parley.clock import MS_PER_HOUR
from parley.core.deliveries import DeadLetter, DeadLetterStatus, Selection
from parley.records.dead_letters import DeadLetters

REPLAY, DISCARD = "replay", "discard"
"""What operators do, in the history of a dead letter."""
JOBS_MAX = 100


class Tallies(Struct):
    """How many dead letters are selected: by error, by hour since 1970, by recipient."""

    errors: Counter[str]
    hours: Counter[int]
    recipients: Counter[str]


class JobTally(Struct):
    """A replay or a discard: when it began, who began it, and what has become of its dead letters."""

    job_id: str
    action: str = ""
    actor: str = ""
    begun_ms: int = 0
    waiting: int = 0
    replayed: int = 0
    failed: int = 0
    discarded: int = 0


async def tally(dead_letters: DeadLetters, selection: Selection) -> Tallies:
    found = Tallies(Counter(), Counter(), Counter())

    def note(dead_letter: DeadLetter) -> None:
        found.errors[dead_letter.error] += 1
        found.hours[dead_letter.dlq_ms // MS_PER_HOUR] += 1
        found.recipients[dead_letter.recipient] += 1

    await dead_letters.visit(selection, note)
    return found


async def jobs(dead_letters: DeadLetters) -> list[JobTally]:
    """The replays and discards of which there are dead letters, the newest first."""
    found: dict[str, JobTally] = {}

    def note(dead_letter: DeadLetter) -> None:
        if dead_letter.job_id:
            _count_in(found.setdefault(dead_letter.job_id, JobTally(dead_letter.job_id)), dead_letter)

    await dead_letters.visit(Selection(), note)
    return sorted(found.values(), key=lambda job: job.job_id, reverse=True)[:JOBS_MAX]


def _count_in(job: JobTally, dead_letter: DeadLetter) -> None:
    """Note what a dead letter of a job is now, and how the job began."""
    began = next(
        (event for event in reversed(dead_letter.history) if event.action in (REPLAY, DISCARD)), None
    )
    if began is not None:
        job.action, job.actor, job.begun_ms = began.action, began.actor, began.at_ms
    if dead_letter.is_queued:
        job.waiting += 1
    elif dead_letter.status is DeadLetterStatus.REPLAYED:
        job.replayed += 1
    elif dead_letter.status is DeadLetterStatus.FAILED:
        job.discarded += 1
    else:
        job.failed += 1
