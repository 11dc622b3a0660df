"""The ports of push on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from parley.model import Fanout
from parley.store.push.rows import DEVICES_PER_PERSON_MAX, Provider, PushDevice, PushOutcome, RingOutcome
from parley.store.sqlite.reads import Reads, Row
from parley.store.sqlite.writer import Transaction, Writer

DEVICE_COLUMNS = ", ".join(PushDevice.__struct_fields__)
DEVICES = (
    f"SELECT {DEVICE_COLUMNS} FROM push_devices WHERE user_id IN (SELECT value FROM json_each(?))"
    " ORDER BY user_id, device_id"
)
OTHERS = "SELECT count(*) FROM push_devices WHERE user_id = ? AND device_id <> ?"
PUT_DEVICE = f"INSERT OR REPLACE INTO push_devices ({DEVICE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
REMOVE_DEVICE = (
    "DELETE FROM push_devices WHERE user_id = ?1 AND device_id = ?2 AND address = coalesce(?3, address)"
)

OUTCOME_COLUMNS = ", ".join(PushOutcome.__struct_fields__)
OUTCOMES = f"SELECT {OUTCOME_COLUMNS} FROM push_outcomes WHERE chat_id = ? AND sequence = ?"
NOTE = f"INSERT OR REPLACE INTO push_outcomes ({OUTCOME_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
RUNG_THROUGH = (
    "SELECT max(sequence) FROM push_outcomes WHERE chat_id = ? AND user_id = ? AND device_id = ?"
    " AND outcome IN ('ringing', 'pushed')"
)
EXPIRED_PER_STEP = 500
EXPIRE = (
    "DELETE FROM push_outcomes WHERE (chat_id, sequence, user_id, device_id) IN"
    " (SELECT chat_id, sequence, user_id, device_id FROM push_outcomes"
    f" WHERE at_ms < ? LIMIT {EXPIRED_PER_STEP})"
)


class SqlitePush:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._writer = writer
        self.devices = SqlitePushDevices(reads, writer)
        self.outcomes = SqlitePushOutcomes(reads, writer)
        self.fanouts = SqliteChatFanouts(reads, writer)


class SqlitePushDevices:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def put(self, device: PushDevice) -> bool:
        values = msgspec.structs.asdict(device) | {
            "provider": device.provider.value,
            "preview": int(device.preview),
        }

        def work(tx: Transaction) -> bool:
            row = tx.execute(OTHERS, (device.user_id, device.device_id)).fetchone()
            if row is not None and row[0] >= DEVICES_PER_PERSON_MAX:
                return False
            tx.execute(PUT_DEVICE, tuple(values.values()))
            return True

        return await self._writer.run(work)

    async def of(self, user_ids: Sequence[str]) -> dict[str, list[PushDevice]]:
        rows = self._reads.rows(DEVICES, (msgspec.json.encode(list(user_ids)).decode(),))
        people = groupby(map(_device, rows), key=lambda device: device.user_id)
        return {user_id: list(devices) for user_id, devices in people}

    async def remove(self, user_id: str, device_id: str, address: str | None = None) -> bool:
        def work(tx: Transaction) -> bool:
            tx.execute(REMOVE_DEVICE, (user_id, device_id, address))
            return tx.connection.changes() == 1

        return await self._writer.run(work)

    async def are_there(self) -> bool:
        return self._reads.row("SELECT 1 FROM push_devices LIMIT 1") is not None


class SqlitePushOutcomes:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def note(self, outcome: PushOutcome) -> None:
        values = msgspec.structs.asdict(outcome) | {
            "provider": outcome.provider.value,
            "outcome": outcome.outcome.value,
        }
        await self._writer.run(lambda tx: tx.execute(NOTE, tuple(values.values())))

    async def find(self, chat_id: str, sequence: int, user_id: str, device_id: str) -> PushOutcome | None:
        row = self._reads.row(
            f"{OUTCOMES} AND user_id = ? AND device_id = ?", (chat_id, sequence, user_id, device_id)
        )
        return _outcome(row) if row else None

    async def rung_through(self, chat_id: str, user_id: str, device_id: str) -> int:
        row = self._reads.row(RUNG_THROUGH, (chat_id, user_id, device_id))
        return int(row[0] or 0) if row else 0

    async def of_message(self, chat_id: str, sequence: int) -> list[PushOutcome]:
        return [_outcome(row) for row in self._reads.rows(OUTCOMES, (chat_id, sequence))]

    async def expire(self, before_ms: int) -> int:
        def work(tx: Transaction) -> int:
            tx.execute(EXPIRE, (before_ms,))
            return tx.connection.changes()

        gone = 0
        while step := await self._writer.run(work):
            gone += step
        return gone


class SqliteChatFanouts:
    def __init__(self, reads: Reads, writer: Writer) -> None:
        self._reads = reads
        self._writer = writer

    async def of(self, chat_id: str) -> Fanout | None:
        row = self._reads.row("SELECT fanout FROM chat_fanouts WHERE chat_id = ?", (chat_id,))
        return Fanout(row[0]) if row else None

    async def choose(self, chat_id: str, fanout: Fanout | None) -> None:
        def work(tx: Transaction) -> None:
            if fanout is None:
                tx.execute("DELETE FROM chat_fanouts WHERE chat_id = ?", (chat_id,))
            else:
                tx.execute("INSERT OR REPLACE INTO chat_fanouts VALUES (?, ?)", (chat_id, fanout.value))

        await self._writer.run(work)


def _device(row: Row) -> PushDevice:
    values = dict(zip(PushDevice.__struct_fields__, row, strict=True))
    return PushDevice(
        **values | {"provider": Provider(values["provider"]), "preview": bool(values["preview"])}
    )


def _outcome(row: Row) -> PushOutcome:
    values = dict(zip(PushOutcome.__struct_fields__, row, strict=True))
    return PushOutcome(
        **values | {"provider": Provider(values["provider"]), "outcome": RingOutcome(values["outcome"])}
    )
