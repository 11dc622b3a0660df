"""Leases of jobs, and what nodes say of their jobs; `scripts` documents the keys.

A record counts only if a node of this cluster signed it: by it the next runner knows when a job is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec
import structlog

from parley.clock import MS_PER_SECOND
from parley.core.cluster_keys import JOB_RECORDS, ClusterKeys
from parley.core.jobs import JobRecord
from parley.core.log_limits import LineLimit
from parley.ephemeral.local import record_seconds
from parley.ephemeral.ports import CLUSTER_RECORD_SECONDS
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.client import PassedOver, RedisClient, Value

KEY = "job_records"

decode_record = msgspec.json.Decoder(JobRecord).decode

log = structlog.get_logger("parley.ephemeral")


class RedisLeases:
    def __init__(self, client: RedisClient, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix
        self._hold = client.script(scripts.HOLD)
        self._let_go = client.script(scripts.LET_GO)

    async def hold(self, name: str, holder: str, seconds: float) -> bool | None:
        values = holder, round(seconds * MS_PER_SECOND)
        held = await self._client.call(partial(self._hold, [self._key(name)], values))
        return None if held is None else bool(held)

    async def release(self, name: str, holder: str) -> None:
        await self._client.call(partial(self._let_go, [self._key(name)], [holder]))

    def _key(self, name: str) -> str:
        return f"{self._prefix}lease:{name}"


class RedisJobRecords:
    def __init__(
        self,
        client: RedisClient,
        keys: ClusterKeys,
        prefix: str = "",
        passed_over: PassedOver = lambda _: None,
    ) -> None:
        self._client = client
        self._key = prefix + KEY
        self._ring = keys.ring(JOB_RECORDS, self._key)
        self._record = client.script(scripts.RECORD)
        self._alive = client.script(scripts.ALIVE)
        self._passed_over = passed_over
        self._lines = LineLimit()

    async def put(self, records: Sequence[JobRecord]) -> None:
        values: list[Value] = [round(CLUSTER_RECORD_SECONDS * MS_PER_SECOND)]
        for record in records:
            data = msgspec.json.encode(record)
            values += record.key, round(record_seconds(record) * MS_PER_SECOND)
            values.append(f"{self._ring.tag(data).hex()} {data.decode()}")
        await self._client.call(partial(self._record, [self._key], values))

    async def all(self) -> list[JobRecord] | None:
        kept = await self._client.call(partial(self._alive, [self._key], []))
        if kept is None:
            return None
        found = [record for value in kept if (record := self._proven(value)) is not None]
        return sorted(found, key=lambda record: record.key)

    def _proven(self, value: bytes) -> JobRecord | None:
        tag, _, data = value.partition(b" ")
        try:
            if self._ring.accepts(data, bytes.fromhex(tag.decode())):
                return decode_record(data)
        except (ValueError, msgspec.MsgspecError):
            pass
        self._passed_over("job record")
        if (more := self._lines.admit(KEY, asyncio.get_running_loop().time())) is not None:
            log.warning(
                "job record passed over", reason="it is not signed with this cluster's secret", **more
            )
        return None

    async def remove(self, keys: Sequence[str]) -> None:
        if keys:
            await self._client.call(lambda: self._client.redis.hdel(self._key, *keys))
