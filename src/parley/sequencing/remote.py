"""The `Allocator` of nodes that get their numbers from the Sequence Service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog
from msgspec import Struct

from parley.cluster.calls import NodeError, SignedCalls
from parley.core.log_limits import LineLimit
from parley.errors import ConfigError, StoreUnavailable
from parley.sequencing import bodies
from parley.sequencing.batches import AllocationBatcher, Outcome

DEADLINE_SECONDS = 2.5
ANSWER_SECONDS_MAX = 2.0
REQUESTS_AT_ONCE_MAX = 8

T = TypeVar("T")

log = structlog.get_logger("parley.sequencing")


class RemoteAllocator:
    """The `Allocator` port. The allocations of one turn of the loop are sent as one request.

    It keeps asking the service that answers, and the next one when that fails. If an answer is lost, so are
    its numbers, and others are allocated. `first`: the service to start with, so that nodes spread the load.
    `answer_seconds`: how long it waits for one service, `deadline_seconds`: for all that it asks.
    """

    def __init__(
        self,
        urls: Sequence[str],
        calls: SignedCalls,
        *,
        first: int = 0,
        answer_seconds: float = ANSWER_SECONDS_MAX,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._urls = [check_url(url) for url in urls]
        if not self._urls:
            raise ConfigError("store.allocator is sequencer: cluster.sequencers must name one at least")
        self._calls = calls
        self._answer_seconds = answer_seconds
        self._deadline_seconds = deadline_seconds
        self._current = first % len(self._urls)
        self._lines = LineLimit()
        self._batcher = AllocationBatcher(
            self._allocate, size_max=bodies.ALLOCATIONS_MAX, at_once_max=REQUESTS_AT_ONCE_MAX
        )

    async def create(self, chat_id: str) -> None:
        await self._ask_one(bodies.CREATE, bodies.Named(chat_id))

    async def allocate(self, chat_id: str, count: int, floor: int) -> int:
        return await self._batcher.allocate(bodies.check_allocation(chat_id, count, floor))

    async def last(self, chat_id: str) -> int | None:
        return (await self._ask_one(bodies.LAST, bodies.Named(chat_id))).last

    async def restore(self, chat_id: str, at_least: int) -> int:
        outcome = await self._ask_one(bodies.RESTORE, bodies.Restoration(chat_id, at_least))
        assert outcome.last is not None, "a restored counter is there"
        return outcome.last

    async def close(self) -> None:
        await self._calls.close()

    async def _allocate(self, batch: list[bodies.Allocation]) -> list[Outcome]:
        outcomes = (
            await self._ask(bodies.ALLOCATE, bodies.Allocations(batch), bodies.AllocationOutcomes)
        ).allocations
        if [outcome.chat_id for outcome in outcomes] != [asked.chat_id for asked in batch]:
            raise StoreUnavailable("the answer of a Sequence Service does not match its request")
        return [_result(asked, outcome) for asked, outcome in zip(batch, outcomes, strict=True)]

    async def _ask_one(self, path: str, body: Struct) -> bodies.AllocationOutcome:
        outcome = await self._ask(path, body, bodies.AllocationOutcome)
        if outcome.error is not None:
            raise bodies.error_in(outcome, 0)
        return outcome

    async def _ask(self, path: str, body: Struct, kind: type[T]) -> T:
        """The answer of the first service that gives one; each is asked once."""
        encoded = msgspec.json.encode(body)
        time = asyncio.get_running_loop().time
        give_up_at = time() + self._deadline_seconds
        problem: Exception | None = None
        for index in self._order():
            url = self._urls[index]
            seconds = min(self._answer_seconds, give_up_at - time())
            if seconds <= 0:
                break
            try:
                answer = msgspec.json.decode(await self._calls.post(url + path, encoded, seconds), type=kind)
            except (NodeError, msgspec.DecodeError) as error:
                problem = error
                if (more := self._lines.admit(url, time())) is not None:
                    log.warning("sequencer does not answer", url=url, reason=str(error), **more)
            else:
                self._current = index
                if (more := self._lines.end(url)) is not None:
                    log.info("sequencer answers again", url=url, **more)
                return answer
        raise StoreUnavailable(f"no Sequence Service gave an answer: {problem}") from problem

    def _order(self) -> list[int]:
        return [(self._current + step) % len(self._urls) for step in range(len(self._urls))]


def _result(asked: bodies.Allocation, outcome: bodies.AllocationOutcome) -> Outcome:
    if outcome.error is None and outcome.last is not None:
        return outcome.last
    return bodies.error_in(outcome, asked.floor)


def check_url(url: str) -> str:
    """A base address without its last slash; ConfigError if it is none."""
    parts = urlsplit(url)
    rest = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme not in ("http", "https") or not parts.hostname or rest:
        raise ConfigError(
            f"cluster.sequencers holds addresses like http://10.0.0.7:7070, not {parts.hostname or url!r}"
        )
    return url.rstrip("/")
