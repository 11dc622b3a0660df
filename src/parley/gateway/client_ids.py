"""Ids of messages that are sent with an `Idempotency-Key`, made with a secret that all nodes share."""

from __future__ import annotations

from collections.abc import Callable

from parley import ids
from parley.clock import Clock
from parley.core.idempotency import IdempotencySecret, client_id_of, earlier_client_id_of
from parley.records.server_keys import ServerKeys
from parley.store.ports import Log
from parley.wire.codec import decode_entry

KEY_NAME = "idempotency"
"""The server's key has this name in the store: all nodes use the same one."""
SECRET_BYTES = 32


class ServerSecret:
    """The first node to ask makes it; `parley copy` and backups carry it along."""

    def __init__(self, keys: ServerKeys, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self._keys = keys
        self._clock = clock
        self._random_bytes = random_bytes
        self._secret: IdempotencySecret | None = None

    async def get(self) -> IdempotencySecret:
        if self._secret is None:
            new = IdempotencySecret(self._random_bytes(SECRET_BYTES), self._clock())
            self._secret = IdempotencySecret.parse(await self._keys.key(KEY_NAME, str(new)))
        return self._secret


class ClientIds:
    """The id that stands for a key of a sender in a chat."""

    def __init__(self, secret: ServerSecret, log: Log, clock: Clock) -> None:
        self._secret = secret
        self._log = log
        self._clock = clock

    async def of_key(self, key: str, sender_id: str, chat_id: str) -> str:
        """For some days after an upgrade, the earlier id of this key if the sender has a message under it."""
        secret = await self._secret.get()
        if secret.may_meet_earlier_ids(self._clock()):
            earlier = earlier_client_id_of(key, sender_id, chat_id)
            if await self._is_of(sender_id, chat_id, earlier):
                return earlier
        return client_id_of(key, sender_id, chat_id, secret)

    async def _is_of(self, sender_id: str, chat_id: str, client_id: str) -> bool:
        client_key = ids.client_key(client_id)
        assert client_key is not None
        wire = await self._log.find_key(chat_id, client_key)
        return wire is not None and decode_entry(wire).sender_id == sender_id
