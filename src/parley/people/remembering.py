"""A bounded memory of what the store says, for paths that must not read it each time.

What has changed is forgotten when that is told; as tellings may be lost, nothing is believed for long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from parley.clock import Clock

REMEMBERED_MAX = 20_000
BELIEVED_MS = 30_000

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """Values by id, read together when they are not known."""

    def __init__(
        self,
        read: Callable[[Sequence[str]], Awaitable[dict[str, Value]]],
        clock: Clock,
        remembered_max: int = REMEMBERED_MAX,
    ) -> None:
        self._read = read
        self._clock = clock
        self._remembered_max = remembered_max
        self._known: dict[str, tuple[Value, int]] = {}
        self._forgotten = 0
        """Counts, so that what was read before something was forgotten is not remembered after."""

    def known(self, key: str) -> Value | None:
        """What is remembered and may still be believed."""
        found = self._known.get(key)
        return found[0] if found is not None and found[1] > self._clock() else None

    async def get(self, keys: Iterable[str]) -> dict[str, Value]:
        """What is known of each; what is not is read. Keys that mean nothing are left out."""
        found: dict[str, Value] = {}
        unknown: list[str] = []
        for key in keys:
            value = self.known(key)
            if value is None:
                unknown.append(key)
            else:
                found[key] = value
        if unknown:
            found |= await self._look_up(unknown)
        return found

    async def one(self, key: str) -> Value | None:
        return (await self.get((key,))).get(key)

    async def _look_up(self, keys: list[str]) -> dict[str, Value]:
        forgotten = self._forgotten
        read = await self._read(keys)
        if forgotten == self._forgotten:
            until = self._clock() + BELIEVED_MS
            for key, value in read.items():
                self._known.pop(key, None)
                self._known[key] = value, until
            while len(self._known) > self._remembered_max:
                del self._known[next(iter(self._known))]
        return read

    def forget(self, key: str) -> None:
        """It has changed."""
        self._known.pop(key, None)
        self._forgotten += 1

    def forget_all(self) -> None:
        """Tellings may have been lost."""
        self._known.clear()
        self._forgotten += 1
