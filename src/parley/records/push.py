"""What is kept so that people's devices get notifications. See docs/push.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.clock import MS_PER_DAY
from parley.core.push_devices import (
    DEVICES_PER_PERSON_MAX,
    GIVEN,
    OUTCOME_DAYS,
    NotifiedThrough,
    PersonPushDevices,
    PushDevice,
    PushOutcome,
)
from parley.errors import StoreUnavailable
from parley.records.book import all_in
from parley.records.chat_settings import ChatFanouts
from parley.store.ports import Records
from parley.store.tables import (
    PUSH_DEVICES,
    PUSH_NOTIFIED,
    PUSH_OUTCOMES,
    PutRecord,
    RemoveRecord,
    alone,
    message_place,
    outcome_place,
)

ATTEMPTS_MAX = 10

Change = Callable[[list[PushDevice]], "list[PushDevice] | None"]


class PushRecords:
    def __init__(self, records: Records) -> None:
        self.devices = PushDevices(records)
        self.outcomes = PushOutcomes(records)
        self.fanouts = ChatFanouts(records)


class PushDevices:
    """The devices that notifications are sent to. Those of a person share a record."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def put(self, device: PushDevice) -> bool:
        """Add or replace a device of a person, durable before it returns.

        False, and nothing is written, if the person has `DEVICES_PER_PERSON_MAX` others.
        """

        def with_it(devices: list[PushDevice]) -> list[PushDevice] | None:
            others = [one for one in devices if one.device_id != device.device_id]
            if len(others) >= DEVICES_PER_PERSON_MAX:
                return None
            return sorted([*others, device], key=lambda one: one.device_id)

        return await self._change(device.user_id, with_it)

    async def remove(self, user_id: str, device_id: str, address: str | None = None) -> bool:
        """Durable before it returns; False if there is none. `address`: only if the device still has it."""

        def without_it(devices: list[PushDevice]) -> list[PushDevice] | None:
            found = next((one for one in devices if one.device_id == device_id), None)
            if found is None or address not in (None, found.address):
                return None
            return [one for one in devices if one.device_id != device_id]

        return await self._change(user_id, without_it)

    async def _change(self, user_id: str, change: Change) -> bool:
        """Write what `change` makes of a person's devices; False if it makes nothing of them."""
        for _ in range(ATTEMPTS_MAX):
            (before,) = await self._records.get(PUSH_DEVICES, [alone(user_id)])
            devices = change(list(before.devices) if before is not None else [])
            if devices is None:
                return False
            after = PersonPushDevices(user_id=user_id, devices=tuple(devices))
            if await self._replace(before, after):
                return True
        raise StoreUnavailable("this person's devices are being written to by too many at once")

    async def _replace(self, before: PersonPushDevices | None, after: PersonPushDevices) -> bool:
        if not after.devices and before is not None:
            gone = RemoveRecord(PUSH_DEVICES.key(after), before=before)
            return await self._records.commit(PUSH_DEVICES, [gone])
        return await self._records.commit(PUSH_DEVICES, [PutRecord(after, before=before)])

    async def of(self, user_ids: Sequence[str]) -> dict[str, list[PushDevice]]:
        """The devices of those of these people who have any, each one's in the order of their ids."""
        found = await self._records.get(PUSH_DEVICES, [alone(one) for one in dict.fromkeys(user_ids)])
        return {one.user_id: list(one.devices) for one in found if one is not None}

    async def are_there(self) -> bool:
        """Whether any person has a device."""
        async for page in self._records.scan(PUSH_DEVICES):
            if page:
                return True
        return False


class PushOutcomes:
    """What became of notifications, for `OUTCOME_DAYS`: one for each message and device."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def note(self, outcome: PushOutcome) -> None:
        """Durable before it returns; replaces what was known of this message and device."""
        if outcome.outcome in GIVEN:
            await self._raise_rung(outcome)
        await self._records.commit(PUSH_OUTCOMES, [PutRecord(outcome)])

    async def _raise_rung(self, outcome: PushOutcome) -> None:
        """The newest position of a device. Never goes back."""
        notified = NotifiedThrough(
            chat_id=outcome.chat_id,
            user_id=outcome.user_id,
            device_id=outcome.device_id,
            since_ms=outcome.at_ms,
            sequence=outcome.sequence,
        )
        while not await self._records.raise_to(PUSH_NOTIFIED, PUSH_NOTIFIED.key(notified), outcome.sequence):
            if await self._records.commit(PUSH_NOTIFIED, [PutRecord(notified, before=None)]):
                return

    async def find(self, chat_id: str, sequence: int, user_id: str, device_id: str) -> PushOutcome | None:
        """What became of one notification."""
        key = message_place(chat_id, sequence), outcome_place(user_id, device_id)
        (found,) = await self._records.get(PUSH_OUTCOMES, [key])
        return found

    async def rung_through(self, chat_id: str, user_id: str, device_id: str) -> int:
        """The newest position of a chat that was given to the provider of a device (noted as `ringing` or
        `pushed`); 0 if none is known.
        """
        (found,) = await self._records.get(PUSH_NOTIFIED, [(chat_id, outcome_place(user_id, device_id))])
        return found.sequence if found is not None else 0

    async def of_message(self, chat_id: str, sequence: int) -> list[PushOutcome]:
        """What became of the notifications of one message, in the order of people and devices."""
        return await all_in(self._records, PUSH_OUTCOMES, message_place(chat_id, sequence))

    async def expire(self, before_ms: int) -> int:
        """Delete what is older; returns how many outcomes. An engine that does so by itself returns 0."""
        now_ms = before_ms - 1 + OUTCOME_DAYS * MS_PER_DAY
        await self._records.expire(PUSH_NOTIFIED, now_ms)
        return await self._records.expire(PUSH_OUTCOMES, now_ms)
