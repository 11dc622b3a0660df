"""The uploads that a node receives at once: few, fair between people, and none that is too slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley.core.upload_slots import whose_slot
from parley.errors import BUSY, REQUEST_TIMEOUT, Refused

CROWDED = BUSY.because("too many uploads are under way; try again")
TOO_SLOW = REQUEST_TIMEOUT.because("the bytes come too slowly; what is stored stays, go on from `received`")
GIVEN_AWAY = BUSY.because("others upload, too; finish your other uploads, and go on from `received`")


class UploadSlot:
    """The place of one upload. It ends at its deadline, or when it is given to somebody else."""

    def __init__(self) -> None:
        self.timeout = asyncio.timeout(None)
        self.is_given_away = False

    def allow_until(self, loop_seconds: float | None) -> None:
        """What is done in this place is cancelled then; None: never."""
        if not self.is_given_away:
            self.timeout.reschedule(loop_seconds)

    def give_away(self) -> None:
        self.allow_until(asyncio.get_running_loop().time())
        self.is_given_away = True


class UploadSlots:
    def __init__(self) -> None:
        self._held: dict[str, list[UploadSlot]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    @asynccontextmanager
    async def taken(self, user_id: str) -> AsyncIterator[UploadSlot]:
        """A place for an upload of this person. Refused, as temporary, if there is none, or once it ends."""
        slot = UploadSlot()
        try:
            async with slot.timeout:
                self._take(user_id, slot)
                yield slot
        except TimeoutError as error:
            raise Refused(GIVEN_AWAY if slot.is_given_away else TOO_SLOW) from error
        finally:
            self._leave(user_id, slot)

    def _take(self, user_id: str, slot: UploadSlot) -> None:
        owner = whose_slot({one: len(slots) for one, slots in self._held.items()}, user_id)
        if owner is None:
            raise Refused(CROWDED)
        if owner != user_id:
            latest = self._held[owner][-1]
            latest.give_away()
            self._leave(owner, latest)
        self._held.setdefault(user_id, []).append(slot)

    def _leave(self, user_id: str, slot: UploadSlot) -> None:
        slots = self._held.get(user_id, [])
        if slot in slots:
            slots.remove(slot)
        if not slots:
            self._held.pop(user_id, None)
