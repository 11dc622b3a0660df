"""Web Push: encrypted by RFC 8291, authenticated by RFC 8292 (VAPID), sent by RFC 8030.

Its cryptography is imported when the first device needs it: that takes longer than opening the store.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType

from parley.clock import Clock
from parley.core.push_devices import PushDevice
from parley.core.retry import DeliveryFailure, Fault
from parley.delivery.guarded_http import GuardedHttp
from parley.push.answers import judge_status
from parley.push.ports import Notification, PushAnswer, failed
from parley.records.server_keys import ServerKeys

if TYPE_CHECKING:
    from parley.push.webpush_crypto import RandomBytes, VapidKey

TTL_SECONDS = 86_400
PACKAGES = ("cryptography", "jwt")
CRYPTO = "parley.push.webpush_crypto"


def is_installed() -> bool:
    return all(find_spec(package) is not None for package in PACKAGES)


class WebPushBody(Struct):
    """What the service worker of a page gets, decrypted. `tag` is for `showNotification`: it replaces the
    notification of the same chat. `repeated`: show it without a sound, it may be there already."""

    event_id: str
    chat_id: str
    message_id: str
    tag: str
    title: str
    badge: int
    repeated: bool
    content: str | UnsetType = UNSET
    sender_id: str | UnsetType = UNSET


class StoredVapidKeys:
    """The configured key, or the one that the first node made and stored."""

    def __init__(self, configured: str, keys: ServerKeys) -> None:
        self._key: VapidKey | None = None
        self._keys = keys
        if configured:  # one that is none is found now
            from parley.push.webpush_crypto import VapidKey

            self._key = VapidKey(configured)

    async def get(self) -> VapidKey:
        if self._key is None:
            await asyncio.to_thread(import_module, CRYPTO)
            from parley.push.webpush_crypto import VapidKey

            self._key = VapidKey(await self._keys.key("vapid", VapidKey.new()))
        return self._key

    async def public_key(self) -> str:
        return (await self.get()).public_key

    def check_subscription(self, public_key: str, auth: str) -> None:
        from parley.push.webpush_crypto import check_subscription

        check_subscription(public_key, auth)


class WebPush:
    def __init__(
        self,
        http: GuardedHttp,
        key: Callable[[], Awaitable[VapidKey]],
        subject: str,
        clock: Clock,
        random_bytes: RandomBytes = os.urandom,
    ) -> None:
        self._http = http
        self._key = key
        self._subject = subject
        self._clock = clock
        self._random_bytes = random_bytes

    async def send(self, device: PushDevice, notification: Notification) -> PushAnswer:
        key = await self._key()
        from parley.push.webpush_crypto import encrypt

        shown = notification.content
        body = msgspec.json.encode(
            WebPushBody(
                event_id=notification.event_id,
                chat_id=notification.chat_id,
                message_id=notification.message_id,
                tag=notification.collapse_id,
                title=notification.title,
                badge=notification.badge,
                repeated=notification.is_repeated,
                content=UNSET if shown is None else shown,
                sender_id=UNSET if shown is None else notification.sender_id,
            )
        )
        try:
            sealed = encrypt(body, device.public_key, device.auth, self._random_bytes)
        except ValueError as error:
            return failed(
                DeliveryFailure(Fault.MALFORMED, f"the subscription's keys cannot be used: {error}")
            )
        now_ms = self._clock()
        headers = {
            "Authorization": key.authorization(device.address, self._subject, now_ms),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TTL_SECONDS),
            "Topic": notification.collapse_id,
            "Urgency": "normal" if notification.is_repeated else "high",
        }
        answer = await self._http.post(device.address, sealed, headers)
        if isinstance(answer, DeliveryFailure):
            return failed(answer)
        return judge_status(answer.status, answer.text, answer.retry_after, now_ms)

    async def close(self) -> None:
        await self._http.close()
