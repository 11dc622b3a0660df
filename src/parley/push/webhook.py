"""Notifications as signed requests to an address that the person chose."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType

from parley.clock import Clock
from parley.core.push_devices import PushDevice
from parley.core.retry import DeliveryFailure
from parley.delivery.guarded_http import GuardedHttp
from parley.delivery.webhooks import EVENT_ID, SIGNATURE, judge, signature
from parley.push.ports import Notification, PushAnswer, failed, gone, taken

TYPE = "push.notification"
GONE = 410
"""With this status a receiver asks for no more of them; any other refusal may be a mistake of its own."""


class PushEvent(Struct):
    """The body. `content` and `sender_id` are there if the device wants previews."""

    event_id: str
    type: str
    created_at: str
    user_id: str
    device_id: str
    chat_id: str
    message_id: str
    badge: int
    title: str
    content: str | UnsetType = UNSET
    sender_id: str | UnsetType = UNSET


class WebhookPush:
    def __init__(self, http: GuardedHttp, clock: Clock) -> None:
        self._http = http
        self._clock = clock

    async def send(self, device: PushDevice, notification: Notification) -> PushAnswer:
        has_preview = notification.content is not None
        body = msgspec.json.encode(
            PushEvent(
                event_id=notification.event_id,
                type=TYPE,
                created_at=notification.created_at,
                user_id=device.user_id,
                device_id=device.device_id,
                chat_id=notification.chat_id,
                message_id=notification.message_id,
                badge=notification.badge,
                title=notification.title,
                content=notification.content if notification.content is not None else UNSET,
                sender_id=notification.sender_id if has_preview else UNSET,
            )
        )
        now_ms = self._clock()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Parley",
            SIGNATURE: signature(device.secret, body, now_ms),
            EVENT_ID: notification.event_id,
        }
        answer = await self._http.post(device.address, body, headers)
        if isinstance(answer, DeliveryFailure):
            return failed(answer)
        if answer.status == GONE:
            return gone("410")
        failure = judge(answer.status, answer.retry_after, now_ms)
        return taken(str(answer.status)) if failure is None else failed(failure)

    async def close(self) -> None:
        await self._http.close()
