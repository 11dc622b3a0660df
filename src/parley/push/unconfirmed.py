"""Messages for people whose connection may be dead although its lease still holds.

A phone that lost its network counts as connected until its lease ends. Messages of that minute notify
nobody at first. So they are looked at again when the lease must have ended: who is away by then, and has
received none of it, is owed a notification after all. This is kept in memory: a notification is lost only if
a connection dies without a word and the worker dies within the same minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog
from msgspec import Struct

from parley.clock import MS_PER_SECOND, Clock
from parley.ephemeral.attention import people_there
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, Registry
from parley.errors import StoreError
from parley.push.ports import recipient_of
from parley.records.push import PushDevices
from parley.store.ports import MemberStates

WAIT_SECONDS = DEVICE_LEASE_SECONDS + 5.0
LOOK_SECONDS = 5.0
PEOPLE_MAX = 100_000
"""In chats; beyond it the oldest are given up."""

Owe = Callable[[str, list[str], int, int], Awaitable[None]]
"""As `DeliveryWorker.owe`."""

log = structlog.get_logger("parley.push")


class Expected(Struct):
    """Positions that a person who seemed to be connected should receive by then."""

    first: int
    last: int
    due_ms: int


class Unconfirmed:
    def __init__(self, registry: Registry, states: MemberStates, devices: PushDevices, clock: Clock) -> None:
        self._registry = registry
        self._states = states
        self._devices = devices
        self._clock = clock
        self._expected: dict[tuple[str, str], Expected] = {}
        """By chat and person, the one that is due first at first."""

    def expect(self, chat_id: str, user_ids: Iterable[str], first: int, last: int) -> None:
        """These people were connected when this became durable."""
        due_ms = self._clock() + round(WAIT_SECONDS * MS_PER_SECOND)
        for user_id in user_ids:
            known = self._expected.get((chat_id, user_id))
            if known is not None:
                known.last = last
            else:
                self._expected[chat_id, user_id] = Expected(first, last, due_ms)
        while len(self._expected) > PEOPLE_MAX:
            del self._expected[next(iter(self._expected))]

    async def run(self, owe: Owe) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look(owe)
            except StoreError as error:
                log.warning("it cannot be seen who received what", error=str(error))

    async def look(self, owe: Owe) -> None:
        """Owe a notification to those who are away by now and received nothing."""
        now_ms, due = self._clock(), dict[str, dict[str, Expected]]()
        for (chat_id, user_id), expected in self._expected.items():
            if expected.due_ms > now_ms:
                break
            due.setdefault(chat_id, {})[user_id] = expected
        for chat_id, people in due.items():
            await self._look_at(chat_id, people, owe)
            for user_id in people:
                del self._expected[chat_id, user_id]

    async def _look_at(self, chat_id: str, people: dict[str, Expected], owe: Owe) -> None:
        there = await people_there(self._registry, list(people))
        away = [user_id for user_id in people if user_id not in there]
        if not away:
            return
        settings = await self._states.settings(chat_id, away)
        missed = [user_id for user_id in away if settings[user_id].delivered_up_to < people[user_id].last]
        for user_id, devices in (await self._devices.of(missed) if missed else {}).items():
            expected = people[user_id]
            recipients = [recipient_of(user_id, device.device_id) for device in devices]
            await owe(chat_id, recipients, expected.first, expected.last)
