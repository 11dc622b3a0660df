"""What this node's clients hear, as the registry has it: entries of other nodes are routed by it.

The order of things is what makes nothing be lost. A node registers its interest in a chat and then reads the
chat's head; a router reads an event and then looks up who is interested. So an entry is either in the read or
routed. Whenever a tenure has ended, everything is registered under another one and read again, once. While
the registry cannot be trusted this node is in doubt, and reads the heads instead. See docs/fan-out.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Protocol

import structlog

from parley.core.backoff import backoff
from parley.core.jobs import Job
from parley.ephemeral.ports import (
    INTEREST_AGAIN_SECONDS,
    TENURE_LEASE_SECONDS,
    TENURE_RENEW_SECONDS,
    Interests,
)
from parley.errors import StoreError
from parley.gateway.subscribers import Subscribers
from parley.store.subscriptions import Subscriptions
from parley.telemetry import Metrics

SUBJECTS_PER_ROUND_MAX = 2_000
RECOVER_RETRY_SECONDS = 1.0
RECOVER_RETRY_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 0.5

LOOK_SECONDS = 5.0
HEADS_SECONDS = 25.0
HEADS_SECONDS_MAX = 300.0
PAUSES_PER_CHECK = 4
"""Not more than a fifth of the time is spent on it, unless the pause would be longer than that."""
CHECKS_PER_MEMBERSHIP_CHECK = 10
assert LOOK_SECONDS + HEADS_SECONDS <= 30.0, "what PROTOCOL promises: within one heartbeat"

UNROUTED = "entries are not routed here"

log = structlog.get_logger("parley.interests")


class Interest(Protocol):
    """What the hub needs of it."""

    async def hold(self, subjects: Iterable[str]) -> None:
        """Returns when what is stored from now on in these will be routed here, or this node is in doubt."""
        ...

    def is_held(self, subject: str) -> bool:
        """Whether it is so already."""
        ...


class NoInterest:
    """Of a node that registers nothing. `doubt`: why; empty if its clients hear everything all the same."""

    def __init__(self, doubt: str = "") -> None:
        self.doubt = doubt

    async def start(self, catch_up: Callable[[], Awaitable[None]], has_router: Callable[[], bool]) -> None:
        """There is no registry."""

    async def close(self) -> None:
        """There is nothing to end."""

    async def hold(self, subjects: Iterable[str]) -> None:
        """There is no registry."""

    def is_held(self, subject: str) -> bool:
        return True


class InterestKeeper:
    """Registers what the subscribers of this node hear, in the order in which it was asked.

    `new_tenure` makes a name that nobody had before.
    """

    def __init__(
        self,
        interests: Interests,
        subscribers: Subscribers,
        new_tenure: Callable[[], str],
        metrics: Metrics,
    ) -> None:
        self._interests = interests
        self._subscribers = subscribers
        self._catch_up: Callable[[], Awaitable[None]]
        self._has_router: Callable[[], bool]
        self._new_tenure = new_tenure
        self._metrics = metrics
        self._tenure = ""
        self._lasts_until = 0.0
        self._is_recovered = False
        self._is_suspected = False
        self._held: dict[str, None] = {}
        """Registered under this tenure; those that were registered longest ago first."""
        self._asked: dict[str, None] = {}
        self._answer: asyncio.Future[None] | None = None
        """Done when everything in `_asked` is registered, or cannot be."""
        self._unheard: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._recovering: asyncio.Task[None] | None = None
        subscribers.unheard = self._let_go
        metrics.interest_subjects.register(lambda: len(self._held))
        metrics.interest_doubt.register(lambda: float(bool(self.doubt)))

    def is_held(self, subject: str) -> bool:
        return subject in self._held

    async def hold(self, subjects: Iterable[str]) -> None:
        missing = [subject for subject in subjects if subject not in self._held]
        if not missing or not self._tenure:
            return  # without a tenure it is in doubt, and all is registered and read when it has one
        self._asked.update(dict.fromkeys(missing))
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
        self._woken.set()
        await asyncio.shield(self._answer)

    def _let_go(self, subject: str) -> None:
        """No client here hears it any more."""
        self._unheard[subject] = None

    @property
    def doubt(self) -> str:
        """Why entries of other nodes may not be routed here; empty if they are."""
        if self._worker is None or asyncio.get_running_loop().time() >= self._lasts_until:
            return "the registry does not know this node"
        if not self._is_recovered:
            return "this node's interests were lost, and heads are being read"
        if not self._has_router():
            return "no node that is alive has the role delivery"
        return "events are late, says a node" if self._is_suspected else ""

    async def start(self, catch_up: Callable[[], Awaitable[None]], has_router: Callable[[], bool]) -> None:
        """Returns when the first tenure has begun, or cannot be had now.

        `catch_up` reads every chat list and every head again. `has_router`: whether some node routes entries.
        """
        self._catch_up, self._has_router = catch_up, has_router
        await self._begin()
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        for task in (self._worker, self._recovering):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._answer_all()
        if self._tenure:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await self._interests.end(self._tenure)

    # One task does everything that the registry must hear in order

    async def _work(self) -> None:
        time = asyncio.get_running_loop().time
        step_at = time() + TENURE_RENEW_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(step_at):
                    await self._woken.wait()
            self._woken.clear()
            try:
                if time() >= step_at:
                    step_at = time() + TENURE_RENEW_SECONDS
                    await self._renew()
                    await self._release_unheard()
                    await self._register_again()
                await self._register_asked()
            except Exception:  # the next step tries again; nobody waits for ever
                log.exception("interests could not be registered")
                self._answer_all()

    async def _renew(self) -> None:
        began = asyncio.get_running_loop().time()
        if self._tenure:
            lasts = await self._interests.renew(self._tenure)
            if lasts:
                self._lasts_until = began + TENURE_LEASE_SECONDS
            elif lasts is False:
                self._lose("it ran out, was ended, or was forgotten")
        if not self._tenure:
            await self._begin()
        self._is_suspected = await self._interests.is_suspected()

    async def _begin(self) -> None:
        began, tenure = asyncio.get_running_loop().time(), self._new_tenure()
        if await self._interests.begin(tenure):
            self._tenure, self._lasts_until = tenure, began + TENURE_LEASE_SECONDS
            self._metrics.interest_tenures.inc()
            self._recovering = asyncio.get_running_loop().create_task(self._recover())

    def _lose(self, why: str) -> None:
        log.warning("tenure lost", why=why, tenure=self._tenure, subjects=len(self._held))
        self._tenure, self._lasts_until, self._is_recovered = "", 0.0, False
        self._held.clear()
        if self._recovering is not None:
            self._recovering.cancel()
        self._answer_all()

    async def _recover(self) -> None:
        """Register everything that is heard here, and only then read what may have been missed."""
        failures = 0
        while not self._is_recovered:
            try:
                subjects = self._subscribers.subjects()
                for start in range(0, len(subjects), SUBJECTS_PER_ROUND_MAX):
                    await self.hold(subjects[start : start + SUBJECTS_PER_ROUND_MAX])
                await self._catch_up()
                self._is_recovered = True
            except Exception as error:  # of any kind: until it has worked this node is in doubt
                is_store = isinstance(error, StoreError)
                log.warning("heads could not be read", exc_info=None if is_store else error)
                await asyncio.sleep(backoff(failures, RECOVER_RETRY_SECONDS, RECOVER_RETRY_SECONDS_MAX))
                failures += 1

    async def _register_asked(self) -> None:
        asked, self._asked = self._asked, {}
        answer, self._answer = self._answer, None
        try:
            if asked and self._tenure:
                if await self._interests.register(self._tenure, list(asked)) is None:
                    self._lose("it could not be registered under")
                else:
                    self._held.update(asked)
        finally:
            if answer is not None and not answer.done():
                answer.set_result(None)

    async def _release_unheard(self) -> None:
        unheard, self._unheard = self._unheard, {}
        hears = self._subscribers.hears
        gone = [subject for subject in unheard if subject in self._held and not hears(subject)]
        for subject in gone:
            del self._held[subject]
        if gone and self._tenure:
            await self._interests.release(self._tenure, gone)

    async def _register_again(self) -> None:
        """A part of what is held, so that all of it is registered again in time. None of it may be new."""
        share = -(-len(self._held) * TENURE_RENEW_SECONDS // INTEREST_AGAIN_SECONDS)
        some = list(islice(self._held, int(share)))
        if not some or not self._tenure:
            return
        tenure = self._tenure
        added = await self._interests.register(tenure, some)
        if added is None:
            return  # the next renewal tells whether the tenure lasts
        if added:
            await self._interests.end(tenure)
            self._lose("some of what was registered was gone")
            return
        for subject in some:
            self._held[subject] = self._held.pop(subject)

    def _answer_all(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
        self._asked, self._answer = {}, None


class HeadsWatch:
    """Reads the heads of this node's chats while entries may not be routed to it, and only then."""

    def __init__(self, subscriptions: Subscriptions, doubt: Callable[[], str]) -> None:
        self._subscriptions = subscriptions
        self._doubt = doubt
        self._why = ""
        self._checked_at = 0.0
        self._pause = HEADS_SECONDS
        self._checks = 0

    @property
    def job(self) -> Job:
        return Job(
            name="heads",
            does="reads the heads of this node's chats while entries may not be routed to it",
            run=self.look,
            interval_seconds=LOOK_SECONDS,
            timeout_seconds=HEADS_SECONDS_MAX,
        )

    async def look(self) -> None:
        """Check at once when the doubt begins, and then again and again."""
        before, self._why = self._why, self._doubt()
        if not self._why:
            return
        now = asyncio.get_running_loop().time()
        if self._why != before and self._why != UNROUTED:
            log.warning("in doubt, heads are read", why=self._why)
        elif now - self._checked_at < self._pause:
            return
        self._checks += 1
        if self._checks % CHECKS_PER_MEMBERSHIP_CHECK:
            await self._subscriptions.check_heads()
        else:
            await self._subscriptions.catch_up()
        self._checked_at = asyncio.get_running_loop().time()
        self._pause = HEADS_SECONDS
        if self._why != UNROUTED:  # it passes: a node with few chats can afford to look more often
            self._pause = min(PAUSES_PER_CHECK * (self._checked_at - now), HEADS_SECONDS)
