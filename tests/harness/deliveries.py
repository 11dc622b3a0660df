"""The delivery checker: compares what a webhook and somebody's devices got with the logs of the chats.

    breaches = check_deliveries(logs, deliveries, rings)

`logs`: the message ids of each chat, in its order. Deliveries and rings are given in the order in which they
arrived. Both may come more than once, so what counts is when something was first seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct


class DeliveryRule(StrEnum):
    """The rules that deliveries must keep."""

    ALL_DELIVERED = "every stored message reaches the webhook"
    DELIVERED_IN_ORDER = "the webhook first sees the messages of a chat in their order"
    NOTHING_UNKNOWN = "what is delivered, or rings, is stored"
    ONE_EVENT_ID = "a message has one event id, and an event id one message"
    NEWEST_RINGS = "every device rings for the newest message of a chat that nobody reads"
    RINGS_IN_ORDER = "no ring replaces the notification of a newer message"
    ONE_NOTIFICATION = "all rings of a chat replace the same notification, that of no other chat"
    AUDIBLE_ONCE = "a message makes a device sound at most once"


class DeliveryBreach(Struct, frozen=True):
    """One breach of one rule, in a sentence."""

    rule: DeliveryRule
    says: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.says} ({self.rule.value})"


class ArrivedDelivery(Struct, frozen=True):
    """A request that a webhook got."""

    chat_id: str
    message_id: str
    event_id: str


class ArrivedRing(Struct, frozen=True):
    """A ring that a device got. `collapse_id`: the notification that it replaces, if the provider tells.

    `is_silent`: the device knows it as a repetition, and makes no sound.
    """

    device_id: str
    chat_id: str
    message_id: str
    event_id: str
    is_silent: bool
    collapse_id: str = ""


Logs = Mapping[str, Sequence[str]]
Arrival = ArrivedDelivery | ArrivedRing


def check_deliveries(
    logs: Logs,
    deliveries: Sequence[ArrivedDelivery],
    rings: Mapping[str, Sequence[ArrivedRing]],
    given_up: Collection[str] = (),
) -> list[DeliveryBreach]:
    """Every breach of every rule. `rings`: by device. `given_up`: messages that are dead letters."""
    breaches = [*undelivered(logs, deliveries, given_up), *_disorder("the webhook", logs, deliveries)]
    breaches += _unknown("the webhook", logs, deliveries)
    for device_id, rung in rings.items():
        breaches += unrung(logs, device_id, rung, given_up)
        breaches += _disorder(device_id, logs, rung)
        breaches += _unknown(device_id, logs, rung)
        breaches += _notifications(device_id, rung)
        breaches += _sounds(device_id, rung)
    every: list[Arrival] = [*deliveries]
    for rung in rings.values():
        every += rung
    return [*breaches, *_event_ids(every)]


def undelivered(
    logs: Logs, deliveries: Sequence[ArrivedDelivery], given_up: Collection[str] = ()
) -> Iterator[DeliveryBreach]:
    """What the webhook still waits for."""
    seen = {delivery.message_id for delivery in deliveries}
    for chat_id, log in logs.items():
        missing = [message_id for message_id in log if message_id not in seen and message_id not in given_up]
        if missing:
            says = f"{len(missing)} of {len(log)} messages of {chat_id} are missing, first {missing[0]}"
            yield DeliveryBreach(DeliveryRule.ALL_DELIVERED, says)


def unrung(
    logs: Logs, device_id: str, rings: Sequence[ArrivedRing], given_up: Collection[str] = ()
) -> Iterator[DeliveryBreach]:
    """What a device still waits for: older messages may have been collapsed into the newest."""
    seen = {ring.message_id for ring in rings}
    for chat_id, log in logs.items():
        if log and log[-1] not in seen and log[-1] not in given_up:
            yield DeliveryBreach(DeliveryRule.NEWEST_RINGS, f"{device_id} lacks {log[-1]} of {chat_id}")


def _disorder(who: str, logs: Logs, arrivals: Sequence[Arrival]) -> Iterator[DeliveryBreach]:
    """What is seen for the first time after something newer of its chat."""
    places = {message_id: place for log in logs.values() for place, message_id in enumerate(log)}
    newest: dict[str, int] = {}
    seen: set[str] = set()
    for arrival in arrivals:
        place = places.get(arrival.message_id)
        if place is None or arrival.message_id in seen:
            continue
        seen.add(arrival.message_id)
        if place < newest.get(arrival.chat_id, -1):
            is_ring = isinstance(arrival, ArrivedRing)
            rule = DeliveryRule.RINGS_IN_ORDER if is_ring else DeliveryRule.DELIVERED_IN_ORDER
            says = f"{who} got message {place} of {arrival.chat_id} after {newest[arrival.chat_id]}"
            yield DeliveryBreach(rule, says)
        newest[arrival.chat_id] = max(place, newest.get(arrival.chat_id, -1))


def _unknown(who: str, logs: Logs, arrivals: Sequence[Arrival]) -> Iterator[DeliveryBreach]:
    known = {(chat_id, message_id) for chat_id, log in logs.items() for message_id in log}
    for place in {(arrival.chat_id, arrival.message_id): None for arrival in arrivals}:
        if place not in known:
            yield DeliveryBreach(DeliveryRule.NOTHING_UNKNOWN, f"{who} got {place[1]} of {place[0]}")


def _notifications(device_id: str, rings: Sequence[ArrivedRing]) -> Iterator[DeliveryBreach]:
    pairs = {(ring.chat_id, ring.collapse_id): None for ring in rings if ring.collapse_id}
    if len({chat_id for chat_id, _ in pairs}) < len(pairs) or len({name for _, name in pairs}) < len(pairs):
        yield DeliveryBreach(DeliveryRule.ONE_NOTIFICATION, f"{device_id} has {sorted(pairs)}")


def _sounds(device_id: str, rings: Sequence[ArrivedRing]) -> Iterator[DeliveryBreach]:
    heard: set[str] = set()
    for ring in rings:
        if ring.is_silent:
            continue
        if ring.message_id in heard:
            says = f"{device_id} sounded again for {ring.message_id} of {ring.chat_id}"
            yield DeliveryBreach(DeliveryRule.AUDIBLE_ONCE, says)
        heard.add(ring.message_id)


def _event_ids(arrivals: Sequence[Arrival]) -> Iterator[DeliveryBreach]:
    events: dict[str, str] = {}
    messages: dict[str, str] = {}
    for arrival in arrivals:
        event_id = events.setdefault(arrival.message_id, arrival.event_id)
        message_id = messages.setdefault(arrival.event_id, arrival.message_id)
        if (event_id, message_id) != (arrival.event_id, arrival.message_id):
            says = f"{arrival.message_id} came as {arrival.event_id}, before {message_id} as {event_id}"
            yield DeliveryBreach(DeliveryRule.ONE_EVENT_ID, says)
