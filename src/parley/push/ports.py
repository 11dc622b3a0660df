"""What push needs of those who bring a notification to a device."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from parley.core.push_devices import PushDevice
from parley.core.retry import DeliveryFailure

DETAIL_CHARS_MAX = 500


SEPARATOR = "/"
"""Between a person and their device, in the id of a recipient. No user id holds it."""


def recipient_of(user_id: str, device_id: str) -> str:
    return f"{user_id}{SEPARATOR}{device_id}"


class Notification(Struct, frozen=True, kw_only=True):
    """What a device shows: one notification for each chat, about its newest message.

    `event_id`: the same in every attempt. `collapse_id`: the same for every message of a chat. `content`:
    None if the device wants no previews; then `title` says nothing either. `is_repeated`: a provider may
    have it already, so it must not make a sound again.
    """

    event_id: str
    collapse_id: str
    chat_id: str
    message_id: str
    sender_id: str
    sequence: int
    created_at: str
    title: str
    content: str | None
    badge: int
    is_repeated: bool = False


class PushVerdict(StrEnum):
    """What a provider's answer means. `gone`: this device has no such token any more."""

    TAKEN = "taken"
    GONE = "gone"
    FAILED = "failed"


class PushAnswer(Struct, frozen=True):
    """A provider's answer. `detail` is kept for timelines; `failure` is there if it failed."""

    verdict: PushVerdict
    detail: str
    failure: DeliveryFailure | None = None


class PushProvider(Protocol):
    """One service that brings notifications to devices."""

    async def send(self, device: PushDevice, notification: Notification) -> PushAnswer:
        """Try once, within a bounded time. Raises nothing that a provider or a network can cause."""
        ...

    async def close(self) -> None:
        """Close connections; the next notification opens them again."""
        ...


class VapidKeys(Protocol):
    """The server's key pair for Web Push, the same on every node."""

    async def public_key(self) -> str:
        """65 bytes in base64url, as browsers want it."""
        ...

    def check_subscription(self, public_key: str, auth: str) -> None:
        """ValueError unless these can be the keys of a browser's subscription."""
        ...


def taken(detail: str) -> PushAnswer:
    return PushAnswer(PushVerdict.TAKEN, detail[:DETAIL_CHARS_MAX])


def gone(detail: str) -> PushAnswer:
    return PushAnswer(PushVerdict.GONE, detail[:DETAIL_CHARS_MAX])


def failed(failure: DeliveryFailure) -> PushAnswer:
    return PushAnswer(
        PushVerdict.FAILED, f"{failure.fault.value}: {failure.detail}"[:DETAIL_CHARS_MAX], failure
    )
