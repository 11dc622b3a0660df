"""What is kept of push: devices, and what became of notifications. Pure."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

OUTCOME_DAYS = 30
"""How long it is known what became of a notification."""
DEVICES_PER_PERSON_MAX = 20


class Provider(StrEnum):
    """Who brings a notification to a device."""

    APNS = "apns"
    FCM = "fcm"
    WEBPUSH = "webpush"
    WEBHOOK = "webhook"


class PushDevice(Struct, frozen=True, kw_only=True):
    """A device that notifications are sent to.

    `address`: the token of APNs or FCM, the endpoint of Web Push, the URL of a webhook. `public_key` and
    `auth`: of a Web Push subscription. `secret`: what requests to a webhook are signed with.
    """

    user_id: str
    device_id: str
    provider: Provider
    address: str
    public_key: str = ""
    auth: str = ""
    preview: bool = True
    secret: str = ""
    created_ms: int


class PersonPushDevices(Struct, frozen=True, kw_only=True):
    """The devices of a person, in the order of their ids."""

    user_id: str
    devices: tuple[PushDevice, ...]


class NotifiedThrough(Struct, frozen=True, kw_only=True):
    """The newest position of a chat that was given to the provider of a device. `since_ms`: of the first."""

    chat_id: str
    user_id: str
    device_id: str
    since_ms: int
    sequence: int = 0


class NotificationOutcome(StrEnum):
    """What became of a notification. `ringing`: it was given to the provider, whose answer is not known."""

    RINGING = "ringing"
    PUSHED = "pushed"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"


GIVEN = (NotificationOutcome.RINGING, NotificationOutcome.PUSHED)
"""Outcomes that say that a provider has, or may have, the notification."""


class PushOutcome(Struct, frozen=True, kw_only=True):
    """What became of one message on one device. `detail`: the provider's answer, or why not."""

    chat_id: str
    sequence: int
    user_id: str
    device_id: str
    provider: Provider
    outcome: NotificationOutcome
    detail: str
    at_ms: int
