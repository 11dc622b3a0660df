"""The ports of push in memory."""

from __future__ import annotations

from collections.abc import Sequence

from parley.model import Fanout
from parley.store.push.rows import DEVICES_PER_PERSON_MAX, GIVEN, PushDevice, PushOutcome
from tests.memory.tables import Tables


class MemoryPush:
    def __init__(self, tables: Tables) -> None:
        self.devices = MemoryPushDevices(tables)
        self.outcomes = MemoryPushOutcomes(tables)
        self.fanouts = MemoryChatFanouts(tables)


class MemoryPushDevices:
    def __init__(self, tables: Tables) -> None:
        self._devices = tables.push_devices

    async def put(self, device: PushDevice) -> bool:
        others = [one for one in self._devices if one[0] == device.user_id and one[1] != device.device_id]
        if len(others) >= DEVICES_PER_PERSON_MAX:
            return False
        self._devices[device.user_id, device.device_id] = device
        return True

    async def of(self, user_ids: Sequence[str]) -> dict[str, list[PushDevice]]:
        found: dict[str, list[PushDevice]] = {}
        for (user_id, _), device in sorted(self._devices.items()):
            if user_id in user_ids:
                found.setdefault(user_id, []).append(device)
        return found

    async def remove(self, user_id: str, device_id: str, address: str | None = None) -> bool:
        device = self._devices.get((user_id, device_id))
        if device is None or address not in (None, device.address):
            return False
        del self._devices[user_id, device_id]
        return True

    async def are_there(self) -> bool:
        return bool(self._devices)


class MemoryPushOutcomes:
    def __init__(self, tables: Tables) -> None:
        self._outcomes = tables.push_outcomes

    async def note(self, outcome: PushOutcome) -> None:
        key = (outcome.chat_id, outcome.sequence, outcome.user_id, outcome.device_id)
        self._outcomes[key] = outcome

    async def find(self, chat_id: str, sequence: int, user_id: str, device_id: str) -> PushOutcome | None:
        return self._outcomes.get((chat_id, sequence, user_id, device_id))

    async def rung_through(self, chat_id: str, user_id: str, device_id: str) -> int:
        given = [
            sequence
            for (chat, sequence, *device), one in self._outcomes.items()
            if chat == chat_id and device == [user_id, device_id] and one.outcome in GIVEN
        ]
        return max(given, default=0)

    async def of_message(self, chat_id: str, sequence: int) -> list[PushOutcome]:
        return [one for key, one in sorted(self._outcomes.items()) if key[:2] == (chat_id, sequence)]

    async def expire(self, before_ms: int) -> int:
        old = [key for key, one in self._outcomes.items() if one.at_ms < before_ms]
        for key in old:
            del self._outcomes[key]
        return len(old)


class MemoryChatFanouts:
    def __init__(self, tables: Tables) -> None:
        self._fanouts = tables.fanouts

    async def of(self, chat_id: str) -> Fanout | None:
        return self._fanouts.get(chat_id)

    async def choose(self, chat_id: str, fanout: Fanout | None) -> None:
        if fanout is None:
            self._fanouts.pop(chat_id, None)
        else:
            self._fanouts[chat_id] = fanout
