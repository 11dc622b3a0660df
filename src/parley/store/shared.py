"""What engines on a service of its own have in common: is it usable at the start, and does it answer now."""

from __future__ import annotations

import asyncio
from typing import Protocol

from parley.core.jobs import Job
from parley.errors import ConfigError, StoreError
from parley.store.ports import Allocator, Directory

SEAL_AFTER_MS = 10_000
"""How long a number may be allocated without being written, on a store that other nodes write to, too."""
PROBE_SECONDS = 2.0
PROBE_SECONDS_MAX = 4.0
"""A store that does not answer a read in this time is unavailable."""
PROBE_CHAT = "chat_probe"


class SharedStore(Protocol):
    """A store that other nodes use, too."""

    available: bool

    @property
    def directory(self) -> Directory:
        """Any of its tables: one of them is read."""
        ...


async def check_allocator(allocator: Allocator | None) -> None:
    """ConfigError if it cannot be used. None: the store takes the numbers itself."""
    if allocator is not None:
        try:
            await allocator.last(PROBE_CHAT)
        except StoreError as error:
            raise ConfigError(f"the allocator cannot be used: {error}") from error


def probe_job(store: SharedStore) -> Job:
    """Check whether the store answers: while it does not, this node appends nothing and is not ready."""

    async def probe() -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS_MAX):
                await store.directory.chat(PROBE_CHAT)
            store.available = True
        except (StoreError, TimeoutError):
            store.available = False

    return Job(
        name="store_probe",
        does="asks the store for a row; a node whose store does not answer is not ready, and appends nothing",
        run=probe,
        interval_seconds=PROBE_SECONDS,
        timeout_seconds=None,
    )
