"""Webhooks: entries as signed HTTP requests to addresses of integrators."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from parley.clock import MS_PER_SECOND, Clock, from_iso
from parley.core.client_address import Network
from parley.core.deliveries import Webhook
from parley.core.retry import DeliveryFailure, Fault, retry_after_ms
from parley.delivery.attempts import time_of
from parley.delivery.events import chat_of
from parley.delivery.guarded_http import GuardedHttp, Resolve, resolve_by_system
from parley.delivery.ports import Delivery
from parley.model import Kind, Persisted
from parley.records.webhooks import Webhooks
from parley.wire.frames import Entry
from parley.wire.webhook_events import EventName

SIGNATURE, EVENT_ID = "Parley-Signature", "Parley-Event-Id"
LOG_EVENTS: Mapping[str, EventName] = {
    Kind.MESSAGE: EventName.MESSAGE_CREATED,
    Kind.EDIT: EventName.MESSAGE_EDITED,
    Kind.DELETE: EventName.MESSAGE_DELETED,
    Kind.REACTION: EventName.MESSAGE_REACTED,
    Kind.MEMBER: EventName.MEMBER_CHANGED,
    Kind.CHAT: EventName.CHAT_CHANGED,
}
"""The event of each kind of entry in logs. In other streams the kind is the event."""
PAUSED = DeliveryFailure(Fault.BUSY, "paused by an operator")
TEST_EVENT = "webhook.test"
"""Sent when an operator asks for it, whatever events the webhook wants."""
BUSY_STATUSES = frozenset({408, 425, 429})


class WebhookEvent(Struct):
    """The body of a delivery. `data` is the entry as clients get it, or what happened beside the logs."""

    event_id: str
    type: str
    created_at: str
    chat_id: str | None
    data: Raw


def signature(secret: str, body: bytes, now_ms: int) -> str:
    """The header with which a receiver checks that a delivery is from this server, and recent."""
    seconds = now_ms // MS_PER_SECOND
    signed = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={signed}"


def event_of(entry: Entry) -> str:
    return LOG_EVENTS.get(entry.kind, entry.kind)


class WebhookRecipient(Struct, frozen=True):
    """One webhook."""

    hook: Webhook
    http: GuardedHttp
    clock: Clock

    async def wants(self, entry: Entry) -> bool:
        """Only what happened since the webhook was added."""
        hook = self.hook
        return event_of(entry) in hook.events and from_iso(entry.created_at) >= hook.created_ms

    async def attempt(self, delivery: Delivery) -> DeliveryFailure | None:
        entry = delivery.entry
        if self.hook.is_paused:  # as if it were away: what it is owed stays in order, and waits
            return PAUSED
        data = Raw(delivery.wire if entry.kind in LOG_EVENTS else entry.content.encode())
        event = WebhookEvent(
            delivery.event_id, event_of(entry), entry.created_at, entry.chat_id or None, data
        )
        return await send_event(self.hook, self.http, event, self.clock())


async def send_event(
    hook: Webhook, http: GuardedHttp, event: WebhookEvent, now_ms: int
) -> DeliveryFailure | None:
    """Send it now, signed; None if it has arrived."""
    body = msgspec.json.encode(event)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Parley",
        SIGNATURE: signature(hook.secret, body, now_ms),
        EVENT_ID: event.event_id,
    }
    answer = await http.post(hook.url, body, headers)
    if isinstance(answer, DeliveryFailure):
        return answer
    return judge(answer.status, answer.retry_after, now_ms)


class WebhookChannel:
    """Delivers entries to webhooks, every one of them and in order."""

    def __init__(
        self,
        webhooks: Webhooks,
        allowed: Sequence[Network],
        clock: Clock,
        resolve: Resolve = resolve_by_system,
    ) -> None:
        self._webhooks = webhooks
        self._clock = clock
        self._http = GuardedHttp(allowed, resolve)

    async def owed(self, news: Persisted) -> list[str]:
        wires = [stored.wire for stored in news.positions if stored.wire is not None]
        until_ms = time_of(wires[-1]) if wires else None
        hooks = [hook for hook in await self._webhooks.all() if _is_about(hook, news.chat_id)]
        return [hook.webhook_id for hook in hooks if until_ms is None or until_ms >= hook.created_ms]

    async def recipient(self, recipient_id: str, stream_id: str) -> WebhookRecipient | None:
        hooks = await self._webhooks.all()
        hook = next((hook for hook in hooks if hook.webhook_id == recipient_id), None)
        if hook is None or not _is_about(hook, stream_id):
            return None
        return WebhookRecipient(hook, self._http, self._clock)

    async def close(self) -> None:
        """Close what is open; the next delivery opens it again."""
        await self._http.close()


def _is_about(hook: Webhook, stream_id: str) -> bool:
    return hook.chat_id in ("", chat_of(stream_id))


def judge(status: int, retry_after: str, now_ms: int) -> DeliveryFailure | None:
    """What a receiver's answer means: only 2xx is a delivery. `retry_after`: its header."""
    if 200 <= status < 300:
        return None
    if status in BUSY_STATUSES or status >= 500:
        fault = Fault.BUSY if status in BUSY_STATUSES else Fault.SERVER_ERROR
        return DeliveryFailure(fault, f"answered {status}", retry_after_ms(retry_after, now_ms))
    what = "a redirect, which is not followed" if 300 <= status < 400 else "so it was refused"
    return DeliveryFailure(Fault.REFUSED, f"answered {status}, {what}")
