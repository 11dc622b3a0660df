"""Who is connected where, and who is online; `scripts` says what is kept under which key.

Whatever is told to Redis is told to a local registry too: it answers while Redis is out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import msgspec
import structlog
from msgspec import Struct

from parley.clock import MS_PER_SECOND
from parley.ephemeral.listeners import Listeners
from parley.ephemeral.local import LocalRegistry
from parley.ephemeral.ports import DEVICE_LEASE_SECONDS, Device, Presence
from parley.ephemeral.redis import scripts
from parley.ephemeral.redis.channels import Channels
from parley.ephemeral.redis.link import Link, Value, chunks

CLAIMS_PER_CALL_MAX = 250
PEOPLE_PER_CALL_MAX = 500
CHANNEL = "presence_channel"

log = structlog.get_logger("parley.ephemeral")


class Status(Struct):
    """What `presence:{user_id}` and the channel say; only the channel says of whom."""

    status: Literal["online", "offline"]
    last_active: int
    user_id: str = ""

    def presence(self, user_id: str) -> Presence:
        return Presence(user_id, self.status == "online", self.last_active)


decode_status = msgspec.json.Decoder(Status).decode
decode_news = msgspec.json.Decoder(list[Status]).decode


class RedisRegistry:
    def __init__(
        self,
        link: Link,
        channels: Channels,
        here: LocalRegistry,
        prefix: str = "",
        lease_seconds: float = DEVICE_LEASE_SECONDS,
    ) -> None:
        self._link = link
        self._here = here
        self._prefix = prefix
        self._lease_ms = round(lease_seconds * MS_PER_SECOND)
        self._claim = link.script(scripts.CLAIM)
        self._release = link.script(scripts.RELEASE)
        self._end = link.script(scripts.END)
        self._whereabouts = link.script(scripts.WHEREABOUTS)
        self._watching = Listeners[Presence]()
        self._channel = prefix + CHANNEL
        channels.hear(self._channel, self._heard)

    async def connected(self, devices: Sequence[Device], node_id: str) -> None:
        await self._here.connected(devices, node_id)
        for some in chunks(devices, CLAIMS_PER_CALL_MAX):
            await self._claimed(some, node_id, is_new=True)

    async def renew(self, devices: Sequence[Device], node_id: str) -> list[Presence]:
        gone_here = await self._here.renew(devices, node_id)
        run_out: list[bytes] | None = []
        for some in list(chunks(devices, CLAIMS_PER_CALL_MAX)) or [[]]:
            run_out = await self._claimed(some, node_id, is_new=False)
        gone: list[Presence] = []
        while run_out:
            ended = await self._ended([user_id.decode() for user_id in run_out])
            if ended is None:
                break
            run_out = ended[1]
            gone += ended[0]
        return gone_here if run_out is None else gone

    async def _claimed(self, devices: Sequence[Device], node_id: str, *, is_new: bool) -> list[bytes] | None:
        """Returns some of those whose leases have run out."""
        keys = self._keys(user_id for user_id, _ in devices)
        values: list[Value] = [self._channel, PEOPLE_PER_CALL_MAX, node_id, self._lease_ms, int(is_new)]
        values += (part for device in devices for part in device)
        return await self._link.call(partial(self._claim, keys, values))

    async def _ended(self, user_ids: list[str]) -> tuple[list[Presence], list[bytes]] | None:
        """Returns those whom this call took offline, and some of those who are left."""
        values: list[Value] = [self._channel, PEOPLE_PER_CALL_MAX, self._lease_ms, *user_ids]
        told = await self._link.call(partial(self._end, self._keys(user_ids), values))
        return None if told is None else (_presences(told[0]), told[1])

    async def disconnected(self, devices: Iterable[Device], node_id: str) -> list[Presence]:
        devices = list(devices)
        gone: list[Presence] = []
        for some in chunks(devices, CLAIMS_PER_CALL_MAX):
            gone_here = await self._here.disconnected(some, node_id)
            keys = self._keys(user_id for user_id, _ in some)
            values = [self._channel, node_id, *(part for device in some for part in device)]
            told = await self._link.call(partial(self._release, keys, values))
            gone += gone_here if told is None else _presences(told)
        return gone

    async def whereabouts(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for some in chunks(user_ids, PEOPLE_PER_CALL_MAX):
            told = await self._link.call(partial(self._find, some))
            found |= await self._here.whereabouts(some) if told is None else told
        return found

    async def _find(self, user_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        keys = [f"{self._prefix}devices:{user_id}" for user_id in user_ids]
        claims = await self._whereabouts(keys, [])
        return {user_id: _latest(held) for user_id, held in zip(user_ids, claims, strict=True) if held}

    async def presences(self, user_ids: Sequence[str]) -> list[Presence]:
        found: list[Presence] = []
        for some in chunks(user_ids, PEOPLE_PER_CALL_MAX):
            told = await self._link.call(partial(self._look, some))
            found += await self._here.presences(some) if told is None else told
        return found

    async def _look(self, user_ids: Sequence[str]) -> list[Presence]:
        kept = await self._link.client.mget([f"{self._prefix}presence:{user_id}" for user_id in user_ids])
        return [
            Presence(user_id, False, 0) if status is None else decode_status(status).presence(user_id)
            for user_id, status in zip(user_ids, kept, strict=True)
        ]

    def watch(self, changed: Callable[[Presence], None]) -> Callable[[], None]:
        return self._watching.add(changed)

    def on_return(self, returned: Callable[[], None]) -> Callable[[], None]:
        return self._link.on_return(returned)

    def _heard(self, data: bytes) -> None:
        try:
            news = _presences(data)
        except msgspec.DecodeError as error:
            log.debug("not a presence", channel=self._channel, error=str(error))
            return
        for presence in news:
            self._watching.tell(presence)

    def _keys(self, user_ids: Iterable[str]) -> list[str]:
        keys = [f"{self._prefix}presence_leases"]
        for user_id in user_ids:
            keys += f"{self._prefix}devices:{user_id}", f"{self._prefix}presence:{user_id}"
        return keys


def _presences(news: bytes) -> list[Presence]:
    return [status.presence(status.user_id) for status in decode_news(news)]


def _latest(held: list[bytes]) -> dict[str, str]:
    """Of each device the node that it connected to last."""
    claims = sorted(zip(map(int, held[2::3]), held[0::3], held[1::3], strict=True))
    return {device_id.decode(): node_id.decode() for _, device_id, node_id in claims}
