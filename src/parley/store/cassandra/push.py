"""The ports of push on Cassandra. The devices of a person share one row, whose writers compare and set."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parley.clock import MS_PER_DAY, MS_PER_SECOND
from parley.concurrency import map_concurrently
from parley.model import Fanout
from parley.store.cassandra.client import Cassandra, is_key
from parley.store.cassandra.json_rows import JsonRows
from parley.store.cassandra.schema import CHATS, PUSH_DEVICES, PUSH_OUTCOMES, PUSH_RUNG, SCHEMA
from parley.store.push.rows import DEVICES_PER_PERSON_MAX, GIVEN, OUTCOME_DAYS, PushDevice, PushOutcome

PEOPLE_AT_ONCE_MAX = 64
OUTCOME_SECONDS = OUTCOME_DAYS * MS_PER_DAY // MS_PER_SECOND
PUT_RUNG = (
    f"INSERT INTO {PUSH_RUNG} (chat_id, user_id, device_id, sequence) VALUES (?, ?, ?, ?)"
    f" USING TIMESTAMP ? AND TTL {OUTCOME_SECONDS}"
)
READ_RUNG = f"SELECT sequence FROM {PUSH_RUNG} WHERE chat_id = ? AND user_id = ? AND device_id = ?"
PUT_KEY = f"INSERT INTO {SCHEMA} (name, value) VALUES (?, ?) IF NOT EXISTS"
SET_FANOUT = f"UPDATE {CHATS} SET fanout = ? WHERE chat_id = ?"
READ_FANOUT = f"SELECT fanout, record FROM {CHATS} WHERE chat_id = ?"

Change = Callable[[list[PushDevice]], list[PushDevice] | None]


class CassandraPush:
    def __init__(self, cassandra: Cassandra) -> None:
        self._cassandra = cassandra
        self.devices = CassandraPushDevices(cassandra)
        self.outcomes = CassandraPushOutcomes(cassandra)
        self.fanouts = CassandraChatFanouts(cassandra)


class CassandraPushDevices:
    def __init__(self, cassandra: Cassandra) -> None:
        self._devices = JsonRows(cassandra, PUSH_DEVICES, ("user_id",), list[PushDevice])

    async def put(self, device: PushDevice) -> bool:
        def with_it(devices: list[PushDevice]) -> list[PushDevice] | None:
            others = [one for one in devices if one.device_id != device.device_id]
            if len(others) >= DEVICES_PER_PERSON_MAX:
                return None
            return sorted([*others, device], key=lambda one: one.device_id)

        return await self._change(device.user_id, with_it)

    async def remove(self, user_id: str, device_id: str, address: str | None = None) -> bool:
        def without_it(devices: list[PushDevice]) -> list[PushDevice] | None:
            found = next((one for one in devices if one.device_id == device_id), None)
            if found is None or address not in (None, found.address):
                return None
            return [one for one in devices if one.device_id != device_id]

        return await self._change(user_id, without_it)

    async def _change(self, user_id: str, change: Change) -> bool:
        if not is_key(user_id):
            return False
        return await self._devices.change(user_id, change=lambda before: change(before or [])) is not None

    async def of(self, user_ids: Sequence[str]) -> dict[str, list[PushDevice]]:
        asked = [user_id for user_id in dict.fromkeys(user_ids) if is_key(user_id)]
        found = await map_concurrently(self._devices.get, asked, PEOPLE_AT_ONCE_MAX)
        return {user_id: devices for user_id, devices in zip(asked, found, strict=True) if devices}

    async def are_there(self) -> bool:
        async for devices in self._devices.pages():
            if devices:
                return True
        return False


class CassandraPushOutcomes:
    """One row for each message and device; Cassandra deletes them when their time is over."""

    def __init__(self, cassandra: Cassandra) -> None:
        self._cassandra = cassandra
        keys = ("chat_id", "sequence", "user_id", "device_id")
        self._outcomes = JsonRows(cassandra, PUSH_OUTCOMES, keys, PushOutcome)

    async def note(self, outcome: PushOutcome) -> None:
        """The newest position that rang is written with itself as the time: it never goes back."""
        device = (outcome.user_id, outcome.device_id)
        if outcome.outcome in GIVEN:
            at = outcome.sequence
            await self._cassandra.write(PUT_RUNG, outcome.chat_id, *device, at, at)
        place = (outcome.chat_id, outcome.sequence, *device)
        await self._outcomes.put(*place, record=outcome, seconds=OUTCOME_SECONDS)

    async def find(self, chat_id: str, sequence: int, user_id: str, device_id: str) -> PushOutcome | None:
        if not is_key(chat_id, user_id, device_id):
            return None
        return await self._outcomes.get(chat_id, sequence, user_id, device_id)

    async def rung_through(self, chat_id: str, user_id: str, device_id: str) -> int:
        if not is_key(chat_id, user_id, device_id):
            return 0
        row = await self._cassandra.row(READ_RUNG, chat_id, user_id, device_id)
        return 0 if row is None else int(row["sequence"] or 0)

    async def of_message(self, chat_id: str, sequence: int) -> list[PushOutcome]:
        return await self._outcomes.all(chat_id, sequence) if is_key(chat_id) else []

    async def expire(self, before_ms: int) -> int:
        return 0


class CassandraChatFanouts:
    def __init__(self, cassandra: Cassandra) -> None:
        self._cassandra = cassandra

    async def of(self, chat_id: str) -> Fanout | None:
        row = await self._cassandra.row(READ_FANOUT, chat_id) if is_key(chat_id) else None
        return Fanout(row["fanout"]) if row is not None and row["fanout"] else None

    async def choose(self, chat_id: str, fanout: Fanout | None) -> None:
        row = await self._cassandra.row(READ_FANOUT, chat_id) if is_key(chat_id) else None
        if row is not None and row["record"] is not None:
            await self._cassandra.write(SET_FANOUT, fanout.value if fanout is not None else "", chat_id)
