"""Which devices are connected to which node, and who is online; `scripts` documents the keys.

Every write also goes to a local registry, which answers while Redis cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import msgspec
import structlog
from msgspec import Struct

from parley.clock import MS_PER_SECOND
from parley.ephemeral.callbacks import Callbacks
from parley.ephemeral.local import LocalRegistry
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, Device, Presence
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.client import RedisChannels, RedisClient, Value, chunks

CLAIMS_PER_CALL_MAX = 250
PEOPLE_PER_CALL_MAX = 500
CHANNEL = "presence_channel"

log = structlog.get_logger("parley.ephemeral")


class PresenceRecord(Struct):
    """The JSON in `presence:{user_id}` and on the channel; only the channel has the user id."""

    status: Literal["online", "offline"]
    last_active: int
    user_id: str = ""

    def presence(self, user_id: str) -> Presence:
        return Presence(user_id, self.status == "online", self.last_active)


decode_record = msgspec.json.Decoder(PresenceRecord).decode
decode_news = msgspec.json.Decoder(list[PresenceRecord]).decode


class RedisRegistry:
    def __init__(
        self,
        client: RedisClient,
        channels: RedisChannels,
        local: LocalRegistry,
        prefix: str = "",
        lease_seconds: float = DEVICE_LEASE_SECONDS,
    ) -> None:
        self._client = client
        self._local = local
        self._prefix = prefix
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._lease = client.script(scripts.LEASE)
        self._release = client.script(scripts.RELEASE)
        self._end = client.script(scripts.END)
        self._whereabouts = client.script(scripts.WHEREABOUTS)
        self._watchers = Callbacks[Presence]()
        self._channel = prefix + CHANNEL
        channels.subscribe(self._channel, self._receive)

    async def connected(self, devices: Sequence[Device], node_id: str) -> None:
        await self._local.connected(devices, node_id)
        for some in chunks(devices, CLAIMS_PER_CALL_MAX):
            await self._leased(some, node_id, is_new=True)

    async def renew(self, devices: Sequence[Device], node_id: str) -> list[Presence]:
        gone_locally = await self._local.renew(devices, node_id)
        run_out: list[bytes] | None = []
        for some in list(chunks(devices, CLAIMS_PER_CALL_MAX)) or [[]]:
            run_out = await self._leased(some, node_id, is_new=False)
        gone: list[Presence] = []
        while run_out:
            ended = await self._ended([user_id.decode() for user_id in run_out])
            if ended is None:
                break
            run_out = ended[1]
            gone += ended[0]
        return gone_locally if run_out is None else gone

    async def _leased(self, devices: Sequence[Device], node_id: str, *, is_new: bool) -> list[bytes] | None:
        """Returns some of the people whose leases have expired."""
        keys = self._keys(user_id for user_id, _ in devices)
        values: list[Value] = [self._channel, PEOPLE_PER_CALL_MAX, node_id, self._lease_ms, int(is_new)]
        values += (part for device in devices for part in device)
        return await self._client.call(partial(self._lease, keys, values))

    async def _ended(self, user_ids: list[str]) -> tuple[list[Presence], list[bytes]] | None:
        """Returns the people whom this call took offline, and some whose expired leases remain."""
        values: list[Value] = [self._channel, PEOPLE_PER_CALL_MAX, self._lease_ms, *user_ids]
        answer = await self._client.call(partial(self._end, self._keys(user_ids), values))
        return None if answer is None else (_presences(answer[0]), answer[1])

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> list[Presence]:
        devices = list(devices)
        gone: list[Presence] = []
        for some in chunks(devices, CLAIMS_PER_CALL_MAX):
            gone_locally = await self._local.disconnected(some, node_id)
            keys = self._keys(user_id for user_id, _ in some)
            values = [self._channel, node_id, *(part for device in some for part in device)]
            answer = await self._client.call(partial(self._release, keys, values))
            gone += gone_locally if answer is None else _presences(answer)
        return gone

    async def whereabouts(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for some in chunks(user_ids, PEOPLE_PER_CALL_MAX):
            answer = await self._client.call(partial(self._find, some))
            found |= await self._local.whereabouts(some) if answer is None else answer
        return found

    async def _find(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        keys = [f"{self._prefix}devices:{user_id}" for user_id in user_ids]
        leases = await self._whereabouts(keys, [])
        return {user_id: _latest(held) for user_id, held in zip(user_ids, leases, strict=True) if held}

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        found: list[Presence] = []
        for some in chunks(user_ids, PEOPLE_PER_CALL_MAX):
            answer = await self._client.call(partial(self._read, some))
            found += await self._local.presences(some) if answer is None else answer
        return found

    async def _read(self, user_ids: Sequence[str]) -> list[Presence]:
        kept = await self._client.redis.mget([f"{self._prefix}presence:{user_id}" for user_id in user_ids])
        return [
            Presence(user_id, False, 0) if record is None else decode_record(record).presence(user_id)
            for user_id, record in zip(user_ids, kept, strict=True)
        ]

    def watch(self, changed: Callable[[Presence], None]) -> Callable[[], None]:
        return self._watchers.add(changed)

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        return self._client.on_return(returned)

    def _receive(self, data: bytes) -> None:
        try:
            news = _presences(data)
        except msgspec.DecodeError as error:
            log.debug("message is not a presence", channel=self._channel, error=str(error))
            return
        for presence in news:
            self._watchers.notify(presence)

    def _keys(self, user_ids: Iterable[str]) -> list[str]:
        keys = [f"{self._prefix}presence_leases"]
        for user_id in user_ids:
            keys += f"{self._prefix}devices:{user_id}", f"{self._prefix}presence:{user_id}"
        return keys


def _presences(news: bytes) -> list[Presence]:
    return [record.presence(record.user_id) for record in decode_news(news)]


def _latest(held: list[bytes]) -> dict[str, str]:
    """For each device, the node that it connected to last."""
    leases = sorted(zip(map(int, held[2::3]), held[0::3], held[1::3], strict=True))
    return {device_id.decode(): node_id.decode() for _, device_id, node_id in leases}
