"""Requests with an `Idempotency-Key` and what they were answered, for `IDEMPOTENCY_DAYS`.

A request first claims its key, durably: of several at once, on whichever nodes, one is carried out. Its
answer is recorded after it. A process that dies in between leaves a claim, which another takes over when it
has run out, and carries the request out again; what it creates has the same id then.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from parley.clock import Clock
from parley.core.idempotency import CLAIM_MS, Repeat, decide_repeat, is_over
from parley.core.jobs import Job
from parley.errors import IDEMPOTENCY_CONFLICT, Refused
from parley.model import AnsweredRequest, JobScope
from parley.records.book import Book
from parley.store.ports import Records
from parley.store.tables import ANSWERS, alone

CLAIM_BYTES = 16
EXPIRE_SECONDS = 6 * 3_600.0
EXPIRE_SECONDS_MAX = 3_600.0
ANSWER_CHARS_MAX = 64 * 1024
"""A longer answer is not recorded: the request is carried out again, and finds what it created."""


class AnsweredRequests:
    def __init__(self, records: Records, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self._records = records
        self._answers = Book(records, ANSWERS, at=alone)
        self._clock = clock
        self._random_bytes = random_bytes

    async def begin(self, request_id: str, digest: str, user_id: str) -> tuple[AnsweredRequest, bool]:
        """What is known of this request, and whether the caller is to carry it out.

        Otherwise it was answered, or somebody is at it (status 0). Refused if the key is another request's.
        """
        while True:
            now_ms = self._clock()
            mine = AnsweredRequest(
                request_id=request_id,
                digest=digest,
                claim=self._random_bytes(CLAIM_BYTES).hex(),
                made_at_ms=now_ms,
                claimed_until_ms=now_ms + CLAIM_MS,
                user_id=user_id,
            )
            kept = await self._answers.add(mine)
            if kept == mine:
                return mine, True
            match decide_repeat(kept, digest, now_ms):
                case Repeat.CONFLICT:
                    raise Refused(IDEMPOTENCY_CONFLICT)
                case Repeat.ANSWERED | Repeat.UNDER_WAY:
                    return kept, False
            if not is_over(kept, now_ms):
                mine = replace(mine, made_at_ms=kept.made_at_ms)
            if await self._answers.swap(kept, mine):
                return mine, True

    async def answered(self, mine: AnsweredRequest, status: int, answer: str) -> None:
        """Durable before it returns, unless the answer is too long."""
        if len(answer) <= ANSWER_CHARS_MAX:
            await self._answers.swap(mine, replace(mine, status=status, answer=answer))
        else:
            await self.given_up(mine)

    async def refused(self, mine: AnsweredRequest) -> None:
        """Nothing was done: the key is free."""
        await self._answers.remove(mine.request_id)

    async def given_up(self, mine: AnsweredRequest) -> None:
        """Nobody is at it any more, and perhaps it is done: the next one carries it out again."""
        await self._answers.swap(mine, replace(mine, claimed_until_ms=0))

    async def forget_person(self, user_id: str) -> None:
        """Remove what a deleted person was answered."""
        async for answered in self._records.scan(ANSWERS):
            for one in answered:
                if one.user_id == user_id:
                    await self._answers.remove(one.request_id)

    async def expire(self) -> None:
        """Remove what is over."""
        await self._records.expire(ANSWERS, self._clock())

    @property
    def job(self) -> Job:
        return Job(
            name="answered_requests",
            does="deletes the answers of requests whose `Idempotency-Key` is over",
            run=self.expire,
            interval_seconds=EXPIRE_SECONDS,
            timeout_seconds=EXPIRE_SECONDS_MAX,
            scope=JobScope.CLUSTER,
        )
