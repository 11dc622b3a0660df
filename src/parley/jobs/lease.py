"""Whether this node may run a job of the cluster: a lease that it keeps renewing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from parley.ephemeral.ports import JOB_LEASE_SECONDS, JOB_RENEW_SECONDS, Leases


class JobLease:
    """`overlaps`: while nobody can say who has the lease, this node runs the job too."""

    def __init__(self, leases: Leases, name: str, holder: str, overlaps: bool) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._overlaps = overlaps
        self._until = 0.0
        self._may_run = asyncio.Event()
        self._limit: asyncio.Timeout | None = None
        self._latest = 0.0
        self.is_unknown = False
        """The engine of leases did not answer the last call."""

    @property
    def may_run(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    async def until_may_run(self) -> None:
        while not self.may_run:
            self._may_run.clear()
            await self._may_run.wait()

    async def keep(self) -> None:
        """Take the lease or renew it, again and again, until cancelled."""
        while True:
            await self.renew()
            await asyncio.sleep(JOB_RENEW_SECONDS)

    async def renew(self) -> None:
        asked = asyncio.get_running_loop().time()
        held = await self._leases.hold(self._name, self._holder, JOB_LEASE_SECONDS)
        self.is_unknown = held is None
        if held or (held is None and self._overlaps):
            self._until = asked + JOB_LEASE_SECONDS
            self._may_run.set()
        elif held is False:
            self._until = 0.0
        if self._limit is not None:
            self._bound(self._limit)

    @contextlib.contextmanager
    def bounding(self, limit: asyncio.Timeout) -> Iterator[None]:
        """End this time limit with the lease. It is the loop's own timer: also after a pause of the process
        it cancels the run before that gets on.
        """
        when = limit.when()
        self._latest = float("inf") if when is None else when
        self._limit = limit
        self._bound(limit)
        try:
            yield
        finally:
            self._limit = None

    def ended(self, limit: asyncio.Timeout) -> bool:
        """Whether the lease, and not the time that a run may take, made this limit expire."""
        when = limit.when()
        if when is None or when >= self._latest:
            return False
        if self._until <= when:
            self._until = 0.0  # a timer may come a moment early: the lease must not be used again
        return True

    def _bound(self, limit: asyncio.Timeout) -> None:
        if not limit.expired():
            limit.reschedule(min(self._latest, self._until))

    async def release(self) -> None:
        self._until = 0.0
        await self._leases.release(self._name, self._holder)
